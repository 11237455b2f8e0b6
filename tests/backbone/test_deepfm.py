import pytest

from daes.backbone import BACKBONES
from daes.backbone.deepfm import DeepFM


@pytest.mark.parametrize("plain_dim", [0, 2])
@pytest.mark.parametrize(("num_fields", "scale"), [(4, 1.0), (10, 1.0), (11, 10 / 11), (40, 0.25)])
def test_equals_its_formula(slow, num_fields, scale, plain_dim):
    def formula(p, e, plain):
        pairs = sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))
        return slow.linear(p, e) + scale * pairs + slow.mlp(p, slow.flat(e, plain))

    slow.check(DeepFM(num_fields, 3, plain_dim=plain_dim, hidden=(5, 4)), formula)
    slow.check(DeepFM(num_fields, 3, plain_dim=plain_dim, hidden=(5, 4), pairs=scale), formula)


def test_as_published(slow):
    def formula(p, e, plain):
        pairs = sum(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))
        return slow.linear(p, e) + pairs + slow.mlp(p, slow.flat(e, plain))

    slow.check(DeepFM(30, 3, hidden=(5, 4), **BACKBONES["deepfm"].authors), formula)


@pytest.mark.parametrize("pairs", [0.0, -1.0, float("nan"), float("inf")])
def test_pairs_must_count(pairs):
    with pytest.raises(ValueError, match="pairs must be a finite number above zero"):
        DeepFM(4, 3, pairs=pairs)
