"""A run that starts where another one ended."""

import json
import shutil

import numpy as np
import pytest
import torch

from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointError, CheckpointStore
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.parent import ParentRun
from daes.training.run import train_run
from daes.training.trainer import StreamTrainer

MODEL = {
    "embedding": "daes",
    "backbone": "fnn",
    "dim": 4,
    "categorical_options": {"mode": "vocabulary", "min_count": 2},
    "backbone_options": {"dropout": 0.0},
}


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Two days of a stream, and both together, as files."""
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("days")
    data = Dataset.open("adstream:2000")
    table = next(data.iter_tables(None, 2000))
    for name, part in (("both", table), ("first", table.slice(0, 1000)), ("second", table.slice(1000))):
        pq.write_table(part, folder / f"{name}.parquet")
    columns = {"label": data.schema.label, "numerical": data.schema.numerical, "categorical": data.schema.categorical}
    return {name: Dataset.open(folder / f"{name}.parquet", **columns) for name in ("both", "first", "second")}


def train(data, folder, model=MODEL, config=None, **options):
    config = TrainConfig(
        **{"batch_size": 100, "optimizer": "adam", "checkpoint_every": 300, "window": 500, **(config or {})}
    )
    return train_run(data, folder, model=model, config=config, sample_rows=500, **options)


@pytest.fixture(scope="module")
def parent(days, tmp_path_factory):
    return train(days["first"], tmp_path_factory.mktemp("runs") / "parent").folder.path


def test_the_second_day_after_the_first_is_both_days(days, parent, tmp_path):
    child = train(days["second"], tmp_path / "child", model=None, parent=parent)
    both = train(days["both"], tmp_path / "both")
    assert child.result.rows == 1000
    expected = both.model.state_dict()
    for name, tensor in child.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    states = [CheckpointStore(run.folder.checkpoints).load().state["step"] for run in (child, both)]
    for mine, theirs in zip(*(state["optimizers"] for state in states), strict=True):
        for number, moments in theirs["state"].items():
            for key, value in moments.items():
                assert np.array_equal(mine["state"][number][key], value), key


def test_a_run_records_its_parent(days, parent, tmp_path):
    child = train(days["second"], tmp_path / "child", model=None, parent=parent)
    assert child.folder.read_config()["parent"] == {"run": str(parent.absolute()), "step": 10, "rows": 1000}
    assert json.loads((parent / "config.json").read_text())["parent"] is None


def test_settings_of_training_are_ones_own(days, parent, tmp_path):
    train(days["second"], tmp_path / "child", model=None, parent=parent, config={"learning_rate": 0.5})
    state = CheckpointStore(tmp_path / "child" / "checkpoints").load().state["step"]["optimizers"]
    assert [group["lr"] for part in state for group in part["param_groups"]] == [0.5]


def test_a_child_that_was_interrupted_goes_on_even_without_its_parent(days, parent, tmp_path, interrupted):
    copy = tmp_path / "parent"
    shutil.copytree(parent, copy)
    whole = train(days["second"], tmp_path / "whole", model=None, parent=copy)
    for rows, done in ((200, None), (800, 600)):
        folder = tmp_path / str(rows)
        with interrupted(rows=rows) as stop:
            train(days["second"], folder, model=None, parent=copy, callbacks=[stop])
        if done:
            shutil.rmtree(copy)
        child = train(days["second"], folder, model=None, resume=True)
        assert child.resumed_at == done
        weights = [(run.folder.model / "model.safetensors").read_bytes() for run in (child, whole)]
        assert weights[0] == weights[1]


def test_the_state_of_the_parent_is_not_kept_in_memory(days, parent):
    start = ParentRun.open(parent)
    trainer = StreamTrainer(start.make_model(days["second"].schema), TrainConfig(optimizer="adam"))
    start.load_into(trainer)
    assert trainer.step.has_observed
    assert not start.load().state


def test_what_cannot_be_started_from(days, parent, tmp_path):
    with pytest.raises(FileNotFoundError, match="no run in"):
        ParentRun.open(tmp_path)
    with pytest.raises(ValueError, match="the model is the parent's and takes no arguments, got embed"):
        train(days["second"], tmp_path / "child", parent=parent)
    with pytest.raises(ValueError, match="optimizer must be the parent's, adam, got sgd"):
        train(days["second"], tmp_path / "child", model=None, parent=parent, config={"optimizer": "sgd"})
    with pytest.raises(ValueError, match="its numerical columns lack"):
        train(Dataset.open("flights", limit=100), tmp_path / "child", model=None, parent=parent)
    assert not (tmp_path / "child").exists()
    shutil.copytree(parent, tmp_path / "bare", ignore=shutil.ignore_patterns("step-*"))
    with pytest.raises(CheckpointError, match="has no checkpoint to start from"):
        ParentRun.open(tmp_path / "bare")


def test_a_run_is_not_resumed_from_another_parent(days, parent, tmp_path):
    train(days["second"], tmp_path / "child", model=None, parent=parent)
    with pytest.raises(ValueError, match=r"was started from .*parent and cannot be resumed from .*other"):
        train(days["second"], tmp_path / "child", model=None, parent=tmp_path / "other", resume=True)
    with pytest.raises(ValueError, match=r"was started without another run and cannot be resumed from .*other"):
        train(days["first"], parent, model=None, parent=tmp_path / "other", resume=True)
    again = train(days["second"], tmp_path / "child", model=None, parent=parent, resume=True)
    assert isinstance(again.model, CTRModel)
    assert again.resumed_at == 1000
