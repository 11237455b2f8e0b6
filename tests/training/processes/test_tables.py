"""Runs with divided tables: as with whole ones, in the same checkpoints and the same saved model."""

import os
import signal
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from daes.embedding import CategoricalEmbedding, DividedEmbedding
from daes.model import CTRModel
from daes.storage import checkpoint
from daes.storage.checkpoint import CheckpointStore, CheckpointWarning
from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.processes import Processes
from daes.training.run import train_run

ROWS = 452
CONFIG = TrainConfig(batch_size=20, window=100, sync_every=40, checkpoint_every=40)
WAITING = {"evidence": {"recent": 10.0}}
"""Recent errors that last for less than a step, so that scores wait to be exchanged."""
VOCABULARY = {"backbone": "fnn", "dim": 4, "categorical_options": {"mode": "vocabulary", "min_count": 2}, **WAITING}
HASH = {"embedding": "daes", "backbone": "deepfm", "dim": 4, **WAITING}


def _run(rank, path, folder, tables=DividedEmbedding, model=HASH, config=CONFIG, callbacks=(), **options):
    run = train_run(
        Dataset.open(path), folder, model=model, config=config, callbacks=callbacks, tables=tables, **options
    )
    return run.result.metrics, run.resumed_at, len(run.result.bad_batches)


def _state(folder):
    return CheckpointStore(RunFolder(folder).checkpoints).load().state


def _compare(folder, other, rtol=1e-4, atol=1e-6):
    found, expected = _state(folder)["step"], _state(other)["step"]
    for name, tensor in expected["model"].items():
        torch.testing.assert_close(found["model"][name], tensor, rtol=rtol, atol=atol, equal_nan=True)
    for one, two in zip(found["optimizers"][0]["sums"], expected["optimizers"][0]["sums"], strict=True):
        torch.testing.assert_close(one, two, rtol=rtol, atol=atol)


def _model_of(folder):
    return CTRModel.from_pretrained(RunFolder(folder).model)


@pytest.mark.parametrize(
    ("world", "model", "config"),
    [
        (2, HASH, CONFIG),
        (2, {**HASH, "context": None}, CONFIG),
        (3, VOCABULARY, CONFIG),
        (3, {**HASH, "backbone_options": {"dropout": 0.1}}, replace(CONFIG, clip_norm=0.2, batch_size=41)),
        (2, HASH, replace(CONFIG, max_norm=0.4, bad_batch="skip")),
    ],
    ids=["hash", "without a context", "vocabulary", "a process without rows", "refused batches"],
)
def test_it_is_the_run_with_whole_tables(clicks, in_processes, tmp_path, world, model, config):
    whole = in_processes(world, _run, clicks, tmp_path / "whole", CategoricalEmbedding, model, config)
    divided = in_processes(world, _run, clicks, tmp_path / "divided", DividedEmbedding, model, config)
    _compare(tmp_path / "divided", tmp_path / "whole")
    for (found, _, bad), (expected, _, bad_of_whole) in zip(divided, whole, strict=True):
        assert found == pytest.approx(expected, rel=1e-4, nan_ok=True)
        assert bad == bad_of_whole
        assert (bad > 2) == (config.max_norm is not None)
    found, expected = (RunFolder(tmp_path / one).read("importance") for one in ("divided", "whole"))
    assert found["logloss"] == pytest.approx(expected["logloss"], rel=1e-4)
    found, expected = (RunFolder(tmp_path / one).read("config") for one in ("divided", "whole"))
    assert (found["model"], found["parameters"]) == (expected["model"], expected["parameters"])
    found, expected = (_model_of(tmp_path / one).state_dict() for one in ("divided", "whole"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, equal_nan=True)


def _stop(rank, path, folder, tables, rows):
    def stop(trainer, batch, logits):
        if trainer.rows >= rows:
            trainer.stop(signal.SIGTERM)

    return _run(rank, path, folder, tables, callbacks=[stop], resume=True)


def test_killed_and_resumed_by_other_numbers_of_processes(
    clicks, in_processes, kill_at_a_checkpoint, tmp_path, monkeypatch
):
    """Two processes with divided tables, one of which is killed; then three; then one with a whole table."""
    monkeypatch.setattr("daes.training.run.MAP_ABOVE", 0)
    folder = tmp_path / "run"

    first, second = in_processes(2, _run, clicks, folder, may_fail=True, meanwhile=kill_at_a_checkpoint(folder))
    assert second.exit_code == -signal.SIGKILL
    assert "LostProcessError: process 0 of 2 has lost another one" in first.error
    assert 0 < _state(folder)["rows"] < ROWS
    stopped = in_processes(3, _stop, clicks, folder, DividedEmbedding, 200, may_fail=True)
    assert all("TrainingStopped: stopped by SIGTERM" in one.error for one in stopped)
    resumed_at = _state(folder)["rows"]
    assert 200 <= resumed_at < ROWS
    metrics, found, _ = _run(0, clicks, folder, CategoricalEmbedding, resume=True)
    assert (found, metrics["rows"]) == (resumed_at, ROWS)


def test_numbers_of_processes_that_change(clicks, in_processes, tmp_path, monkeypatch):
    """Two processes, then three, then one: with divided tables as with whole ones."""
    monkeypatch.setattr("daes.training.run.MAP_ABOVE", 0)
    for name, tables in (("divided", DividedEmbedding), ("whole", CategoricalEmbedding)):
        for world, rows in ((2, 100), (3, 250)):
            stopped = in_processes(world, _stop, clicks, tmp_path / name, tables, rows, may_fail=True)
            assert all("TrainingStopped: stopped by SIGTERM" in one.error for one in stopped)
        _, resumed_at, _ = _run(0, clicks, tmp_path / name, CategoricalEmbedding, resume=True)
        assert 250 <= resumed_at < ROWS
    _compare(tmp_path / "divided", tmp_path / "whole")


def _interrupted(rank, path, folder):
    try:
        _stop(rank, path, folder, DividedEmbedding, 200)
    except KeyboardInterrupt:
        return _run(rank, path, folder, resume=True)


def test_bits_of_an_uninterrupted_run(clicks, in_processes, tmp_path, monkeypatch):
    monkeypatch.setattr("daes.training.run.MAP_ABOVE", 0)
    in_processes(2, _run, clicks, tmp_path / "whole")
    parts = in_processes(2, _interrupted, clicks, tmp_path / "parts")
    assert parts[0][1] >= 200
    _compare(tmp_path / "parts", tmp_path / "whole", rtol=0, atol=0)


def _dies_when_asked(rank, path, folder):
    """The second process is killed within the second checkpoint, with rows of the table given and none of the sums."""
    send, calls = Processes.send, []

    def send_or_die(self, rows, to):
        calls.append(to)
        if rank and len(calls) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        send(self, rows, to)

    Processes.send = send_or_die
    return _run(rank, path, folder)


def test_killed_while_a_checkpoint_is_written(clicks, in_processes, tmp_path):
    first, second = in_processes(2, _dies_when_asked, clicks, tmp_path / "run", may_fail=True)
    assert second.exit_code == -signal.SIGKILL
    assert "LostProcessError: process 0 of 2 has lost another one" in first.error
    folder = RunFolder(tmp_path / "run").checkpoints
    assert [path.suffix for path in folder.iterdir() if path.name != "lock"] == [".safetensors"]
    assert _state(tmp_path / "run")["rows"] == 40
    in_processes(2, _run, clicks, tmp_path / "whole")
    _, (_, resumed_at, _) = in_processes(2, _resume, clicks, tmp_path / "run")
    assert resumed_at == 40
    _compare(tmp_path / "run", tmp_path / "whole", rtol=0, atol=0)


def _resume(rank, path, folder):
    return _run(rank, path, folder, resume=True)


def _from(rank, path, folder, parent, tables):
    run = train_run(Dataset.open(path), folder, config=CONFIG, parent=parent, tables=tables)
    return run.result.metrics["logloss"]


def test_from_a_run_with_whole_tables(clicks, in_processes, tmp_path):
    _run(0, clicks, tmp_path / "yesterday", CategoricalEmbedding)
    for name, tables in (("divided", DividedEmbedding), ("whole", CategoricalEmbedding)):
        in_processes(2, _from, clicks, tmp_path / name, tmp_path / "yesterday", tables)
    _compare(tmp_path / "divided", tmp_path / "whole")


def _full_disk(rank, path, folder):
    failed = []

    def fail(*_):
        failed.append(rank)
        if len(failed) < 3:
            raise OSError(28, "No space left on device")
        return write(*_)

    write, checkpoint.write_encoded = checkpoint.write_encoded, fail
    with (
        pytest.warns(CheckpointWarning, match="No space left on device; .* training continues")
        if not rank
        else nullcontext()
    ):
        run = _run(rank, path, folder)
    return run, len(failed)


def test_a_checkpoint_that_cannot_be_written(clicks, in_processes, tmp_path):
    (run, tried), (_, none) = in_processes(2, _full_disk, clicks, tmp_path / "run")
    assert run[0]["rows"] == ROWS == _state(tmp_path / "run")["rows"]
    assert tried > 5
    assert none == 0


@pytest.mark.parametrize(
    ("model", "config", "got"),
    [
        (HASH, replace(CONFIG, optimizer="adam"), "adam, l2=0, cpu"),
        ({**HASH, "l2": 0.1}, CONFIG, "adagrad, l2=0.1, cpu"),
    ],
)
def test_what_is_refused(clicks, in_processes, tmp_path, model, config, got):
    for outcome in in_processes(2, _run, clicks, tmp_path / "run", DividedEmbedding, model, config, may_fail=True):
        assert f"divided tables are learned by adagrad without l2, on the CPU, got {got}" in outcome.error or (
            "OtherProcessError: process 0 has failed: its output says why" in outcome.error
        )
    assert not (tmp_path / "run").exists()


def test_one_process(clicks, tmp_path):
    with pytest.raises(ValueError, match=r"tables can be divided among several processes .* got one process"):
        _run(0, clicks, tmp_path / "run")
