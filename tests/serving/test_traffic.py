"""What is counted about requests, and for how long."""

import numpy as np
import pytest

from daes.serving import traffic as module
from daes.serving.traffic import LATENCIES, Traffic, UnknownRequest, percentile


def test_percentiles_of_latencies(monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    traffic = Traffic()
    latencies = np.random.default_rng(0).lognormal(-6, 1, 2000)
    for seconds in latencies:
        traffic.request(200, seconds, rows=3)
    now += 1
    found = traffic.snapshot()
    assert (found["requests"], found["rows"]) == (2000, 6000)
    for level, seconds in ((50, found["latency"]["p50"]), (99, found["latency"]["p99"])):
        exact = np.percentile(latencies, level)
        assert exact / 1.25 <= seconds <= exact * 1.3
    assert found["rows_per_second"] == 100
    assert found["series"]["requests"][-1] == 2000


def test_seconds_that_pass_are_forgotten(monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    traffic = Traffic()
    traffic.request(200, 0.001, 1)
    traffic.request(503, 0.001, 0)
    now += 10
    series = traffic.snapshot()["series"]
    assert (sum(series["requests"]), sum(series["errors"]), series["requests"][-10]) == (2, 1, 2)
    now += 10_000
    assert sum(traffic.snapshot()["series"]["requests"]) == 0
    assert traffic.snapshot()["by_status"] == {"200": 1, "503": 1}


def test_percentile_of_nothing_and_of_the_slowest():
    counts = np.zeros(len(LATENCIES) + 1, np.int64)
    assert percentile(counts, 50) is None
    counts[-1] = 1
    assert percentile(counts, 50) == LATENCIES[-1]


def test_scores_are_those_of_the_last_rows():
    traffic = Traffic()
    traffic.scored(np.full(9_000, 0.9))
    traffic.scored(np.full(6_000, 0.1))
    traffic.scored(np.full(6_000, 0.2))
    scores = traffic.snapshot()["scores"]
    assert sum(scores["counts"]) == 10_000
    assert scores["mean"] == pytest.approx(0.16)


def test_labels_come_back():
    traffic = Traffic(remembered=10)
    traffic.remember("a", np.array([0.2, 0.4, 0.9]))
    assert traffic.label("a", [0, None, 1]) == 2
    assert traffic.snapshot()["labels"]["metrics"]["auc"] == 1.0
    with pytest.raises(UnknownRequest):
        traffic.label("a", [0, 0, 0])
    for number in range(8):
        traffic.remember(str(number), np.full(4, 0.5))
    with pytest.raises(UnknownRequest):
        traffic.label("5", [0] * 4)
    with pytest.raises(ValueError, match="one entry for each of 4 rows, got 3"):
        traffic.label("7", [0, 0, 0])
    traffic.remember("7", np.full(2, 0.5))
    assert traffic.label("7", [None, None]) == 0
