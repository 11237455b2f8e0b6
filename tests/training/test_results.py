"""The file of a run in progress: written rarely, gone at the end, never the end of training."""

from types import SimpleNamespace

import pytest

from daes.model import CTRModel
from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
from daes.training import results
from daes.training.config import TrainConfig
from daes.training.run import train_run


def run_with(folder, look):
    train_run(
        Dataset.open("adstream:5000"),
        folder,
        model={"backbone": "lr"},
        config=TrainConfig(batch_size=500, window=1000, record_every=500),
        on_record=[lambda trainer, record: look(trainer)],
        prefetch=0,
    )


@pytest.mark.parametrize(("live", "written"), [(False, [5, 9]), (True, [1, 5, 9])])
def test_it_is_written_every_two_seconds_at_most(live, written, tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(results, "time", SimpleNamespace(time=lambda: 0.0, monotonic=lambda: clock[0]))
    init, contents = results.RunResults.__init__, []

    def begin(self, data, *arguments):
        with monkeypatch.context() as context:
            context.setattr(Dataset, "is_live", live)
            init(self, data, *arguments)

    def look(trainer):
        path = tmp_path / "run" / "progress.json"
        contents.append(RunFolder(tmp_path / "run").read("progress") if path.exists() else None)
        clock[0] += 0.5

    monkeypatch.setattr(results.RunResults, "__init__", begin)
    run_with(tmp_path / "run", look)
    last = [max([one for one in written if one <= record], default=0) for record in range(1, 11)]
    assert [0 if one is None else one["rows"] / 500 for one in contents] == last
    first = contents[written[0] - 1]
    assert first["metrics"]["rows"] == 500 * written[0]
    assert {"reliability", "history", "monitor", "seconds", "time"} <= first.keys()
    assert not (tmp_path / "run" / "progress.json").exists()


def test_a_full_disk_does_not_end_training(tmp_path, monkeypatch, caplog):
    write = RunFolder.write

    def fail(self, name, content):
        if name == "progress":
            raise OSError(28, "No space left on device")
        write(self, name, content)

    monkeypatch.setattr(RunFolder, "write", fail)
    monkeypatch.setattr(results, "_LEAST_SECONDS", 0.0)
    run_with(tmp_path / "run", lambda trainer: None)
    assert RunFolder(tmp_path / "run").read("metrics")["rows"] == 5000
    assert "progress.json could not be written: [Errno 28]" in caplog.text


def test_a_run_that_is_killed_leaves_it_to_be_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "_LEAST_SECONDS", 0.0)

    def die(trainer):
        if trainer.rows == 2500:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run_with(tmp_path / "run", die)
    assert (tmp_path / "run" / "progress.json").exists()
    run_again = {"model": {"backbone": "lr"}, "overwrite": True, "prefetch": 0}
    train_run(Dataset.open("adstream:1000"), tmp_path / "run", config=TrainConfig(batch_size=500), **run_again)
    assert not (tmp_path / "run" / "progress.json").exists()


@pytest.mark.parametrize(("window", "reference"), [(100, 1000), (2000, 2000), (50_000, 10_000)])
def test_drift_is_measured_against_the_start_of_a_short_stream(window, reference):
    data = Dataset.open("adstream:5000")
    model = CTRModel(data.schema, "fe", "lr", sizes=10)
    assert results.RunResults(data, model, window).monitor.reference_rows == reference
