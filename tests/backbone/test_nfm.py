import pytest

from daes.backbone.nfm import NFM


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim, batch_norm):
    def formula(p, e, plain):
        pooled = [sum(e[i][c] * e[j][c] for i, j in slow.pairs(len(e))) for c in range(len(e[0]))]
        if batch_norm:
            pooled = slow.norm(p, "norm", pooled)
        return slow.linear(p, e) + slow.mlp(p, [*pooled, *plain], batch_norm=batch_norm)

    slow.check(NFM(4, 3, plain_dim=plain_dim, hidden=(5, 4), batch_norm=batch_norm), formula)
