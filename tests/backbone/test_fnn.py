import pytest

from daes.backbone.fnn import FNN


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("hidden", [(5, 4), (6,), ()])
@pytest.mark.parametrize("plain_dim", [0, 2])
def test_equals_its_formula(slow, plain_dim, hidden, batch_norm):
    slow.check(
        FNN(4, 3, plain_dim=plain_dim, hidden=hidden, batch_norm=batch_norm),
        lambda p, e, plain: slow.mlp(p, slow.flat(e, plain), batch_norm=batch_norm),
    )
