from dataclasses import replace
from time import monotonic

import pytest

from daes.paper import EXPERIMENTS, ExperimentSettings, OutOfTimeError, cost
from daes.paper.cost import change
from daes.stream.dataset import Dataset

from .conftest import run_and_show


def test_speeds_of_training_and_scoring(execution, monkeypatch):
    monkeypatch.setattr("daes.paper.cost.RESERVOIR_SIZE", 1000)
    settings = ExperimentSettings(rows=1000, seeds=1, batch_size=500, methods=("efd", "daes-gate"), backbones=("fnn",))
    found, markdown, verdict = run_and_show("cost", settings, Dataset.open("adstream:1000"), execution)
    assert found["repeats"] == 4
    for speeds in found["speeds"].values():
        assert {job: len(values) for job, values in speeds.items()} == {"train": 4, "score": 4, "score_small": 4}
        assert min(min(values) for values in speeds.values()) > 0
    assert found["parameters"]["daes-gate"] > found["parameters"]["efd"]
    assert "rows/s" in markdown
    assert "−1.8 %" in markdown
    assert "Throughput against EFD on CPU: DAES gate" in verdict


def test_repeats_that_are_done_are_kept(execution, monkeypatch):
    monkeypatch.setattr("daes.paper.cost.RESERVOIR_SIZE", 1000)
    settings = ExperimentSettings(rows=500, seeds=1, batch_size=250, methods=("efd", "ple"), backbones=("fnn",))
    measured = []
    measure = cost._measure

    def stopped(learners, batches, small, repeat, device):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(repeat)
        return measure(learners, batches, small, repeat, device)

    monkeypatch.setattr(cost, "_measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        EXPERIMENTS["cost"].run(settings, Dataset.open("adstream:500"), execution)
    assert measured == [0, 1, 2]
    measured.clear()
    found = EXPERIMENTS["cost"].run(settings, Dataset.open("adstream:500"), replace(execution, resume=True, jobs=2))
    assert measured == [3]
    assert [len(values) for values in found["speeds"]["ple"].values()] == [4, 4, 4]


def test_past_the_deadline_what_is_done_is_kept(execution, monkeypatch):
    monkeypatch.setattr("daes.paper.cost.RESERVOIR_SIZE", 1000)
    settings = ExperimentSettings(rows=500, seeds=1, batch_size=250, methods=("efd",), backbones=("fnn",))
    with pytest.raises(OutOfTimeError, match="0 of 4"):
        EXPERIMENTS["cost"].run(settings, Dataset.open("adstream:500"), replace(execution, deadline=monotonic()))


def test_too_few_rows_are_an_error(execution):
    with pytest.raises(ValueError, match="adstream:100 must have 128 rows or more, got 100"):
        EXPERIMENTS["cost"].run(ExperimentSettings(methods=("efd",)), Dataset.open("adstream:100"), execution)


def test_change_is_the_median_of_ratios_within_a_repeat():
    found = {"baseline": "efd", "speeds": {"efd": {"train": [100, 50, 10]}, "daes": {"train": [90, 50, 11]}}}
    assert change(found, "daes", "train") == pytest.approx((0.0, -0.05, 0.05))
