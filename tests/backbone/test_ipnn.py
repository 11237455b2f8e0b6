import pytest

from daes.backbone.ipnn import IPNN


@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim):
    def formula(p, e, plain):
        return slow.mlp(p, slow.flat(e, [*plain, *(slow.dot(e[i], e[j]) for i, j in slow.pairs(len(e)))]))

    slow.check(IPNN(4, 3, plain_dim=plain_dim, hidden=(5, 4)), formula)
