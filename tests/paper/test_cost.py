import pytest

from daes.paper import DataSet, Settings
from daes.paper.cost import change

from .conftest import run_and_show


def test_speeds_of_training_and_scoring(means, monkeypatch):
    monkeypatch.setattr("daes.paper.cost.RESERVOIR_SIZE", 1000)
    settings = Settings(rows=1000, seeds=1, batch_size=500, methods=("efd", "daes-gate"), backbones=("fnn",))
    found, markdown, verdict = run_and_show("cost", settings, DataSet("adstream:1000"), means)
    assert found["repeats"] == 4
    for speeds in found["speeds"].values():
        assert {job: len(values) for job, values in speeds.items()} == {"train": 4, "score": 4, "score_small": 4}
        assert min(min(values) for values in speeds.values()) > 0
    assert found["parameters"]["daes-gate"] > found["parameters"]["efd"]
    assert "rows/s" in markdown
    assert "-1.8 %" in verdict


def test_change_is_the_median_of_ratios_within_a_repeat():
    found = {"baseline": "efd", "speeds": {"efd": {"train": [100, 50, 10]}, "daes": {"train": [90, 50, 11]}}}
    assert change(found, "daes", "train") == pytest.approx((0.0, -0.05, 0.05))
