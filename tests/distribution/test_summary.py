import numpy as np
import pytest
from scipy import stats

from daes.distribution.summary import TableSummary


def test_merged_parts_are_a_uniform_sample_of_all_rows():
    """300 values in parts of very different sizes: each must be among the 20 members equally often."""
    values = np.arange(300.0)
    held = np.zeros(300)
    for seed in range(400):
        parts = [TableSummary(["x"], size=20, seed=seed, part=number) for number in range(3)]
        for part, rows in zip(parts, np.split(values, [10, 50]), strict=True):
            part.update(rows[:, None])
        first, *others = parts
        for other in others:
            first.merge(other)
        members = first.reservoir("x").sample.astype(int)
        assert len(np.unique(members)) == 20
        held[members] += 1
    # A member of a sample without replacement varies by (1 − 20/300) of what a Poisson count would.
    assert stats.chi2.sf(np.sum((held - held.mean()) ** 2) / held.mean() / (1 - 20 / 300), 299) > 1e-3
    parts_held = [held[:10].sum(), held[10:50].sum(), held[50:].sum()]
    assert stats.chisquare(parts_held, np.array([10, 40, 250]) / 300 * held.sum()).pvalue > 1e-3


def test_counts_ranges_and_missing_values_add_up():
    first, second = (TableSummary(["x", "y"], size=10, part=part) for part in (0, 1))
    first.update([[1.0, np.nan], [5.0, np.nan]])
    second.update([[np.inf, np.nan], [-3.0, np.nan]])
    first.merge(second)
    assert (first.rows, first.count.tolist(), first.skipped.tolist()) == (4, [3, 0], [1, 4])
    found = first.to_dict([0.5])
    assert found["columns"]["x"] == {"count": 3, "missing": 1, "minimum": -3.0, "maximum": 5.0, "quantiles": [1.0]}
    assert found["columns"]["y"]["quantiles"] == [None]


def test_parts_draw_different_numbers():
    first, second = (TableSummary(["x"], size=10, part=part) for part in (0, 1))
    for summary in (first, second):
        summary.update(np.arange(1000.0)[:, None])
    assert set(first.reservoir("x").sample) != set(second.reservoir("x").sample)


def test_other_columns_are_not_merged():
    with pytest.raises(ValueError, match="other must have the columns x, got y"):
        TableSummary(["x"]).merge(TableSummary(["y"]))


def test_an_error_names_the_part():
    with pytest.raises(ValueError, match="part must be a non-negative integer, got -1"):
        TableSummary(["x"], part=-1)
