import numpy as np

from daes.paper import Settings
from daes.paper.value_space_limit import mistaken_share

from .conftest import run_and_show


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


def test_the_papers_example(means):
    found, markdown, verdict = run_and_show("value-space-limit", Settings(rows=5000), None, means)
    assert found["distances"] == [95, 5, 10]
    assert (found["bucket"], found["nearest"], found["coordinate"]) == (0, [1, 2], 0.95)
    assert found["mistaken"]["uniform"] < 0.05 < found["mistaken"]["lognormal, σ = 2"]
    assert "bucket A" in markdown
    assert "The example holds" in verdict
