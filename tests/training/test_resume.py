"""Killed at any instant, a run goes on to the same bits."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from daes.storage.state_file import read_state
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.environment import environment
from daes.training.run import RunExistsError, train_run

# A process that forks one run after the other and kills it after a random time, until one comes to its end. Forking
# spares each run the seconds that imports take; one thread only, so that a fork is sound and sums are in one order.
SUPERVISOR = """
import os, random, signal, sys, time
from glob import glob
import torch
torch.set_num_threads(1)
from daes.training.config import TrainConfig
from daes.stream.dataset import Dataset
from daes.training.run import train_run

folder, seed, longest = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
data = Dataset.open("adstream:ROWS")
data.source.batch(0, 10)
config = TrainConfig(batch_size=100, label_delay=2, checkpoint_every=300, window=1000)
model = {"embedding": "daes-gate", "backbone": "deepfm", "dim": 4,
         "categorical_options": {"mode": "vocabulary", "min_count": 2}}
moments = random.Random(seed)
kills = 0
while True:
    child = os.fork()
    if child == 0:
        try:
            train_run(data, folder, model=model, config=config, sample_rows=500, prefetch=1, resume=True)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    newest = max(glob(folder + "/checkpoints/step-*.safetensors"), default="")
    ends = time.monotonic() + (moments.uniform(0, longest) if longest else 1e9)
    status = None
    while status is None and time.monotonic() < ends:
        pid, code = os.waitpid(child, os.WNOHANG)
        status = code if pid else None
        time.sleep(0.001)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        # Whatever the machine's speed: a little less time where there was progress, a little more where there was none.
        moved = newest != max(glob(folder + "/checkpoints/step-*.safetensors"), default="")
        longest *= 0.85 if moved else 1.15
        continue
    print(kills)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


def supervise(folder: Path, rows: int, seed: int, longest: float) -> int:
    """How many times the run was killed before it came to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [str(folder), str(seed), str(longest)]
    script = SUPERVISOR.replace("ROWS", str(rows))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def without_clock(content):
    if isinstance(content, dict):
        clocks = ("seconds", "rows_per_second")
        return {name: without_clock(value) for name, value in content.items() if name not in clocks}
    return [without_clock(value) for value in content] if isinstance(content, list) else content


def contents(folder: Path) -> dict[str, object]:
    """All of a finished run that does not speak of time."""
    found = {
        name: without_clock(json.loads((folder / f"{name}.json").read_text()))
        for name in ("metrics", "history", "monitor")
    }
    found["model"] = hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()
    last = max((folder / "checkpoints").glob("step-*.safetensors"))
    found["checkpoint"] = last.name
    found["state"] = without_clock(digested(read_state(last)["state"]))
    return found


def digested(state):
    """A state with every array as a hash of its bytes."""
    if isinstance(state, dict):
        return {str(name): digested(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [digested(value) for value in state]
    if hasattr(state, "numpy"):
        state = state.numpy()
    if hasattr(state, "tobytes"):
        return hashlib.sha256(state.tobytes()).hexdigest()
    return state


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that was never interrupted, in a process as those of the others."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert supervise(folder, 4000, 0, 0.0) == 0
    return folder


def test_a_run_that_is_killed_many_times_ends_with_the_same_bits(finished, tmp_path):
    kills = supervise(tmp_path / "run", 4000, seed=1, longest=0.5)
    assert kills >= 5
    assert contents(tmp_path / "run") == contents(finished)


def small_run(folder, rows, **options):
    config = TrainConfig(batch_size=100, checkpoint_every=300, window=500)
    model = {"embedding": "daes", "backbone": "fnn", "dim": 4, **options.pop("model", {})}
    data = options.pop("data", None) or Dataset.open(f"adstream:{rows}")
    return train_run(data, folder, model=model, config=config, sample_rows=500, **options)


def test_a_tampered_checkpoint_is_refused_and_the_one_before_is_used(tmp_path, interrupted):
    whole, other = tmp_path / "whole", tmp_path / "other"
    small_run(whole, 2000)
    with interrupted(rows=1400) as stop:
        small_run(other, 2000, callbacks=[stop])
    steps = CheckpointStore(other / "checkpoints").steps()
    assert steps == [6, 9, 12]
    newest = max((other / "checkpoints").glob("step-*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(CheckpointWarning, match=r"step-0+12\.safetensors is (refused|set aside).*SHA-256"):
        run = small_run(other, 2000, resume=True)
    assert run.resumed_at == 900
    assert contents(other) == contents(whole)


def test_with_no_sound_checkpoint_left_nothing_begins_by_itself(tmp_path):
    from daes.storage.checkpoint import CheckpointError

    small_run(tmp_path / "run", 1000)
    for path in (tmp_path / "run" / "checkpoints").glob("step-*.safetensors"):
        path.write_bytes(path.read_bytes()[:-10])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        with pytest.raises(CheckpointError, match="has no valid checkpoint"):
            small_run(tmp_path / "run", 1000, resume=True)


def test_a_finished_run_is_resumed_to_the_same_end_and_beyond(tmp_path):
    data = Dataset.open("adstream:5000")
    first = small_run(tmp_path / "run", 0, data=data.head(1000))
    before = contents(tmp_path / "run")
    again = small_run(tmp_path / "run", 0, data=data.head(1000), resume=True)
    assert (first.resumed_at, again.resumed_at) == (None, 1000)
    assert contents(tmp_path / "run") == before
    longer = small_run(tmp_path / "run", 0, data=data.head(2000), resume=True)
    assert (longer.resumed_at, longer.result.rows) == (1000, 2000)
    small_run(tmp_path / "whole", 0, data=data.head(2000))
    ours, theirs = contents(tmp_path / "run"), contents(tmp_path / "whole")
    assert ours["model"] == theirs["model"]
    assert ours["metrics"] == theirs["metrics"]


def test_a_run_killed_before_its_first_checkpoint_begins_as_it_did(tmp_path, interrupted):
    with interrupted(batches=1) as stop:
        small_run(tmp_path / "run", 1000, callbacks=[stop])
    run = small_run(tmp_path / "run", 1000, resume=True)
    small_run(tmp_path / "whole", 1000)
    assert run.resumed_at is None
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_what_is_there_is_not_touched_unasked(tmp_path):
    folder = tmp_path / "run"
    small_run(folder, 500)
    with pytest.raises(RunExistsError, match=r"exists already: --resume .* --overwrite"):
        small_run(folder, 500)
    (folder / "notes.txt").write_text("mine")
    small_run(folder, 600, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert json.loads((folder / "metrics.json").read_text())["rows"] == 600
    with pytest.raises(ValueError, match="resume and overwrite exclude each other"):
        small_run(folder, 600, overwrite=True, resume=True)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="something other than a run and is not overwritten"):
        small_run(strange, 500, overwrite=True)
    with pytest.raises(RunExistsError, match="something other than a run and is left alone"):
        small_run(strange, 500, resume=True)
    assert [path.name for path in strange.iterdir()] == ["thesis.tex"]


class TestOfAnotherVersion:
    def started(self, folder, **versions):
        """A run of 1000 rows of which 900 are done, as if with other versions, and what continues it."""
        small_run(folder, 1000)
        max((folder / "checkpoints").glob("step-*.safetensors")).unlink()
        path = folder / "config.json"
        config = json.loads(path.read_text())
        found = config["environment"]
        found["daes"], found["packages"]["torch"] = versions["daes"], versions["torch"]
        path.write_text(json.dumps(config))
        return lambda: small_run(folder, 1000, resume=True)

    def test_that_is_said(self, tmp_path, caplog):
        now = environment()
        go_on = self.started(tmp_path, daes=now["daes"], torch="1.2.3")
        go_on()
        said = f"the run was started with torch 1.2.3 and is resumed with torch {now['packages']['torch']}: its result"
        assert said in caplog.text

    def test_of_the_same_one_nothing_is_said(self, tmp_path, caplog):
        now = environment()
        self.started(tmp_path, daes=now["daes"], torch=now["packages"]["torch"])()
        assert "was started with" not in caplog.text

    def test_it_is_said_before_a_checkpoint_that_does_not_fit(self, tmp_path, monkeypatch, caplog):
        go_on = self.started(tmp_path, daes="0.0.1", torch=environment()["packages"]["torch"])

        def load(self, state):
            raise RuntimeError("size mismatch for evidence")

        monkeypatch.setattr(CTRModel, "load_state_dict", load)
        with pytest.raises(CheckpointError, match="is not a checkpoint of such a run: size mismatch for evidence"):
            go_on()
        assert "the run was started with daes 0.0.1" in caplog.text


def test_a_run_does_not_go_on_as_another(tmp_path):
    small_run(tmp_path / "run", 500)
    data = Dataset.open("adstream:500", exclude=["price"])
    with pytest.raises(ValueError, match=r"started with schema.numerical="):
        small_run(tmp_path / "run", 0, data=data, resume=True)
    with pytest.raises(ValueError, match=r"started with model.evidence.recent=300.0 and cannot be resumed with 9.0:"):
        small_run(tmp_path / "run", 500, model={"evidence": {"recent": 9.0}}, resume=True)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(
        ValueError, match=r"started with data.what='adstream:500' and cannot be resumed with 'adstream:600'"
    ):
        small_run(tmp_path / "run", 600, resume=True)


def test_data_of_another_name_that_begin_with_the_same_rows_are_read_on(tmp_path):
    small_run(tmp_path / "run", 500)
    run = small_run(tmp_path / "run", 600, resume=True)
    assert (run.resumed_at, run.result.rows, run.folder.read("config")["data"]["what"]) == (500, 600, "adstream:600")
