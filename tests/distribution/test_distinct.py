import numpy as np
import pytest

from daes import native
from daes.distribution.distinct import DistinctCounts


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def loops(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(native, "_library", None)


def hashes(distinct, rows, seed=0):
    """Rows of `distinct` hashes, each of which occurs."""
    random = np.random.default_rng(seed)
    values = np.unique(random.integers(1, 2**63 - 1, distinct))
    assert len(values) == distinct
    return random.permutation(np.concatenate([values, random.choice(values, rows - distinct)]))


def counted(columns, batch=500, size=1024):
    counts = DistinctCounts(columns.shape[1], size)
    for start in range(0, len(columns), batch):
        counts.update(columns[start : start + batch])
    return counts


@pytest.mark.parametrize("distinct", [1, 17, 1023])
def test_few_are_counted_exactly_and_missing_ones_are_not(distinct):
    values = hashes(distinct, 20_000)
    values[::7] = 0
    assert counted(values[:, None]).estimate().tolist() == [len(np.unique(values[values > 0]))]


@pytest.mark.parametrize("distinct", [2_000, 50_000])
def test_many_are_estimated_within_the_error(distinct):
    columns = np.stack([hashes(distinct, 60_000, seed) for seed in range(20)], axis=1)
    relative = counted(columns).estimate() / distinct - 1
    error = 1 / np.sqrt(1022)
    assert abs(relative.mean()) < 3 * error / np.sqrt(20)
    assert 0.4 * error < relative.std() < 1.6 * error


def test_batches_and_a_resume_change_nothing():
    columns = np.stack([hashes(5000, 20_000), hashes(30, 20_000, 1)], axis=1)
    before = counted(columns[:9000], batch=700)
    after = DistinctCounts(2)
    after.load_state_dict(before.state_dict())
    after.update(columns[9000:])
    assert after.estimate().tolist() == counted(columns, batch=20_000).estimate().tolist()


def test_no_columns():
    counts = DistinctCounts(0)
    counts.update(np.empty((5, 0), np.int64))
    assert counts.estimate().shape == (0,)


def test_what_is_kept_are_the_smallest():
    columns = np.stack([hashes(5000, 9000), hashes(30, 9000, 1)], axis=1)
    columns[::9] = 0
    kept = counted(columns, batch=37, size=100).state_dict()["smallest"]
    for column, found in zip(columns.T, kept, strict=True):
        assert found.tolist() == np.unique(column[column > 0])[:100].tolist()


def test_rows_of_other_columns_are_refused():
    with pytest.raises(ValueError, match=r"hashes must have shape \(B, 2\), got \(5, 3\)"):
        DistinctCounts(2).update(np.ones((5, 3), np.int64))
