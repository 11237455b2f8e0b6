import torch

from daes.backbone.fm import FM


def test_equals_its_formula(slow):
    def formula(p, e, plain):
        return slow.linear(p, e) + sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))

    slow.check(FM(4, 3), formula)


def test_one_field_has_no_pairs():
    model = FM(1, 3)
    fields = torch.randn(5, 1, 3)
    assert torch.equal(model(fields), model.linear(fields))
