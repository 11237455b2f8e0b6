"""The t-tests on results without spread, ranks by their definition, and the paper's own ranks from its own table."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from daes.experiments.significance import TTest, average_rank, friedman, holm, t_test

# AUC on FNN, Wide & Deep, DeepFM, IPNN, DCN v2, xDeepFM, and the average rank, as the paper's main table prints them.
PAPER = {
    "AutoML": [
        ("EFD", [0.8258, 0.8284, 0.8194, 0.8273, 0.8255, 0.8266], 8.67),
        ("LD", [0.8285, 0.8287, 0.8250, 0.8268, 0.8228, 0.8217], 9.00),
        ("TD", [0.8257, 0.8261, 0.8251, 0.8264, 0.8268, 0.8253], 9.50),
        ("MultiHot", [0.8283, 0.8279, 0.8268, 0.8288, 0.8195, 0.8267], 7.67),
        ("YouTube", [0.8217, 0.8226, 0.8204, 0.8235, 0.8221, 0.8228], 13.83),
        ("DLRM", [0.8251, 0.8245, 0.8234, 0.8239, 0.8238, 0.8236], 12.33),
        ("FE", [0.8268, 0.8262, 0.8271, 0.8255, 0.8213, 0.8084], 10.83),
        ("AutoDis", [0.8263, 0.8292, 0.8247, 0.8253, 0.8238, 0.8282], 8.83),
        ("DEER", [0.8279, 0.8275, 0.8271, 0.8268, 0.8234, 0.8261], 8.17),
        ("Key-Value", [0.8262, 0.8260, 0.8261, 0.8261, 0.8179, 0.8226], 11.83),
        ("NaryDis", [0.8287, 0.8298, 0.8281, 0.8295, 0.8251, 0.8284], 4.33),
        ("PLE", [0.8302, 0.8317, 0.8308, 0.8317, 0.8253, 0.8281], 3.83),
        ("DAE", [0.8271, 0.8277, 0.8251, 0.8268, 0.8262, 0.8256], 8.17),
        ("DAES_gate", [0.8327, 0.8343, 0.8339, 0.8347, 0.8286, 0.8302], 1.33),
        ("DAES_tran", [0.8323, 0.8332, 0.8324, 0.8325, 0.8288, 0.8339], 1.67),
    ],
    "Criteo": [
        ("EFD", [0.7858, 0.7858, 0.7858, 0.7859, 0.7857, 0.7823], 7.67),
        ("LD", [0.7840, 0.7839, 0.7840, 0.7841, 0.7836, 0.7803], 11.50),
        ("TD", [0.7835, 0.7834, 0.7832, 0.7831, 0.7839, 0.7837], 12.00),
        ("MultiHot", [0.7861, 0.7864, 0.7861, 0.7860, 0.7858, 0.7849], 5.33),
        ("YouTube", [0.7835, 0.7821, 0.7824, 0.7829, 0.7832, 0.7839], 13.17),
        ("DLRM", [0.7832, 0.7839, 0.7831, 0.7838, 0.7836, 0.7834], 12.67),
        ("FE", [0.7848, 0.7846, 0.7848, 0.7846, 0.7845, 0.7849], 9.17),
        ("AutoDis", [0.7864, 0.7865, 0.7838, 0.7843, 0.7868, 0.7859], 6.17),
        ("DEER", [0.7852, 0.7859, 0.7858, 0.7851, 0.7856, 0.7854], 7.17),
        ("Key-Value", [0.7626, 0.7629, 0.7627, 0.7628, 0.7618, 0.7610], 15.00),
        ("NaryDis", [0.7860, 0.7865, 0.7858, 0.7857, 0.7862, 0.7855], 5.67),
        ("PLE", [0.7877, 0.7879, 0.7877, 0.7876, 0.7872, 0.7879], 3.00),
        ("DAE", [0.7859, 0.7847, 0.7854, 0.7845, 0.7851, 0.7842], 8.50),
        ("DAES_gate", [0.7892, 0.7895, 0.7894, 0.7890, 0.7891, 0.7894], 1.50),
        ("DAES_tran", [0.7893, 0.7895, 0.7896, 0.7895, 0.7891, 0.7888], 1.50),
    ],
    "Industrial": [
        ("EFD", [0.7556, 0.7559, 0.7559, 0.7557, 0.7558, 0.7522], 7.67),
        ("LD", [0.7534, 0.7535, 0.7535, 0.7532, 0.7538, 0.7537], 12.50),
        ("TD", [0.7542, 0.7538, 0.7541, 0.7543, 0.7538, 0.7502], 11.67),
        ("MultiHot", [0.7564, 0.7565, 0.7562, 0.7562, 0.7556, 0.7547], 5.67),
        ("YouTube", [0.7534, 0.7523, 0.7523, 0.7527, 0.7533, 0.7538], 14.00),
        ("DLRM", [0.7534, 0.7538, 0.7533, 0.7537, 0.7537, 0.7535], 13.33),
        ("FE", [0.7557, 0.7546, 0.7553, 0.7546, 0.7552, 0.7541], 8.50),
        ("AutoDis", [0.7553, 0.7558, 0.7557, 0.7553, 0.7558, 0.7555], 7.00),
        ("DEER", [0.7565, 0.7566, 0.7537, 0.7545, 0.7569, 0.7558], 6.00),
        ("Key-Value", [0.7535, 0.7538, 0.7534, 0.7538, 0.7538, 0.7534], 12.67),
        ("NaryDis", [0.7562, 0.7564, 0.7557, 0.7558, 0.7562, 0.7555], 5.83),
        ("PLE", [0.7574, 0.7577, 0.7576, 0.7573, 0.7571, 0.7579], 3.00),
        ("DAE", [0.7544, 0.7547, 0.7547, 0.7545, 0.7546, 0.7549], 9.17),
        ("DAES_gate", [0.7594, 0.7596, 0.7593, 0.7593, 0.7593, 0.7594], 1.33),
        ("DAES_tran", [0.7593, 0.7596, 0.7597, 0.7595, 0.7593, 0.7587], 1.67),
    ],
}


def results(seed, size, mean=0.8):
    return np.random.default_rng(seed).normal(mean, 0.001, size)


def two_tails(statistic, freedom):
    """The probability of a |t| at least as large, from the density of Student's law, by the trapezoidal rule."""
    places = np.tan(np.linspace(np.arctan(abs(statistic)), np.pi / 2 - 1e-9, 400_001))
    density = (1 + places**2 / freedom) ** (-(freedom + 1) / 2)
    constant = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    return 2 * constant * np.trapezoid(density, places)


@pytest.mark.parametrize("sizes", [(5, 5), (2, 3), (5, 9)])
def test_student_and_welch_follow_their_formulas(sizes):
    first, second = results(0, sizes[0]), results(1, sizes[1], mean=0.801)
    (n, m), (v, w) = sizes, (first.var(ddof=1), second.var(ddof=1))
    gap = first.mean() - second.mean()
    pooled = ((n - 1) * v + (m - 1) * w) / (n + m - 2)
    freedom = (v / n + w / m) ** 2 / ((v / n) ** 2 / (n - 1) + (w / m) ** 2 / (m - 1))
    expected = {
        "student": (gap / math.sqrt(pooled * (1 / n + 1 / m)), n + m - 2),
        "welch": (gap / math.sqrt(v / n + w / m), freedom),
    }
    for kind, (statistic, degrees) in expected.items():
        found = t_test(first, second, kind=kind)
        assert found.difference == pytest.approx(gap, rel=1e-9)
        assert found.statistic == pytest.approx(statistic, rel=1e-9)
        assert found.degrees_of_freedom == pytest.approx(degrees, rel=1e-9)
        assert found.p_value == pytest.approx(two_tails(statistic, degrees), rel=1e-4)


def test_the_default_is_the_papers():
    first, second = results(0, 5), results(1, 5)
    assert t_test(first, second) == t_test(first, second, kind="student")
    assert t_test(first, second).degrees_of_freedom == 8


def test_paired_follows_its_formula():
    first = results(0, 5)
    second = first - results(1, 5, mean=0.0005)
    gaps = first - second
    statistic = gaps.mean() / math.sqrt(gaps.var(ddof=1) / 5)
    found = t_test(first, second, kind="paired")
    assert found.statistic == pytest.approx(statistic, rel=1e-9)
    assert found.degrees_of_freedom == 4
    assert found.p_value == pytest.approx(two_tails(statistic, 4), rel=1e-4)


def test_two_tails():
    first, second = results(0, 5), results(1, 5, mean=0.801)
    assert t_test(first, second).p_value == t_test(second, first).p_value
    assert t_test(first, second).statistic == -t_test(second, first).statistic


@pytest.mark.parametrize("kind", ["student", "welch", "paired"])
def test_results_without_spread_leave_no_doubt(kind):
    same = t_test([0.1] * 5, [0.1] * 5, kind=kind)
    assert (same.p_value, same.statistic, same.significant()) == (1.0, 0.0, False)
    better = t_test([0.3] * 5, [0.1] * 5, kind=kind)
    assert (better.p_value, better.statistic, better.significant()) == (0.0, math.inf, True)
    assert t_test([0.1] * 5, [0.3] * 5, kind=kind).statistic == -math.inf


def test_false_alarms_come_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    alarms = sum(t_test(rng.normal(size=5), rng.normal(size=5)).significant(0.05) for _ in range(2000))
    assert stats.binomtest(alarms, 2000, 0.05).pvalue > 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.8], [0.8, 0.9]), r"first must be a list of two results or more, got shape \(1,\)"),
        (([0.8, 0.9], [[0.8, 0.9]]), "second must be a list"),
        (([0.8, np.nan], [0.8, 0.9]), "first must be finite; 1 results are not"),
        (([0.8, 0.9], [0.8, 0.9, 0.7], "paired"), "as many results on both sides, got 2 and 3"),
        (([0.8, 0.9], [0.8, 0.9], "Student"), "kind must be .* got 'Student'"),
    ],
)
def test_bad_results(arguments, message):
    with pytest.raises(ValueError, match=message):
        t_test(*arguments)


def test_level_must_be_a_probability():
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1, got 5"):
        TTest("student", 0.0, 0.0, 8.0, 1.0).significant(5)


@given(
    arrays(np.float64, (5, 3), elements=st.sampled_from([0.1, 0.2, 0.3, math.inf])),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_a_rank_counts_who_is_better(table, higher):
    shared, ordered = np.empty(table.shape), np.empty(table.shape)
    for row, column in np.ndindex(table.shape):
        mine, all_of = table[row, column], table[:, column]
        better = np.sum(all_of > mine if higher[column] else all_of < mine)
        shared[row, column] = 1 + better + (np.sum(all_of == mine) - 1) / 2
        ordered[row, column] = 1 + better + np.sum(all_of[:row] == mine)
    np.testing.assert_allclose(average_rank(table, higher_is_better=higher), shared.mean(axis=1))
    np.testing.assert_allclose(average_rank(table, higher_is_better=higher, ties="order"), ordered.mean(axis=1))


def test_ties_share_the_mean_of_their_places():
    assert average_rank([[0.8], [0.8], [0.9], [0.8]], higher_is_better=True).tolist() == [3.0, 3.0, 1.0, 3.0]


def test_a_method_without_a_result_ranks_last():
    table = [[math.nan, 0.5], [0.7, 0.4], [0.6, math.nan]]
    assert average_rank(table, higher_is_better=[True, False]).tolist() == [2.5, 1.0, 2.5]


@pytest.mark.parametrize("dataset", PAPER)
def test_the_papers_ranks_follow_from_its_auc_columns(dataset):
    table = [auc for _, auc, _ in PAPER[dataset]]
    ranks = average_rank(table, higher_is_better=True, ties="order")
    assert [f"{rank:.2f}" for rank in ranks] == [f"{rank:.2f}" for _, _, rank in PAPER[dataset]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"results": [0.1, 0.2], "higher_is_better": True}, "must be a table of methods × columns"),
        ({"results": [[0.1, 0.2]], "higher_is_better": [True]}, "must be one value or 2"),
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
