import pytest

from daes.backbone.dcnv2 import DCNv2


@pytest.mark.parametrize("plain_dim", [0, 2])
@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_its_formula(slow, layers, rank, plain_dim):
    def formula(p, e, plain):
        first = slow.flat(e, plain)
        crossed = first
        for layer in range(layers):
            name = f"cross.maps.{layer}"
            if rank is None:
                mapped, bias = slow.apply(p[f"{name}.weight"], crossed), p[f"{name}.bias"]
            else:
                mapped = slow.apply(p[f"{name}.1.weight"], slow.apply(p[f"{name}.0.weight"], crossed))
                bias = p[f"{name}.1.bias"]
            crossed = [x0 * (y + b) + x for x0, y, b, x in zip(first, mapped, bias, crossed, strict=True)]
        both = [*crossed, *slow.hidden(p, "deep", first, batch_norm=False)]
        return slow.dot(p["readout.weight"][0], both) + p["readout.bias"][0]

    slow.check(DCNv2(4, 3, plain_dim=plain_dim, hidden=(5, 4), layers=layers, rank=rank), formula)


@pytest.mark.parametrize("option", [{"layers": 0}, {"rank": 0}])
def test_options_must_be_positive(option):
    with pytest.raises(ValueError, match="must be positive"):
        DCNv2(4, 3, **option)
