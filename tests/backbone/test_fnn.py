import pytest

from daes.backbone.fnn import FNN


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("hidden", [(5, 4), (6,), ()])
@pytest.mark.parametrize("plain_dim", [0, 2])
@pytest.mark.parametrize("slope", [0.0, 0.1, 0.5])
def test_equals_its_formula(slow, slope, plain_dim, hidden, batch_norm):
    slow.slope = slope
    slow.check(
        FNN(4, 3, plain_dim=plain_dim, hidden=hidden, batch_norm=batch_norm, slope=slope),
        lambda p, e, plain: slow.mlp(p, slow.flat(e, plain), batch_norm=batch_norm),
    )
