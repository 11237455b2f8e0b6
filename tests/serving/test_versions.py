"""Which model of a folder is the newest, and what is read where one is damaged."""

import json
import os
import shutil

import pytest
import torch

from daes.model import CTRModel
from daes.serving.live_model import LiveModel
from daes.serving.versions import ModelFolder
from daes.storage.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning


def same(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name].nan_to_num(), theirs[name].nan_to_num()) for name in mine)


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a run, to be changed."""
    return shutil.copytree(trained, tmp_path / "run")


def add_checkpoint(run, number, **changes):
    with CheckpointStore(run / "checkpoints", keep=9) as store:
        state = store.load().state
        store.save(number, {**state, **changes})
        return store.path(number)


def test_a_finished_run(run):
    folder = ModelFolder(run)
    version = folder.newest()
    assert (version.name, version.path) == ("model", run / "model")
    loaded = folder.load(version)
    assert loaded.rows == 2000
    assert same(loaded.model, CTRModel.from_pretrained(run / "model"))


def test_a_run_says_what_was_missing(run):
    assert ModelFolder(run).load_newest().missing == {}
    config = json.loads((run / "config.json").read_text())
    config["data"]["options"] = {"missing": ["", "-999"], "missing_categories": [""], "separator": ";"}
    (run / "config.json").write_text(json.dumps(config))
    expected = {"missing": ["", "-999"], "missing_categories": [""]}
    assert ModelFolder(run).load_newest().missing == expected
    live = LiveModel(run)
    assert live.refresh()
    assert live.current.scorer.score_rows([{"price": -999}]) == live.current.scorer.score_rows([{}])
    shutil.rmtree(run / "model")
    assert ModelFolder(run).load_newest().missing == expected


def test_a_run_that_trains_has_checkpoints_alone(run):
    shutil.rmtree(run / "model")
    loaded = ModelFolder(run).load_newest()
    assert (loaded.version.step, loaded.version.name, loaded.rows) == (20, "step 20", 2000)
    assert not loaded.model.training
    assert ModelFolder(run).newest() == loaded.version


def test_a_resumed_run_has_newer_checkpoints_than_its_model_whatever_the_times_of_files(run):
    path = add_checkpoint(run, 30, rows=3000)
    assert ModelFolder(run).newest().path == path
    assert ModelFolder(run).load_newest().rows == 3000
    os.utime(run / "model" / "config.json")  # as in a copy of the folder
    assert ModelFolder(run).newest().path == path
    path.unlink()
    os.utime(CheckpointStore(run / "checkpoints").path(20))
    assert ModelFolder(run).newest().name == "model"
    (run / "metrics.json").unlink()
    assert ModelFolder(run).newest().name == "step 20"


def test_a_saved_model_is_followed_too(run):
    folder = ModelFolder(run / "model")
    before = folder.newest()
    model = CTRModel.from_pretrained(run / "model")
    model.save_pretrained(run / "model")
    assert folder.newest() != before
    assert folder.load_newest().rows is None


def test_of_a_damaged_checkpoint_the_one_before(run):
    add_checkpoint(run, 30).write_bytes(b"nothing")
    folder = ModelFolder(run)
    with pytest.raises(CheckpointError, match=r"step-000000000030.safetensors is refused: it is truncated"):
        folder.load(folder.newest())
    with pytest.warns(CheckpointWarning, match="is refused: .*; step 20 is used"):
        assert folder.load_newest().version.step == 20
    CheckpointStore(run / "checkpoints").path(20).write_bytes(b"nothing")
    with pytest.warns(CheckpointWarning, match="; (step 20|model) is used"):
        assert folder.load_newest().version.name == "model"
    shutil.rmtree(run / "model")
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointError, match="is refused"):
        folder.load_newest()


def test_a_checkpoint_of_something_else(run):
    add_checkpoint(run, 30, step={"model": {"weight": torch.zeros(1)}})
    folder = ModelFolder(run)
    with pytest.raises(CheckpointError, match="is not a checkpoint of such a run"):
        folder.load(folder.newest())


def test_nothing_there_yet(run, tmp_path):
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints")
    assert ModelFolder(run).newest() is None
    with pytest.raises(FileNotFoundError, match="has neither a checkpoint nor a saved model yet"):
        ModelFolder(run).load_newest()
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        ModelFolder(tmp_path / "nosuch")
