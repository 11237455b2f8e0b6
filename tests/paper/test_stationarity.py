import numpy as np
import pytest

from daes.distribution import drift_profile
from daes.paper import EXPERIMENTS, ExperimentSettings, figures
from daes.paper.stationarity import _shuffled, _summary, daily_repetition
from daes.stream.dataset import Dataset

from .conftest import make_result, run_and_show


def false_alarms(make, per_day=71.4, runs=200):
    rng = np.random.default_rng(0)
    found = [daily_repetition(make(rng), per_day) for _ in range(runs)]
    return np.mean([one > by_chance for one, by_chance in found])


def autoregressive(rng, memory, length=500):
    series = np.zeros(length)
    for place, step in enumerate(rng.normal(size=length - 1), start=1):
        series[place] = memory * series[place - 1] + step
    return series


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: rng.normal(size=500),
        lambda rng: autoregressive(rng, 0.9),
        lambda rng: np.cumsum(rng.normal(size=500)),
        lambda rng: np.linspace(0, 20, 500) + rng.normal(size=500),
    ],
    ids=["noise", "autoregressive", "random walk", "trend"],
)
def test_what_has_no_period_is_not_said_to_have_one(make):
    assert false_alarms(make) < 0.08  # 1 to 5 % over many runs


def test_a_period_is_found_under_a_trend_and_noise():
    day = np.sin(np.arange(500) * 2 * np.pi / 71.4)
    assert false_alarms(lambda rng: 2 * day + np.linspace(0, 20, 500) + rng.normal(size=500), runs=40) > 0.95


def test_daily_repetition_with_gaps_and_without_anything():
    rng = np.random.default_rng(1)
    wave = np.sin(np.arange(400) * 2 * np.pi / 40)
    wave[rng.random(400) < 0.2] = np.nan
    found, by_chance = daily_repetition(wave, 40.0)
    assert found > 0.9 > by_chance
    for nothing in (np.zeros(400), np.full(400, 0.3), np.full(400, np.nan), np.arange(20.0)):
        assert np.isnan(daily_repetition(nothing, 40.0)).all()


def test_a_file_without_drift_shows_chance_and_no_more(criteo, execution):
    found, markdown, verdict = run_and_show("stationarity", ExperimentSettings(), criteo, execution)
    (profile,) = found["profiles"]  # 3000 rows are too few for a thousand segments
    assert profile["segments"] == 100
    assert profile["segments_a_day"] == pytest.approx(100 / 7, rel=1e-4)
    assert list(profile["series"]) == ["I3", "I5", "I13"]
    assert len(profile["features"]) == 13
    features = profile["features"].values()
    # One segment is the reference of all others, so a feature's median strays; their mean does not.
    for measure in ("psi", "ks"):
        ratios = [one[measure] / one[f"{measure}_by_chance"] for one in features]
        assert np.mean(ratios) == pytest.approx(1, abs=0.25)
        # One in twenty lies above all of its shuffles: of 13 hardly ever four.
        assert sum(one[measure] > one[f"{measure}_by_chance_largest"] for one in features) < 4
    assert np.mean([one["above_chance"] for one in features]) == pytest.approx(0.05, abs=0.06)
    for one in features:
        assert one["missing"] == pytest.approx(0.1, abs=0.03)
    assert "I13" in markdown
    assert "1000 segments are left out: with 3,000 rows each would have 3, fewer than the minimum of 20." in markdown
    assert "of 13 features" in verdict
    assert "The paper's 1000 segments have 3 rows each here" in verdict


def test_chance_of_tied_values_is_that_of_their_shuffles():
    rng = np.random.default_rng(0)
    tied = rng.choice([0.0, 1.0], p=[0.97, 0.03], size=20_000)
    profile = drift_profile(tied, 100)
    found = _summary(profile, _shuffled(tied, 100, seed=0), None)
    # The mean of Kolmogorov's law is for values that do not tie: far off here.
    assert np.median(profile.ks_by_chance[1:]) > 3 * found["ks_by_chance"]
    fresh = [np.median(drift_profile(rng.permutation(tied), 100).ks[1:]) for _ in range(40)]
    assert found["ks_by_chance"] == pytest.approx(np.mean(fresh), abs=5 * np.std(fresh) / np.sqrt(19))


def test_missing_values_stay_where_they_are_when_shuffled():
    values = np.arange(200.0)
    values[50:90] = np.nan
    for profile in _shuffled(values, 10, seed=0):
        assert list(profile.counts) == list(drift_profile(values, 10).counts)


def test_the_simulated_stream_drifts(execution, monkeypatch):
    monkeypatch.setattr("daes.paper.stationarity.SHUFFLES", 4)
    found, _, verdict = run_and_show(
        "stationarity", ExperimentSettings(rows=60_000), Dataset.open("adstream:60000"), execution
    )
    assert [profile["segments"] for profile in found["profiles"]] == [1000, 100]
    features = found["profiles"][1]["features"].values()
    assert sum(one["psi"] > 2 * one["psi_by_chance"] for one in features) > 3
    assert verdict.startswith("- Over 100 segments")
    assert "The paper's 1000 segments have 60 rows each here" in verdict
    # With a thousand rows in each of them, it is judged by the paper's number of segments.
    longer = make_result("stationarity", {**found, "rows": 1_000_000}, ExperimentSettings(), "adstream")
    assert EXPERIMENTS["stationarity"].verdict(longer).startswith("- Over 1000 segments")
    assert "here; below" not in EXPERIMENTS["stationarity"].verdict(longer)


def profile(drifting, repeating, number=4, dated=True):
    features = {}
    for place in range(number):
        psi = 0.5 if place < drifting else 0.1
        features[f"f{place}"] = {"psi": psi, "psi_by_chance": 0.1, "psi_by_chance_largest": 0.2}
        if dated:
            features[f"f{place}"] |= {"daily": 0.9 if place < repeating else 0.1, "daily_by_chance": 0.3}
    found = {"rows": 100_000, "shuffles": 19, "profiles": [{"segments": 100, "features": features}]}
    return make_result("stationarity", found, ExperimentSettings(), "adstream")


@pytest.mark.parametrize(
    ("drifting", "repeating", "parts"), [(3, 3, (True, True)), (3, 2, (True, False)), (2, 1, (False, False))]
)
def test_most_features_must_drift_and_repeat(drifting, repeating, parts):
    judged, sentence = EXPERIMENTS["stationarity"].judge(profile(drifting, repeating))
    assert judged == parts
    assert sentence == (f"{drifting} of 4 features drift, over 100 segments; {repeating} of 4 repeat from day to day.")


def test_what_cannot_be_seen_is_not_confirmed():
    judged, sentence = EXPERIMENTS["stationarity"].judge(profile(4, 0, dated=False))
    assert judged == (True, False)
    assert "too long to show days" in sentence


def test_the_verdict_names_the_few():
    verdict = EXPERIMENTS["stationarity"].verdict(profile(3, 1))
    assert "3 of 4 features is above that of all 19 shuffles (all but f3)" in verdict
    assert "1 of 4 repeat from day to day (f0)." in verdict
    assert "for 3 it is more than twice what chance gives." in verdict


def test_segments_beyond_the_axis_are_marked(criteo, execution):
    found, _, _ = run_and_show("stationarity", ExperimentSettings(), criteo, execution)
    found["profiles"][0]["series"]["I3"]["psi"][40] = 50.0
    with figures.style():
        figure = EXPERIMENTS["stationarity"].draw(make_result("stationarity", found, ExperimentSettings(), criteo.what))
    panel = figure.axes[0]
    assert panel.get_ylim()[1] < 50
    (marks,) = [line for line in panel.lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert marks.get_xdata()[0] == pytest.approx(40.5 * 7 / 100, rel=1e-4)
    assert any(text.get_text() == "beyond the axis" for text in figure.legends[0].get_texts())


def test_too_few_rows_are_an_error(criteo, execution):
    with pytest.raises(ValueError, match="must have 2000 rows or more, got 500"):
        run_and_show("stationarity", ExperimentSettings(rows=500), criteo, execution)
