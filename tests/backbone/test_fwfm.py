import torch

from daes.backbone.fwfm import FwFM


def test_equals_its_formula(slow):
    def formula(p, e, plain):
        strength = dict(zip(slow.pairs(len(e)), p["strength.weight"][0], strict=True))
        return slow.linear(p, e) + sum(strength[i, j] * slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))

    slow.check(FwFM(4, 3), formula)


def test_a_strength_of_zero_cuts_its_pair_alone():
    model = FwFM(3, 2)
    fields = torch.randn(5, 3, 2)
    whole = model(fields)
    with torch.no_grad():
        model.strength.weight[0, 1] = 0.0
    cut = whole - (fields[:, 0] * fields[:, 2]).sum(dim=1)
    torch.testing.assert_close(model(fields), cut)
