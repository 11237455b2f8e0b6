import pytest

from daes.backbone.dcn import DCN


@pytest.mark.parametrize("plain_dim", [0, 2])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_its_formula(slow, layers, plain_dim):
    def formula(p, e, plain):
        first = slow.flat(e, plain)
        crossed = first
        for layer in range(layers):
            scale = slow.dot(p[f"cross.weights.{layer}.weight"][0], crossed)
            bias = p[f"cross.biases.{layer}"]
            crossed = [x0 * scale + b + x for x0, b, x in zip(first, bias, crossed, strict=True)]
        both = [*crossed, *slow.hidden(p, "deep", first, batch_norm=False)]
        return slow.dot(p["readout.weight"][0], both) + p["readout.bias"][0]

    slow.check(DCN(4, 3, plain_dim=plain_dim, hidden=(5, 4), layers=layers), formula)


def test_layers_must_be_positive():
    with pytest.raises(ValueError, match="layers must be positive, got 0"):
        DCN(4, 3, layers=0)
