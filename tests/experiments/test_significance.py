"""The t-tests on results without spread, ranks by their definition, corrections, and Friedman's test."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from daes.experiments.significance import average_rank, friedman, holm, t_test


def results(seed, size, mean=0.8):
    return np.random.default_rng(seed).normal(mean, 0.001, size)


def two_tails(statistic, freedom):
    """The probability of a |t| at least as large, from the density of Student's law, by the trapezoidal rule."""
    places = np.tan(np.linspace(np.arctan(abs(statistic)), np.pi / 2 - 1e-9, 400_001))
    density = (1 + places**2 / freedom) ** (-(freedom + 1) / 2)
    constant = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    return 2 * constant * np.trapezoid(density, places)


@pytest.mark.parametrize("sizes", [(5, 5), (2, 3), (5, 9)])
def test_the_papers_test_follows_its_formula(sizes):
    first, second = results(0, sizes[0]), results(1, sizes[1], mean=0.801)
    (n, m), (v, w) = sizes, (first.var(ddof=1), second.var(ddof=1))
    pooled = ((n - 1) * v + (m - 1) * w) / (n + m - 2)
    statistic = (first.mean() - second.mean()) / math.sqrt(pooled * (1 / n + 1 / m))
    assert t_test(first, second) == pytest.approx(two_tails(statistic, n + m - 2), rel=1e-4)
    assert t_test(first, second) == t_test(second, first)


def test_results_without_spread_leave_no_doubt():
    assert t_test([0.1] * 5, [0.1] * 5) == 1.0
    assert t_test([0.3] * 5, [0.1] * 5) == 0.0


def test_false_alarms_come_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    alarms = sum(t_test(rng.normal(size=5), rng.normal(size=5)) < 0.05 for _ in range(2000))
    assert stats.binomtest(alarms, 2000, 0.05).pvalue > 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.8], [0.8, 0.9]), r"first must be a list of two results or more, got shape \(1,\)"),
        (([0.8, 0.9], [[0.8, 0.9]]), "second must be a list"),
        (([0.8, np.nan], [0.8, 0.9]), "first must be finite; 1 results are not"),
    ],
)
def test_bad_results(arguments, message):
    with pytest.raises(ValueError, match=message):
        t_test(*arguments)


@given(
    arrays(np.float64, (5, 3), elements=st.sampled_from([0.1, 0.2, 0.3, math.inf])),
    st.booleans(),
)
def test_a_rank_counts_who_is_better(table, higher):
    shared, ordered = np.empty(table.shape), np.empty(table.shape)
    for row, column in np.ndindex(table.shape):
        mine, all_of = table[row, column], table[:, column]
        better = np.sum(all_of > mine if higher else all_of < mine)
        shared[row, column] = 1 + better + (np.sum(all_of == mine) - 1) / 2
        ordered[row, column] = 1 + better + np.sum(all_of[:row] == mine)
    np.testing.assert_allclose(average_rank(table, higher_is_better=higher), shared.mean(axis=1))
    np.testing.assert_allclose(average_rank(table, higher_is_better=higher, ties="order"), ordered.mean(axis=1))


def test_ties_share_the_mean_of_their_places():
    assert average_rank([[0.8], [0.8], [0.9], [0.8]], higher_is_better=True).tolist() == [3.0, 3.0, 1.0, 3.0]


def test_a_method_without_a_result_ranks_last():
    table = [[math.nan, 0.4], [0.7, 0.5], [0.6, math.nan]]
    assert average_rank(table, higher_is_better=True).tolist() == [2.5, 1.0, 2.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"results": [0.1, 0.2], "higher_is_better": True}, "must be a table of methods × columns"),
        ({"results": [[0.1]], "higher_is_better": True, "ties": "min"}, "ties must be 'mean' or 'order'"),
    ],
)
def test_bad_tables(arguments, message):
    with pytest.raises(ValueError, match=message):
        average_rank(**arguments)


def test_holm_multiplies_the_smallest_by_the_number_of_tests():
    assert holm([0.01, 0.02, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.04, 0.04, 0.02])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).size == 0
    with pytest.raises(ValueError, match="from 0 to 1"):
        holm([1.5])


def test_holm_agrees_with_its_step_down_rule():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.random(12) ** 4
        kept = set()
        for place, k in enumerate(np.argsort(p)):
            if p[k] >= 0.05 / (12 - place):
                break
            kept.add(int(k))
        assert set(np.flatnonzero(holm(p) < 0.05).tolist()) == kept


def test_friedman_is_the_formula_and_nemenyi_the_published_table():
    rng = np.random.default_rng(1)
    table = rng.random((4, 10))
    found = friedman(table)
    ranks = stats.rankdata(-table, axis=0).mean(1)
    assert found.ranks == pytest.approx(tuple(ranks))
    assert found.statistic == pytest.approx(12 * 10 / (4 * 5) * ((ranks - 2.5) ** 2).sum())
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, 3))
    # Demšar (2006), Table 5: q at 5 % is 2.569 for four methods.
    assert found.critical_difference == pytest.approx(2.569 * (4 * 5 / 60) ** 0.5, rel=1e-3)
    assert friedman(table[:2]) is None
    assert friedman(np.ones((3, 4))).p_value == 1.0
    with pytest.raises(ValueError, match="finite table"):
        friedman([[1.0, np.nan]])
