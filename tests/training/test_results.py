"""The file of a run in progress: written rarely, gone at the end, never the end of training."""

import pytest

from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
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


def test_it_is_written_every_two_seconds_at_most(tmp_path):
    stamps, contents = set(), []

    def look(trainer):
        path = tmp_path / "run" / "progress.json"
        stamps.add(path.stat().st_mtime_ns)
        contents.append(RunFolder(tmp_path / "run").read("progress"))

    run_with(tmp_path / "run", look)
    assert len(stamps) <= 3 < len(contents) == 10
    assert contents[0]["rows"] == 500
    assert contents[0]["metrics"]["rows"] == 500
    assert {"reliability", "history", "monitor", "seconds", "time"} <= contents[0].keys()
    assert not (tmp_path / "run" / "progress.json").exists()


def test_a_full_disk_does_not_end_training(tmp_path, monkeypatch, caplog):
    write = RunFolder.write

    def fail(self, name, content):
        if name == "progress":
            raise OSError(28, "No space left on device")
        write(self, name, content)

    monkeypatch.setattr(RunFolder, "write", fail)
    run_with(tmp_path / "run", lambda trainer: None)
    assert RunFolder(tmp_path / "run").read("metrics")["rows"] == 5000
    assert "progress.json could not be written: [Errno 28]" in caplog.text


def test_a_run_that_is_killed_leaves_it_to_be_replaced(tmp_path):
    def die(trainer):
        if trainer.rows == 2500:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run_with(tmp_path / "run", die)
    assert (tmp_path / "run" / "progress.json").exists()
    run_again = {"model": {"backbone": "lr"}, "overwrite": True, "prefetch": 0}
    train_run(Dataset.open("adstream:1000"), tmp_path / "run", config=TrainConfig(batch_size=500), **run_again)
    assert not (tmp_path / "run" / "progress.json").exists()
