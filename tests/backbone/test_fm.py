import pytest
import torch

from daes.backbone.fm import FM


@pytest.mark.parametrize(("num_fields", "scale"), [(4, 1.0), (50, 0.2)])
def test_equals_its_formula(slow, num_fields, scale):
    def formula(p, e, plain):
        return slow.linear(p, e) + scale * sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))

    slow.check(FM(num_fields, 3), formula)


def test_one_field_has_no_pairs():
    model = FM(1, 3)
    fields = torch.randn(5, 1, 3)
    assert torch.equal(model(fields), model.linear(fields))
