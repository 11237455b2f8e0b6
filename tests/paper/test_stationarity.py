import numpy as np
import pytest

from daes.paper import DataSet, Settings
from daes.paper.stationarity import daily_repetition

from .conftest import run_and_show


def test_daily_repetition_of_noise_is_within_chance():
    rng = np.random.default_rng(0)
    above = [one > chance for one, chance in (daily_repetition(rng.normal(size=500), 71.4) for _ in range(400))]
    assert np.mean(above) == pytest.approx(0.05, abs=0.035)
    assert np.isnan(daily_repetition(np.zeros(100), 10.0)[0])


def test_a_file_without_drift_shows_chance_and_no_more(criteo, means):
    found, markdown, verdict = run_and_show("stationarity", Settings(), criteo, means)
    (profile,) = found["profiles"]  # 3000 rows are too few for a thousand segments
    assert profile["segments"] == 100
    assert profile["segments_a_day"] == pytest.approx(100 / 7, rel=1e-4)
    assert list(profile["series"]) == ["I3", "I5", "I13"]
    assert len(profile["features"]) == 13
    features = profile["features"].values()
    # One segment is the reference of all others, so a feature's median strays; their mean does not.
    assert np.mean([one["ks"] / one["ks_by_chance"] for one in features]) == pytest.approx(1, abs=0.2)
    for one in features:
        assert one["missing"] == pytest.approx(0.1, abs=0.03)
    assert "I13" in markdown
    assert "of 13 features" in verdict


def test_the_simulated_stream_drifts(means):
    found, _, verdict = run_and_show("stationarity", Settings(rows=60_000), DataSet("adstream:60000"), means)
    assert [profile["segments"] for profile in found["profiles"]] == [1000, 100]
    features = found["profiles"][1]["features"].values()
    assert sum(one["psi"] > 2 * one["psi_by_chance"] for one in features) > 3
    assert "twice" in verdict


def test_too_few_rows_are_an_error(criteo, means):
    with pytest.raises(ValueError, match="must have 2000 rows or more, however: 500"):
        run_and_show("stationarity", Settings(rows=500), criteo, means)
