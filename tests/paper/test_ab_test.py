import pytest
from scipy.stats import t

from daes.paper import EXPERIMENTS, ExperimentSettings, ab_test
from daes.paper.ab_test import _market, _pooled

from .conftest import make_result, run_and_show


def a_seed(lift):
    return {
        "lift": lift,
        "lift_interval": [lift - 0.1, lift + 0.1],
        "paired_lift": lift / 2,
        "paired_interval": [lift / 2 - 0.01, lift / 2 + 0.01],
        "value_lift": 0.0,
        "value_interval": [0.0, 0.0],
    }


def test_seeds_are_pooled_by_students_t():
    """The variance is the mean of (0.0007, 0.0001), with 2 · 2 degrees of freedom."""
    lifts = {"one": (0.01, 0.02, 0.06), "other": (0.01, 0.02, 0.03)}
    found = _pooled({title: {"seeds": [a_seed(lift) for lift in several]} for title, several in lifts.items()})
    for title, mean in (("one", 0.03), ("other", 0.02)):
        low, high = t.interval(0.95, 4, loc=mean, scale=(0.0004 / 3) ** 0.5)
        pooled = found[title]["lift"]
        assert (pooled["mean"], pooled["low"], pooled["high"]) == pytest.approx((mean, low, high), rel=1e-6)


def test_one_seed_has_the_interval_over_users():
    alone = _pooled({"one": {"seeds": [a_seed(0.01)]}})["one"]["lift"]
    assert (alone["low"], alone["high"]) == pytest.approx((-0.09, 0.11))


def test_rows_bound_the_requests():
    assert _market(ExperimentSettings()).requests_per_day == 30_000
    assert _market(ExperimentSettings(rows=18_000)).requests_per_day == 2000
    assert _market(ExperimentSettings(rows=10)).requests_per_day == 1000
    assert _market(ExperimentSettings(backbones=("dcnv2", "fnn"), batch_size=64)).backbone == "dcnv2"


def test_a_small_experiment(execution, monkeypatch):
    monkeypatch.setattr(ab_test, "_LEAST_REQUESTS", 100)
    monkeypatch.setattr(ab_test, "PAIRS", (("efd", "efd"), ("efd", "daes-gate")))
    settings = ExperimentSettings(rows=900, seeds=1, backbones=("fnn",), batch_size=100)
    found, markdown, verdict = run_and_show("ab-test", settings, None, execution)
    assert list(found["experiments"]) == ["A/A: EFD against itself", "DAES gate against EFD"]
    assert found["market"]["requests_per_day"] == 100
    for one in found["experiments"].values():
        assert len(one["seeds"]) == 1
        assert one["seeds"][0]["requests"] == 700
    assert "Simulated" in markdown
    assert "+2.307 %" in verdict


def revenue(spread, seeds, nothing=0.0):
    """Lifts of 2 % by so many seeds, the first and the last of them this far apart; another lift in the A/A test."""
    lifts = {
        "A/A: EFD against itself": nothing,
        "DAES gate against EFD": 0.02,
        "DAES gate against LD": 0.02,
        "daes (our preset) against EFD": 0.02,
    }
    around = [spread * (seed / max(seeds - 1, 1) - 0.5) for seed in range(seeds)]
    found = {
        "experiments": {
            title: {"seeds": [a_seed(2 * (lift + step)) for step in around]} for title, lift in lifts.items()
        }
    }
    result = make_result("ab-test", found, ExperimentSettings(seeds=seeds))
    return *EXPERIMENTS["ab-test"].judge(result), EXPERIMENTS["ab-test"].verdict(result)


def test_revenue_is_judged_by_three_seeds_or_more():
    parts, sentence, verdict = revenue(0.01, 3)
    assert parts == [True, True]
    assert sentence.endswith("DAES gate is +2.0 % against EFD and +2.0 % against LD, 0.0 % in the A/A test.")
    assert verdict.count("more than in the A/A test") == 3
    assert revenue(0.2, 3)[0] == [False, False]
    parts, sentence, verdict = revenue(0.01, 2)
    assert parts == []
    assert sentence.endswith("(too few seeds to judge).")
    assert verdict.count("not judged with so few seeds") == 3


def test_what_the_a_a_test_shows_as_well_is_nothing():
    parts, _, verdict = revenue(0.01, 3, nothing=0.019)
    assert parts == [False, False]
    assert verdict.count("not distinguishable from the A/A test") == 3
