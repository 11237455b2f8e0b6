import pytest

from daes.backbone import DeepFM


@pytest.mark.parametrize("raw_dim", [0, 2])
def test_equals_its_formula(slow, raw_dim):
    def formula(p, e, raw):
        pairs = sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))
        return slow.linear(p, e) + pairs + slow.mlp(p, slow.flat(e, raw))

    slow.check(DeepFM(4, 3, raw_dim=raw_dim, hidden=(5, 4)), formula)
