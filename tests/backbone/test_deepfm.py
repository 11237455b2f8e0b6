import pytest

from daes.backbone.deepfm import DeepFM


@pytest.mark.parametrize("plain_dim", [0, 2])
@pytest.mark.parametrize(("num_fields", "scale"), [(4, 1.0), (40, 1.0), (50, 0.64)])
def test_equals_its_formula(slow, num_fields, scale, plain_dim):
    def formula(p, e, plain):
        pairs = sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))
        return slow.linear(p, e) + scale * pairs + slow.mlp(p, slow.flat(e, plain))

    slow.check(DeepFM(num_fields, 3, plain_dim=plain_dim, hidden=(5, 4)), formula)
