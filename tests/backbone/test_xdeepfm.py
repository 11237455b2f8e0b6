import pytest
import torch

from daes.backbone.xdeepfm import CIN, XDeepFM


@pytest.mark.parametrize("cin", [(5, 5, 5), (2, 3), (6, 2, 1), (1,)], ids=str)
@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim, cin):
    def formula(p, e, plain):
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
        return slow.linear(p, e) + slow.dot(p["readout.weight"][0], pooled) + slow.mlp(p, slow.flat(e, plain))

    slow.check(XDeepFM(4, 3, plain_dim=plain_dim, hidden=(5, 4), cin=cin), formula)


@pytest.mark.parametrize("cin", [(), (4, 0), (4, -1)])
def test_widths_must_be_positive(cin):
    with pytest.raises(ValueError, match="cin must hold"):
        XDeepFM(4, 3, cin=cin)


@pytest.mark.parametrize("widths", [(2, 6), (16, 3), (8, 8)], ids=str)
def test_the_cin_keeps_no_more_products_than_it_must(widths):
    rows, num_fields, dim = 5, 7, 4
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()), lambda _: None):
        CIN(num_fields, widths)(torch.randn(rows, num_fields, dim))
    between = [min(pair) for pair in zip((num_fields, *widths), widths, strict=False)]
    assert max(kept) == rows * dim * num_fields * max(between)
