import math

import pytest

from daes.experiments.scores import BaselineTest, ScoreTable, SeedScores
from daes.experiments.significance import t_test
from daes.table import Cell


@pytest.fixture
def table():
    return ScoreTable.of(
        {
            "efd": {"fnn": {"auc": [0.60, 0.61], "logloss": [0.50, 0.51]}, "lr": {"auc": [0.60]}},
            "ple": {"fnn": {"auc": [0.70, 0.71], "logloss": [0.40, 0.42]}, "lr": {"auc": [None]}},
            "daes": {"fnn": {"auc": [0.75, None, 0.76], "logloss": [0.41, 0.42]}, "lr": {"auc": [0.55]}},
        }
    )


def test_seeds_without_a_value_are_left_out():
    scores = SeedScores.of([0.5, None, 0.7, math.nan])
    assert (scores.mean, scores.std) == (pytest.approx(0.6), pytest.approx(0.1 * 2**0.5))
    assert (SeedScores.of([0.5]).mean, SeedScores.of([0.5]).std) == (0.5, None)
    nothing = SeedScores.of([None, math.nan])
    assert not nothing
    assert math.isnan(nothing.mean)
    assert nothing.std is None


def test_the_best_is_the_highest_auc_and_the_lowest_logloss(table):
    assert table.best("fnn", "auc") == "daes"
    assert table.best("fnn", "logloss") == "ple"
    assert table.best("fnn", "auc", ["efd", "ple"]) == "ple"
    assert table.best("lr", "auc", ["ple"]) is None


def test_the_subject_is_tested_against_the_best_baseline(table):
    test = table.test("daes", ["efd", "ple"], "fnn", "logloss")
    p_value = t_test([0.41, 0.42], [0.40, 0.42])
    assert test == BaselineTest("fnn", "logloss", "daes", "ple", pytest.approx(0.005), pytest.approx(p_value))
    assert not test.better
    assert not test.significant
    single = table.test("daes", ["efd", "ple"], "lr", "auc")
    assert (single.baseline, single.p_value, single.significant) == ("efd", None, False)
    assert table.test("ple", ["efd"], "lr", "auc") is None
    assert table.test("efd", ["ple"], "lr", "auc") is None


def test_a_cell_says_mean_spread_and_mark_and_the_best_stands_out(table):
    assert table.cell("daes", "fnn", "auc", mark="†") == Cell("0.7550", strong=True, note="± 0.0071 †")
    assert table.cell("efd", "lr", "auc") == Cell("0.6000", strong=True)
    assert table.cell("ple", "lr", "auc") == Cell("–")
    tied = ScoreTable.of({"a": {"fnn": {"auc": [0.70001]}}, "b": {"fnn": {"auc": [0.70002]}}})
    assert [tied.cell(label, "fnn", "auc").strong for label in "ab"] == [True, True]


def test_ranks_are_means_over_backbones(table):
    assert table.ranks("auc", ["fnn", "lr"]) == {"efd": 2.0, "ple": 2.5, "daes": 1.5}
    assert table.ranks("auc", ["fnn"], ["efd", "ple"]) == {"efd": 2.0, "ple": 1.0}
    assert table.ranks("auc", ["fnn"], []) == {}
