import numpy as np
import pytest
from benchmarks.wide import losses, made


@pytest.mark.parametrize("kind", ["same", "noise"])
def test_every_row_has_a_loss(kind):
    rows = made(kind, columns=6, rows=200, seed=0)
    assert (rows.numerical.shape[1] + rows.categorical.shape[1], len(rows)) == (6, 200)
    found = losses(rows, "fnn", evidence=True, batch_size=50, seed=0)
    assert found.shape == (200,)
    assert np.all(found > 0)
    assert found[100:].mean() < 1
