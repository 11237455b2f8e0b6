import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from daes import native
from daes.model import CTRModel
from daes.storage import checkpoint
from daes.storage.checkpoint import CheckpointError, CheckpointStore
from daes.storage.lock import LockHeldError
from daes.storage.nested_state import encode_state
from daes.storage.run_folder import RunFolder
from daes.stream.dataset import Dataset
from daes.stream.files import DataFile
from daes.training import results
from daes.training.config import TrainConfig
from daes.training.run import RunExistsError, train_run
from daes.training.step import TrainingError


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_run_opens_its_files_once(tmp_path, monkeypatch, parts, prefetch):
    opened = []
    genuine = DataFile.open
    monkeypatch.setattr(DataFile, "open", lambda file: opened.append(file.name) or genuine(file))
    random = np.random.default_rng(0)
    table = pa.table({"click": random.integers(0, 2, 1000), "price": random.lognormal(size=1000), "city": ["a"] * 1000})
    (tmp_path / "clicks").mkdir()
    for part in range(parts):
        rows = table.slice(part * 1000 // parts, 1000 // parts + 1)
        pq.write_table(rows, tmp_path / "clicks" / f"{part}.parquet")
    data = Dataset.open(tmp_path / "clicks", limit=900)
    assert data.num_rows == 900
    data.fingerprint()
    config = TrainConfig(batch_size=100)
    run = train_run(data, tmp_path / "run", model={"backbone": "fnn"}, config=config, prefetch=prefetch)
    assert run.result.rows == 900
    assert sorted(opened) == [f"{part}.parquet" for part in range(parts)]


def short_run(folder, rows=500, config=None, model=None, **options):
    data = options.pop("data", None) or Dataset.open(f"adstream:{rows}")
    config = TrainConfig(**{"batch_size": 100, "checkpoint_every": 200, "window": 500, **(config or {})})
    model = {"backbone": "fnn", "dim": 4, **(model or {})}
    return train_run(data, folder, model=model, config=config, sample_rows=200, **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"config": {"optimizer": "lion"}}, "optimizer must be one of"),
        ({"model": {"backbone": "deepfn"}}, "backbone must be one of"),
        ({"model": {"context": ["town"]}}, "context must name categorical columns"),
        ({"device": "tpu"}, "device must be"),
        (
            {"data": Dataset.open(pa.table({"click": [0, 7, 1], "price": [1.0, 2.0, 3.0]}))},
            "label column 'click' must hold 0 and 1",
        ),
    ],
)
def test_a_mistake_touches_nothing_that_is_there(tmp_path, mistake, sentence):
    with pytest.raises(ValueError, match=sentence):
        short_run(tmp_path / "new", **mistake)
    assert not (tmp_path / "new").exists()
    short_run(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match=sentence):
        short_run(tmp_path / "run", overwrite=True, **mistake)
    assert contents(tmp_path / "run") == before


def test_a_folder_of_something_else_is_never_overwritten(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("months of work")
    before = contents(tmp_path)
    for options in ({"overwrite": True}, {"resume": True}, {}):
        with pytest.raises(RunExistsError, match="something other than a run"):
            short_run(tmp_path, **options)
    assert contents(tmp_path) == before


def test_a_run_stays_until_its_replacement_is_complete(tmp_path, interrupted):
    folder = tmp_path / "run"
    old = short_run(folder)
    with interrupted(rows=500) as stop:
        short_run(folder, 700, overwrite=True, callbacks=[stop])
    assert CTRModel.from_pretrained(folder / "model").config == old.model.config
    assert RunFolder(folder).read("metrics")["rows"] == 500
    with pytest.raises(RunExistsError, match=r"an unfinished one that was to replace it: --resume .* --overwrite"):
        short_run(folder, 700)
    resumed = short_run(folder, 700, resume=True)
    assert (resumed.resumed_at, resumed.result.rows) == (400, 700)
    whole = short_run(tmp_path / "whole", 700)
    assert resumed.folder.path == folder
    assert (folder / "model" / "model.safetensors").read_bytes() == (
        whole.folder.model / "model.safetensors"
    ).read_bytes()
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.folder.path.iterdir()}


def test_an_unfinished_replacement_can_be_started_again(tmp_path, interrupted):
    folder = tmp_path / "run"
    short_run(folder)
    with interrupted(rows=500) as stop:
        short_run(folder, 700, overwrite=True, callbacks=[stop])
    again = short_run(folder, 600, overwrite=True)
    assert (again.resumed_at, again.result.rows, again.folder.read("metrics")["rows"]) == (None, 600, 600)
    assert not (folder / "replacement").exists()


def test_a_replacement_that_fails_leaves_the_run(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    short_run(folder)
    before = contents(folder / "model")
    monkeypatch.setattr(CTRModel, "cross_entropy", staticmethod(lambda logits, *targets: logits.sum() * float("nan")))
    with pytest.raises(TrainingError, match="the loss is nan"):
        short_run(folder, 700, overwrite=True)
    assert contents(folder / "model") == before


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "metrics.json", "monitor.json"])
def test_a_disk_that_is_full_after_training_costs_nothing(tmp_path, monkeypatch, file):
    folder = tmp_path / "run"
    genuine, finished = os.fsync, False

    def fsync(number):
        if finished and file in str(Path(f"/proc/self/fd/{number}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        genuine(number)

    def finish(trainer, *_):
        nonlocal finished
        finished = trainer.rows == 500

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(TrainingError) as caught:
            short_run(folder, callbacks=[finish])
    assert file in str(caught.value)
    assert "could not be written: No space left on device; training is done and the model is safe in" in str(
        caught.value
    )
    assert short_run(folder, resume=True).resumed_at == 500
    assert CTRModel.from_pretrained(folder / "model").dim == 4


@pytest.mark.parametrize("embedding", ["daes", "efd"])
def test_the_last_checkpoint_is_of_the_model_that_is_saved(tmp_path, monkeypatch, embedding):
    """It is written in the background, and what is done meanwhile changes nothing of it."""
    genuine = checkpoint.write_encoded
    written = []

    def slowly(path, encoded):
        if "000005" in path.name:
            assert importance_is_known.wait(60)
        written.append(path.name)
        genuine(path, encoded)

    importance_is_known = threading.Event()
    measured = results.feature_importance
    monkeypatch.setattr(checkpoint, "write_encoded", slowly)
    monkeypatch.setattr(
        results, "feature_importance", lambda *a, **k: (measured(*a, **k), importance_is_known.set())[0]
    )
    started = []
    finished = short_run(
        tmp_path / "run", model={"embedding": embedding}, on_start=lambda trainer, _: started.append(trainer)
    )
    with CheckpointStore(finished.folder.checkpoints) as store:
        last = store.load()
    assert written[-1] == last.path.name
    state, expected = encode_state(last.state["step"]), encode_state(started[0].step.state_dict())
    assert state.structure == expected.structure
    for name, array in expected.arrays.items():
        assert array.data.tobytes() == state.arrays[name].data.tobytes(), name


def test_a_last_checkpoint_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    def full(path, encoded):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "write_encoded", full)
    with pytest.raises(CheckpointError, match=r"the checkpoint of step 5 could not be written .*No space left"):
        short_run(tmp_path / "run", config={"checkpoint_every": 10_000})
    assert not (tmp_path / "run" / "model").exists()
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_a_checkpoint_of_something_else_is_named(tmp_path, interrupted):
    folder = tmp_path / "run"
    with interrupted(rows=500) as stop:
        short_run(folder, callbacks=[stop])
    with CheckpointStore(folder / "checkpoints") as store:
        state = store.load().state
        for part in ("random", "extra", "step"):
            store.save(9, {name: value for name, value in state.items() if name != part})
            with pytest.raises(CheckpointError, match=rf"step-0+9\.safetensors is not .*: it lacks '{part}'"):
                short_run(folder, resume=True)
        store.save(9, {**state, "step": {**state["step"], "model": {}}})
        with pytest.raises(CheckpointError, match=r"is not a checkpoint of such a run: .*Missing key"):
            short_run(folder, resume=True)


@pytest.mark.parametrize("part", ["data", "schema", "model", "training", "run", "options"])
def test_a_configuration_without_a_part_is_named(tmp_path, part):
    short_run(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, part: None}))
    with pytest.raises(ValueError, match=f"{path} must have an object called '{part}', got None"):
        short_run(tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("model", "within"),
    [({}, 2 if native._library is not None else 3), ({"embedding": "efd"}, 3), ({"backbone": "dcnv2"}, 3)],
)
def test_a_core_is_left_to_the_thread_that_reads_where_loops_do_the_work(tmp_path, threads_after, model, within):
    torch.set_num_threads(3)
    seen = set()
    short_run(tmp_path / "run", model=model, callbacks=[lambda *_: seen.add(torch.get_num_threads())])
    assert (seen, torch.get_num_threads()) == ({within}, 3)


@pytest.fixture
def threads_after():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_run_is_resumed_from_another_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    pq.write_table(pa.table({"click": [0, 1] * 100, "price": np.arange(200.0)}), tmp_path / "here" / "clicks.parquet")
    monkeypatch.chdir(tmp_path / "here")
    first = short_run(tmp_path / "run", data=Dataset.open("clicks.parquet"))
    stored = first.folder.read_config()["data"]
    assert stored["what"] == str(tmp_path / "here" / "clicks.parquet")
    monkeypatch.chdir(tmp_path)
    assert short_run(tmp_path / "run", data=Dataset.open("here/clicks.parquet"), resume=True).resumed_at == 200


def test_the_second_trainer_in_a_folder_is_told(tmp_path, interrupted):
    folder = tmp_path / "run"

    def enter_again(trainer, *_):
        if trainer.rows == 100:
            for options in ({"resume": True}, {"overwrite": True}):
                with pytest.raises(LockHeldError, match=r"run is in use: process \d+ on .* one writer at a time"):
                    short_run(folder, **options)

    with interrupted(rows=100) as stop:
        short_run(folder, callbacks=[enter_again, stop])
    assert short_run(folder, resume=True).result.rows == 500


def test_a_trainer_of_another_process_is_told_before_anything_is_written(tmp_path):
    script = (
        "from daes.stream.dataset import Dataset; from daes.training.run import train_run; import sys\n"
        "train_run(Dataset.open('adstream:300'), sys.argv[1], model={'backbone': 'fnn'}, overwrite=True)"
    )
    folder = tmp_path / "run"
    short_run(folder)
    before = json.loads((folder / "config.json").read_text())
    with RunFolder(folder).locked():
        done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True)
        assert "LockHeldError" in done.stderr
        assert "is in use: process" in done.stderr
    assert json.loads((folder / "config.json").read_text()) == before
    assert not (folder / "replacement").exists()
