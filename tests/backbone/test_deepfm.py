import pytest

from daes.backbone.deepfm import DeepFM


@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim):
    def formula(p, e, plain):
        pairs = sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))
        return slow.linear(p, e) + pairs + slow.mlp(p, slow.flat(e, plain))

    slow.check(DeepFM(4, 3, plain_dim=plain_dim, hidden=(5, 4)), formula)
