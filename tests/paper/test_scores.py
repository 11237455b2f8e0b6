from dataclasses import replace

import pytest
from scipy.stats import ttest_ind

from daes.experiments.scores import BaselineTest
from daes.paper import ExperimentSettings
from daes.paper.scores import ROW_TEST, SEED_TEST, PairComparison, changes, compare_pairs, on_rows

from .conftest import make_result

ONE = {"fnn": [0.71, 0.72, 0.73], "dcnv2": [0.7, None, 0.6], "deepfm": [0.8]}
OTHER = {"fnn": [0.6, 0.61, 0.62], "dcnv2": [0.69, 0.7, 0.71], "deepfm": [None]}


@pytest.fixture
def result():
    scores = {
        label: {backbone: {"auc": aucs} for backbone, aucs in row.items()}
        for label, row in (("one", ONE), ("other", OTHER))
    }
    return make_result(
        "space", {"training": {"backbones": list(ONE)}, "scores": scores}, ExperimentSettings(), "adstream:9"
    )


def test_pairs_are_compared_on_each_backbone_where_both_have_results(result):
    found = compare_pairs(result, [("one", "other")])
    assert found.differences == pytest.approx((0.11, -0.05))
    assert ttest_ind(ONE["fnn"], OTHER["fnn"]).pvalue < 0.05 < ttest_ind([0.7, 0.6], OTHER["dcnv2"]).pvalue
    assert (found.ahead, found.significantly_ahead, found.significantly_behind) == (1, 1, 0)
    assert found.parts == (False,)
    assert str(found) == (
        "ahead in 1 of 2 cases, significantly in 1 and significantly behind in 0 (t-test between seeds); "
        "AUC +0.0300 on average."
    )
    back = compare_pairs(result, [("other", "one")])
    assert (back.ahead, back.significantly_ahead, back.significantly_behind) == (1, 0, 1)


def test_what_is_ahead_and_not_significantly_so_is_left_open():
    assert PairComparison((0.1, 0.1, -0.1), 2, 0).parts == (True,)
    assert PairComparison((0.1, 0.1, -0.1), 1, 0).parts == (None,)
    assert PairComparison((0.1, -0.1, -0.1), 1, 0).parts == (False,)
    assert PairComparison((), 0, 0).parts == ()
    assert str(PairComparison((), 0, 0)) == "no results."


def test_one_seed_is_never_significant(result):
    result.results["scores"]["other"]["deepfm"]["auc"] = [0.1]
    found = compare_pairs(result, [("one", "other")])
    assert (found.ahead, found.significantly_ahead) == (2, 1)


def test_changes_are_told_by_backbone(result):
    assert changes(result, "other", "one") == [pytest.approx(0.11), pytest.approx(-0.05), None]


def test_where_predictions_were_kept_the_rows_decide(result):
    result.results["row_tests"] = [
        {"backbone": backbone, "measure": "auc", "subject": "other", "baseline": "one", "difference": gap}
        | {"delong": delong, "bootstrap": 0.01}
        for backbone, gap, delong in (("fnn", -0.11, 0.001), ("dcnv2", 0.05, 0.2))
    ]
    found = compare_pairs(result, [("one", "other")])
    assert (found.significantly_ahead, found.significantly_behind) == (1, 0)
    assert "paired DeLong test" in str(found)
    result.results["row_tests"][0]["bootstrap"] = 0.03  # 0.06 after the correction for two cases
    assert compare_pairs(result, [("one", "other")]).significantly_ahead == 0
    tests = [BaselineTest("fnn", measure, "one", "other", 0.11, 0.5) for measure in ("auc", "logloss")]
    assert on_rows(result.results, tests[:1]) == ([replace(tests[0], p_value=0.03)], ROW_TEST)
    assert on_rows(result.results, tests) == (tests, SEED_TEST)
