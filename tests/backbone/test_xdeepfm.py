import pytest

from daes.backbone import XDeepFM


@pytest.mark.parametrize("cin", [(5, 5, 5), (2, 3), (6, 2, 1), (1,)], ids=str)
@pytest.mark.parametrize("raw_dim", [0, 2])
def test_equals_its_formula(slow, raw_dim, cin):
    def formula(p, e, raw):
        dim = len(e[0])
        maps, pooled = e, []
        for layer in range(len(cin)):
            new = []
            for weight in p[f"cin.weights.{layer}"]:
                made = [0.0] * dim
                for i, x in enumerate(maps):
                    for j, y in enumerate(e):
                        for c in range(dim):
                            made[c] += weight[i][j] * x[c] * y[c]
                new.append(made)
            maps = new
            pooled += [sum(made) for made in maps]
        return slow.linear(p, e) + slow.dot(p["readout.weight"][0], pooled) + slow.mlp(p, slow.flat(e, raw))

    slow.check(XDeepFM(4, 3, raw_dim=raw_dim, hidden=(5, 4), cin=cin), formula)


@pytest.mark.parametrize("cin", [(), (4, 0), (4, -1)])
def test_widths_must_be_positive(cin):
    with pytest.raises(ValueError, match="cin must hold"):
        XDeepFM(4, 3, cin=cin)
