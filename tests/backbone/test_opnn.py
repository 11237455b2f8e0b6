import pytest

from daes.backbone.opnn import OPNN


@pytest.mark.parametrize("plain_dim", [0, 2])
def test_sum_equals_its_formula(slow, plain_dim):
    def formula(p, e, plain):
        count, dim = len(e), len(e[0])
        outer = [[0.0] * dim for _ in range(dim)]
        for i in range(count):
            for j in range(count):
                for a in range(dim):
                    for b in range(dim):
                        outer[a][b] += e[i][a] * e[j][b]
        return slow.mlp(p, slow.flat(e, [*plain, *slow.flat(outer)]))

    slow.check(OPNN(4, 3, plain_dim=plain_dim, hidden=(5, 4)), formula)


@pytest.mark.parametrize("plain_dim", [0, 2])
def test_kernel_equals_its_formula(slow, plain_dim):
    def formula(p, e, plain):
        products = []
        for place, (i, j) in enumerate(slow.pairs(len(e))):
            kernel = p["outer.kernel"][place]
            products.append(slow.dot(e[i], slow.apply(kernel, e[j])))
        return slow.mlp(p, slow.flat(e, [*plain, *products]))

    slow.check(OPNN(4, 3, plain_dim=plain_dim, hidden=(5, 4), product="kernel"), formula)


def test_product_must_be_known():
    with pytest.raises(ValueError, match="product must be one of sum, kernel, got 'inner'"):
        OPNN(4, 3, product="inner")
