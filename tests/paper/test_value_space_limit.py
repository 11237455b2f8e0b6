import numpy as np
import pytest

from daes.paper import EXPERIMENTS, ExperimentSettings
from daes.paper.result import settings_of
from daes.paper.value_space_limit import mistaken_share

from .conftest import make_result, run_and_show


def slow_share(values, buckets):
    knots = np.quantile(values, np.arange(buckets + 1) / buckets, method="inverted_cdf")
    mistaken = 0
    for value in values:
        bucket = min(max(np.searchsorted(knots, value, side="right") - 1, 0), buckets - 1)
        others = np.delete(np.abs(value - knots), [bucket, bucket + 1])
        mistaken += others.min() < max(abs(value - knots[bucket]), abs(value - knots[bucket + 1]))
    return mistaken / len(values)


def test_share_against_a_loop():
    values = np.random.default_rng(0).lognormal(0, 2, 500)
    assert mistaken_share(values, 10) == slow_share(values, 10)


def test_the_papers_example(execution):
    found, markdown, verdict = run_and_show("value-space-limit", ExperimentSettings(rows=5000), None, execution)
    assert found["distances"] == [95, 5, 10]
    assert (found["bucket"], found["nearest"], found["coordinate"]) == (0, [1, 2], 0.95)
    assert found["mistaken"]["uniform"] < 0.05 < found["mistaken"]["lognormal, σ = 2"]
    assert "bucket A" in markdown
    assert "q2 and q3; x lies in bucket A" in markdown
    assert "are not the ends of its bucket" in verdict
    assert "grows with the tail" not in EXPERIMENTS["value-space-limit"].differs


def test_an_example_that_fails_is_said_to(execution):
    found, _, _ = run_and_show("value-space-limit", ExperimentSettings(rows=500), None, execution)
    other = make_result("value-space-limit", {**found, "nearest": [0, 1]}, ExperimentSettings(rows=500))
    assert "are the ends of its bucket" in EXPERIMENTS["value-space-limit"].verdict(other)


def test_seeds_are_not_recorded_where_nothing_is_repeated():
    assert settings_of(EXPERIMENTS["value-space-limit"], ExperimentSettings()) == {"rows": None}
    assert settings_of(EXPERIMENTS["stationarity"], ExperimentSettings()) == {"rows": None}


def test_too_few_values_are_an_error(execution):
    with pytest.raises(ValueError, match="rows must be 100 or more, got 99"):
        run_and_show("value-space-limit", ExperimentSettings(rows=99), None, execution)
