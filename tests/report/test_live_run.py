"""The live page of a run: in progress, finished, and before its first record."""

import json
import shutil

import pytest

from daes.report.live_run import training_view
from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.run import train_run


def test_a_run_in_progress_and_when_it_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr("daes.training.results._LEAST_SECONDS", 0.0)
    monkeypatch.setattr("daes.training.results._LARGEST_SHARE", 1e9)
    folder, views = tmp_path / "run", []

    def look(trainer, record):
        views.append(training_view(folder))

    train_run(
        Dataset.open("adstream:9000", limit=6000),
        folder,
        model={"backbone": "fnn"},
        config=TrainConfig(batch_size=500, window=1000, record_every=1000),
        on_record=[look],
        prefetch=0,
    )
    first, last = views[0], views[4]
    assert first["lead"] == "daes with fnn on adstream; training."
    assert dict(first["facts"])["rows"] == "1,000 of 6,000"
    assert dict(last["facts"])["rows"] == "5,000 of 6,000"
    charts = {chart["id"]: chart for section in last["sections"] for chart in section.get("charts", ())}
    assert set(charts) == {"auc", "logloss", "clicks", "speed", "reliability"}
    assert charts["auc"]["x"] == [1000.0, 2000.0, 3000.0, 4000.0, 5000.0]
    assert all(len(series["values"]) == 5 for series in charts["auc"]["series"])
    assert [table["columns"][0] for table in last["sections"][-1]["tables"]] == ["number", "category"]

    finished = training_view(folder)
    assert not (folder / "progress.json").exists()
    assert finished["lead"].endswith("; finished.")
    assert [section["id"] for section in finished["sections"]] == [section["id"] for section in last["sections"]]
    json.dumps(finished, allow_nan=False)


def test_metrics_are_shown_once_they_have_settled(gate_run, tmp_path):
    run = RunFolder(shutil.copytree(gate_run, tmp_path / "run"))
    rows = list(range(100, 4_001, 100))
    run.write("history", {"rows": rows, "auc": [0.1] * 3 + [0.7] * 37, "window_auc": [0.2] * 3 + [0.8] * 37})
    chart, _ = training_view(run.path)["sections"][0]["charts"]
    assert chart["x"] == rows[3:]
    assert [series["values"] for series in chart["series"]] == [[0.8] * 37, [0.7] * 37]
    assert chart["caption"].endswith("The first tenth of the rows is left out.")


def test_before_the_first_record_and_long_after_the_last(gate_run, tmp_path):
    folder = shutil.copytree(gate_run, tmp_path / "run")
    for name in ("metrics", "history", "monitor"):
        (folder / f"{name}.json").unlink()
    assert training_view(folder)["lead"].endswith("; nothing is recorded yet.")
    assert training_view(folder)["sections"] == []
    run = RunFolder(gate_run)
    progress = {**run.read("metrics"), "history": run.read("history"), "monitor": run.read("monitor"), "time": 0}
    RunFolder(folder).write("progress", progress)
    assert "it may have ended" in training_view(folder)["lead"]


def test_a_run_that_replaces_another_is_shown(gate_run, tmp_path):
    folder = shutil.copytree(gate_run, tmp_path / "run")
    shutil.copytree(gate_run, folder / "replacement")
    (folder / "replacement" / "metrics.json").unlink()
    assert training_view(folder)["lead"].endswith("; nothing is recorded yet.")


def test_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run in"):
        training_view(tmp_path)
