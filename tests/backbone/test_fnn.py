import pytest

from daes.backbone import FNN


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("hidden", [(5, 4), (6,), ()])
@pytest.mark.parametrize("raw_dim", [0, 2])
def test_equals_its_formula(slow, raw_dim, hidden, batch_norm):
    slow.check(
        FNN(4, 3, raw_dim=raw_dim, hidden=hidden, batch_norm=batch_norm),
        lambda p, e, raw: slow.mlp(p, slow.flat(e, raw), batch_norm=batch_norm),
    )
