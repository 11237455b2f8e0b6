"""Runs of several processes: one folder, killed, resumed by more and by fewer, every row exactly once."""

import signal
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from daes.embedding import CategoricalEmbedding, DividedEmbedding
from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.run import train_run

ROWS = 470
CONFIG = TrainConfig(batch_size=20, window=100, sync_every=40, checkpoint_every=40)
MODEL = {
    **{"backbone": "fnn", "dim": 4, "categorical_options": {"mode": "vocabulary", "min_count": 2}},
    "evidence": {"recent": 10.0},  # less than a step, so that scores wait to be exchanged
}


def _run(rank, path, folder, config=CONFIG, callbacks=(), **options):
    run = train_run(
        Dataset.open(path, bad_rows="skip"), folder, model=MODEL, config=config, callbacks=callbacks, **options
    )
    return run.result.metrics, run.resumed_at, run.bad_rows.count


def _state(folder):
    return CheckpointStore(RunFolder(folder).checkpoints).load().state


def _counted(folder):
    """What says which rows were taken in, how often, and in which order."""
    state = _state(folder)
    model = state["step"]["model"]
    names = ("slots", "count", "skipped")
    statistics = [model[f"numerical.distributions.{name}"] for name in names]
    statistics += [model["categorical.vocabulary.keys"], model["evidence.total"], model["evidence.sample.seen"]]
    return (
        state["rows"],
        state["extra"]["consumed"]["checksums"],
        [np.asarray(values).tolist() for values in statistics],
    )


def test_resumed_by_other_numbers_of_processes(clicks, in_processes, kill_at_a_checkpoint, tmp_path):
    """Two processes, one of which is killed; then three, which are stopped; then one: as one process alone."""
    _run(0, clicks, tmp_path / "alone")
    folder = tmp_path / "run"

    first, second = in_processes(2, _run, clicks, folder, may_fail=True, meanwhile=kill_at_a_checkpoint(folder))
    assert second.exit_code == -signal.SIGKILL
    assert "LostProcessError: process 0 of 2 has lost another one" in first.error
    assert 0 < _state(folder)["rows"] < ROWS
    stopped = in_processes(3, _stop, clicks, folder, may_fail=True)
    assert all("TrainingStopped: stopped by SIGTERM" in one.error for one in stopped)
    resumed_at = _state(folder)["rows"]
    assert 200 <= resumed_at < ROWS
    metrics, found, _ = _run(0, clicks, folder, resume=True)
    assert found == resumed_at
    assert metrics["rows"] == ROWS
    assert _counted(folder) == _counted(tmp_path / "alone")
    assert RunFolder(folder).read("config")["run"]["world_size"] == 2
    assert RunFolder(folder).read("metrics")["world_size"] == 1


def _stop(rank, path, folder, config=CONFIG):
    def stop(trainer, batch, logits):
        if trainer.rows >= 200:
            trainer.stop(signal.SIGTERM)

    return _run(rank, path, folder, config, callbacks=[stop], resume=True)


def test_rows_that_one_process_has_scored_are_evaluated_once_by_several(clicks, in_processes, tmp_path):
    config = replace(CONFIG, record_every=150)
    with pytest.raises(KeyboardInterrupt):
        _stop(0, clicks, tmp_path / "run", config)
    assert len(_state(tmp_path / "run")["unmeasured"]) == 2  # batches that are not in the metrics yet
    one, other = in_processes(2, _resume, clicks, tmp_path / "run", config)
    assert one == other
    assert one[0]["rows"] == ROWS


def _resume(rank, path, folder, config):
    return _run(rank, path, folder, config, resume=True)


def _interrupted(rank, path, folder):
    try:
        _stop(rank, path, folder)
    except KeyboardInterrupt:
        return _run(rank, path, folder, resume=True)


def test_bits_of_an_uninterrupted_run(clicks, in_processes, tmp_path):
    whole = in_processes(2, _run, clicks, tmp_path / "whole")
    parts = in_processes(2, _interrupted, clicks, tmp_path / "parts")
    assert [one[0] for one in whole] == [one[0] for one in parts]
    assert parts[0][1] is not None
    expected, found = (_state(tmp_path / name)["step"]["model"] for name in ("whole", "parts"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True)
    assert RunFolder(tmp_path / "whole").read("metrics")["world_size"] == 2


def test_a_finished_run_that_is_resumed_keeps_its_random_states(clicks, in_processes, tmp_path):
    """Rows that are added to the data later are then learned from with the same dropout."""
    in_processes(2, _run, clicks, tmp_path / "run")
    before = _state(tmp_path / "run")
    in_processes(2, _resume, clicks, tmp_path / "run", CONFIG)
    after = _state(tmp_path / "run")
    assert len(before["random_of_processes"]) == 2
    assert len(after["random_of_processes"]) == 2
    for one, other in zip(before["random_of_processes"], after["random_of_processes"], strict=True):
        assert torch.equal(one["cpu"], other["cpu"])


def _fail_to_write(rank, path, folder):
    def report(folder):
        raise OSError(28, "No space left on device", "report.html")

    try:
        return _run(rank, path, folder, report=report)
    except Exception as error:
        time.sleep(1)  # the first process need not end for the others to be told
        return f"{type(error).__name__}: {error}"


def test_results_that_cannot_be_written_are_said_once(clicks, in_processes, tmp_path):
    first, second = in_processes(2, _fail_to_write, clicks, tmp_path / "run")
    assert first == "OSError: [Errno 28] No space left on device: 'report.html'"
    assert second == "OtherProcessError: process 0 has failed: its output says why"


def _in_memory(rank, path, folder):
    train_run(Dataset.open(pq.read_table(path)), folder, model=MODEL, config=CONFIG)


def test_reading_together_changes_nothing(clicks, in_processes, tmp_path, monkeypatch):
    monkeypatch.setattr("daes.training.processes.reading._ROWS_AT_ONCE", 100)
    in_processes(2, _run, clicks, tmp_path / "files")
    in_processes(2, _in_memory, clicks, tmp_path / "memory")  # where every process has all rows
    files, memory = (_state(tmp_path / name) for name in ("files", "memory"))
    for name, tensor in memory["step"]["model"].items():
        torch.testing.assert_close(files["step"]["model"][name], tensor, rtol=0, atol=0, equal_nan=True)
    assert _counted(tmp_path / "files") == _counted(tmp_path / "memory")
    assert files["position"] == {"row": ROWS}


def _differ(rank, clicks, folder):
    return _run(rank, clicks, folder, TrainConfig(batch_size=20, seed=rank, window=100))


def _other_file(rank, clicks, folder):
    return _run(rank, clicks if rank == 0 else clicks.parent / "less.parquet", folder)


def test_different_starts_are_refused(clicks, in_processes, tmp_path):
    pq.write_table(pq.read_table(clicks).slice(0, 460), clicks.parent / "less.parquet")
    for function, sentence in (
        (_differ, "training.seed is 0 in process 0 and 1 in process 1"),
        (_other_file, "data.name is 'clicks.parquet' in process 0 and 'less.parquet' in process 1"),
    ):
        for outcome in in_processes(2, function, clicks, tmp_path / "run", may_fail=True):
            assert "all processes need the same data and options" in outcome.error
            assert sentence in outcome.error
        assert not (tmp_path / "run").exists()


def _at(rank, folders, out):
    return _run(rank, folders[rank] / "clicks.parquet", out)


@pytest.fixture
def twins(clicks, tmp_path):
    """A function that makes folders with files of one size and name, given the label of the last row of each."""

    def make(*labels):
        for number, label in enumerate(labels):
            table, folder = pq.read_table(clicks), tmp_path / str(number)
            folder.mkdir()
            clicked = pa.array([*table["click"].to_pylist()[:-1], label], pa.int8())
            table = table.set_column(0, "click", clicked)
            pq.write_table(table, folder / "clicks.parquet", use_dictionary=False, compression="none")
        return [tmp_path / str(number) for number in range(len(labels))]

    return make


def test_files_may_have_another_path_in_another_process(twins, in_processes, tmp_path):
    folders = twins(1, 1)
    in_processes(2, _at, folders, tmp_path / "run")
    assert RunFolder(tmp_path / "run").read("config")["data"]["what"] == str(folders[0] / "clicks.parquet")


def test_other_rows_in_another_process_are_noticed(twins, in_processes, tmp_path):
    for outcome in in_processes(2, _at, twins(0, 1), tmp_path / "run", may_fail=True):
        assert "ProcessesDisagreeError: processes 0 and 1 do not read the same data: they have other" in outcome.error


def _divided_in_one(rank, clicks, folder):
    return _run(rank, clicks, folder, tables=DividedEmbedding if rank else CategoricalEmbedding)


def test_tables_divided_in_some_processes_only_are_refused(clicks, in_processes, tmp_path):
    for outcome in in_processes(2, _divided_in_one, clicks, tmp_path / "run", may_fail=True):
        assert "divided tables is False in process 0 and True in process 1" in outcome.error


def _follow(rank, folder, out):
    return train_run(Dataset.open(folder, follow=True), out, model=MODEL, config=CONFIG)


def test_live_streams_are_refused(clicks, in_processes, tmp_path):
    first, second = in_processes(2, _follow, clicks.parent, tmp_path / "run", may_fail=True)
    assert "ValueError: live streams and labels that come later need one process, got 2" in first.error
    assert "OtherProcessError" in second.error


def test_a_folder_in_use_is_said_once(clicks, in_processes, tmp_path):
    (tmp_path / "file").write_text("not a run")
    first, second = in_processes(2, _run, clicks, tmp_path, may_fail=True)
    assert "RunExistsError" in first.error
    assert "OtherProcessError: process 0 has failed: its output says why" in second.error


def test_bad_rows_of_all_processes(clicks, in_processes, tmp_path):
    table = pq.read_table(clicks).slice(0, 100)
    label = table["click"].to_pylist()
    label[7] = label[27] = label[39] = 5  # of one process, of one process, of the other
    path = tmp_path / "bad.parquet"
    pq.write_table(table.set_column(0, "click", pa.array(label)), path)
    config = TrainConfig(batch_size=20, window=100, bad_batch="skip")
    for metrics, _, bad in in_processes(2, _run, path, tmp_path / "run", config):
        assert (metrics["rows"], bad) == (97.0, 3)
    assert RunFolder(tmp_path / "run").read("metrics")["bad_rows"]["count"] == 3
    assert "bad.parquet,40," in RunFolder(tmp_path / "run").bad_rows.read_text()
