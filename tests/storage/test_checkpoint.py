"""A store that is killed, filled up, damaged and fought over, and always gives back a checkpoint as it was saved."""

import errno
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import warnings
from itertools import count

import numpy as np
import pytest
import torch

from daes.storage import checkpoint as module
from daes.storage.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from daes.storage.nested_state import StateError
from daes.storage.state_file import write_encoded, write_state


def state_of(step, size=8):
    return {"model": {"weight": torch.full((size,), float(step))}, "reservoir": np.arange(size) + step, "step": [step]}


def assert_complete(checkpoint, size=8):
    expected = state_of(checkpoint.step, size)
    assert torch.equal(checkpoint.state["model"]["weight"], expected["model"]["weight"])
    np.testing.assert_array_equal(checkpoint.state["reservoir"], expected["reservoir"])
    assert checkpoint.state["step"] == expected["step"]


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def store(tmp_path):
    with CheckpointStore(tmp_path / "run" / "checkpoints", keep=3) as store:
        yield store


def filled(store, *steps):
    for step in steps:
        store.save(step, state_of(step))
    return store


class TestSaving:
    def test_the_newest_is_loaded(self, store):
        filled(store, 0, 10, 20)
        assert store.load().step == 20
        assert_complete(store.load())
        assert store.load().path == store.directory / "step-000000000020.safetensors"

    def test_one_step_is_loaded(self, store):
        filled(store, 10, 20)
        assert_complete(store.load(step=10))
        with pytest.raises(CheckpointError, match=r"no checkpoint of step 15, only of \[10, 20\]"):
            store.load(step=15)

    def test_an_empty_or_missing_store_has_none(self, store):
        assert store.load() is None
        assert store.steps() == []
        assert not store.directory.exists()

    def test_the_last_few_are_kept(self, store):
        filled(store, 1, 5, 6, 7, 9)
        assert store.steps() == [6, 7, 9]
        assert set(names(store.directory)) == {
            "lock",
            "lock.holder",
            *(f"step-{step:012d}.safetensors" for step in (6, 7, 9)),
        }

    def test_order_is_that_of_numbers(self, store):
        filled(store, 999_999_999_999, 10**12, 10**17)
        assert store.steps() == [999_999_999_999, 10**12, 10**17]
        assert store.load().step == 10**17

    def test_the_old_go_only_once_the_new_one_is_durable(self, store, monkeypatch):
        store.keep = 1
        filled(store, 1)
        log = []
        real_fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: (log.append(("fsync", store.steps())), real_fsync(file)))
        filled(store, 2)
        # The file under its temporary name, then the folder after the renaming: step 1 is there both times.
        assert log == [("fsync", [1]), ("fsync", [1, 2])]
        assert store.steps() == [2]

    def test_a_step_saved_again_is_replaced(self, store):
        filled(store, 1, 2)
        store.save(2, {"other": True})
        assert store.load().state == {"other": True}
        assert store.steps() == [1, 2]

    def test_steps_do_not_go_back(self, store):
        filled(store, 10, 20)
        with pytest.raises(CheckpointError, match=r"got 15 and .* already has step 20: remove step-0+20\.safe"):
            store.save(15, {})
        store.path(20).unlink()
        filled(store, 15)
        assert store.steps() == [10, 15]

    def test_a_damaged_later_step_is_set_aside(self, store):
        filled(store, 10, 20)
        (store.directory / "step-000000000020.safetensors").write_bytes(b"damaged")
        with pytest.warns(CheckpointWarning, match=r"is set aside as step-000000000020\.safetensors\.refused"):
            store.save(15, state_of(15))
        assert store.steps() == [10, 15]
        assert (store.directory / "step-000000000020.safetensors.refused").read_bytes() == b"damaged"

    def test_numpy_integers_are_steps(self, store):
        store.save(np.int64(7), {})
        assert store.load().step == 7

    @pytest.mark.parametrize("step", [-1, 1.0, True, "1", "../../escaped", 10**18])
    def test_bad_steps(self, store, step):
        with pytest.raises(ValueError, match="step must be an integer from 0 to"):
            store.save(step, {})

    @pytest.mark.parametrize("keep", [0, -1, 1.5, True])
    def test_bad_keep(self, tmp_path, keep):
        with pytest.raises(ValueError, match=f"keep must be a positive integer, got {keep!r}"):
            CheckpointStore(tmp_path, keep=keep)

    def test_a_state_that_cannot_be_held_is_refused_at_once(self, store):
        for save in (store.save, store.save_async):
            with pytest.raises(StateError, match=r"state\['state'\]\['bad'\] is one"):
                save(1, {"bad": {1, 2}})
        assert store.load() is None


class TestDamage:
    def test_a_flipped_bit_is_refused_and_the_one_before_is_used(self, store):
        filled(store, 1, 2, 3)
        rng = np.random.default_rng(0)
        contents = {step: store.load(step).path.read_bytes() for step in (2, 3)}
        for _ in range(100):
            for step, content in contents.items():
                broken = bytearray(content)
                broken[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
                store.path(step).write_bytes(broken)
            with pytest.warns(CheckpointWarning) as warned:
                checkpoint = store.load()
            assert checkpoint.step == 1
            assert_complete(checkpoint)
            for warning, step in zip(warned, (3, 2), strict=True):
                assert re.match(rf"{re.escape(str(store.path(step)))} is refused: .", str(warning.message))

    def test_every_truncation_is_refused(self, store):
        filled(store, 1, 2)
        content = store.path(2).read_bytes()
        for length in range(len(content)):
            store.path(2).write_bytes(content[:length])
            with pytest.warns(CheckpointWarning):
                assert store.load().step == 1

    def test_nothing_to_trust_is_an_error_and_no_fresh_start(self, store):
        filled(store, 1, 2)
        for step in (1, 2):
            store.path(step).write_bytes(b"")
        with (
            pytest.warns(CheckpointWarning),
            pytest.raises(CheckpointError, match=r"has no valid checkpoint: step-0+2\.safe.*: it is.*; step-0+1\.safe"),
        ):
            store.load()
        with pytest.raises(CheckpointError, match=r"step-000000000002\.safetensors is refused: it is truncated"):
            store.load(step=2)

    def test_a_checkpoint_under_another_name_is_refused(self, store):
        filled(store, 1, 2)
        shutil.copy(store.path(1), store.path(9))
        with pytest.warns(CheckpointWarning, match="not a checkpoint of the step in its name"):
            assert store.load().step == 2

    def test_a_state_file_that_is_no_checkpoint_is_refused(self, store):
        filled(store, 1)
        write_state(store.path(9), {"step": 9})
        with pytest.warns(CheckpointWarning, match="not a checkpoint"):
            assert store.load().step == 1

    def test_links_are_refused(self, store, tmp_path):
        filled(store, 1, 2)
        shutil.move(store.path(2), tmp_path / "elsewhere")
        store.path(2).symlink_to(tmp_path / "elsewhere")
        store.path(3).symlink_to(tmp_path / "nowhere")
        with pytest.warns(CheckpointWarning, match="symbolic link") as warned:
            assert store.load().step == 1
        assert len(warned) == 2

    def test_folders_and_pipes_are_refused(self, store):
        filled(store, 1)
        store.path(2).mkdir()
        os.mkfifo(store.path(3))
        with pytest.warns(CheckpointWarning) as warned:
            assert store.load().step == 1
        assert len(warned) == 2

    def test_other_names_are_not_looked_at(self, store):
        filled(store, 1)
        for name in ("step-2.safetensors", "step-000000000002.pt", "step-000000000002.safetensors.bak", "step--1"):
            (store.directory / name).write_bytes(b"")
        assert store.steps() == [1]
        assert store.load().step == 1


class TestFailingDisk:
    def test_a_full_disk_leaves_the_earlier_ones(self, store):
        """A real failing write: the kernel refuses to let a file grow beyond the limit."""
        filled(store, 1, 2, 3)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
        try:
            with pytest.raises(
                CheckpointError, match=r"step 4 could not be written .*File too large.*steps \[1, 2, 3\]"
            ):
                store.save(4, state_of(4, size=1 << 16))
            store.save_async(4, state_of(4, size=1 << 16))
            with pytest.raises(CheckpointError, match="step 4 could not be written"):
                store.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert store.steps() == [1, 2, 3]
        assert len(names(store.directory)) == 5
        assert_complete(store.load())
        filled(store, 4)
        assert_complete(store.load())

    @pytest.mark.parametrize("call", [1, 2])
    def test_a_failing_sync_is_an_error(self, store, monkeypatch, call):
        filled(store, 1, 2, 3)
        calls = count(1)
        real_fsync = os.fsync

        def fsync(file):
            if next(calls) == call:
                raise OSError(errno.EIO, "Input/output error")
            real_fsync(file)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(CheckpointError, match=r"Input/output error.* steps \[1, 2, 3\] are unchanged"):
            store.save(4, state_of(4))
        assert {1, 2, 3} <= set(store.steps())
        assert_complete(store.load())

    def test_a_folder_that_cannot_be_made_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(CheckpointError, match="cannot be used for checkpoints"):
            CheckpointStore(tmp_path / "file" / "store").save(1, {})


class Gate:
    """Stands before the writing and lets one through at a time."""

    def __init__(self, monkeypatch):
        self.arrived, self.open = threading.Semaphore(0), threading.Semaphore(0)
        self.writing = self.most = 0
        self.error = None
        monkeypatch.setattr(module, "write_encoded", self)

    def __call__(self, path, encoded):
        self.writing += 1
        self.most = max(self.most, self.writing)
        self.arrived.release()
        assert self.open.acquire(timeout=30)
        self.writing -= 1
        if self.error:
            raise self.error
        write_encoded(path, encoded)


class TestAsync:
    def test_the_state_is_that_of_the_call(self, store, monkeypatch):
        gate = Gate(monkeypatch)
        state = state_of(1)
        store.save_async(1, state)
        assert gate.arrived.acquire(timeout=30)
        assert store._thread.is_alive()
        state["model"]["weight"].fill_(-1)
        state["reservoir"][:] = -1
        state["step"].append(-1)
        assert store.load() is None
        gate.open.release()
        store.wait()
        assert_complete(store.load())

    def test_at_most_one_is_in_flight(self, store, monkeypatch):
        gate = Gate(monkeypatch)
        store.save_async(1, state_of(1))
        assert gate.arrived.acquire(timeout=30)
        threading.Timer(0.05, gate.open.release).start()
        store.save_async(2, state_of(2))
        assert store.steps() == [1]
        gate.open.release()
        store.wait()
        assert gate.most == 1
        assert store.steps() == [1, 2]

    @pytest.mark.parametrize("call", ["save", "save_async", "wait", "close"])
    def test_an_error_comes_with_the_next_call_and_once(self, store, monkeypatch, caplog, call):
        filled(store, 1)
        gate = Gate(monkeypatch)
        gate.error = OSError(errno.ENOSPC, "No space left on device")
        gate.open.release()
        with caplog.at_level(logging.ERROR):
            store.save_async(2, state_of(2))
            store._thread.join()
        assert "No space left on device" in caplog.text
        arguments = {"save": (3, {}), "save_async": (3, {})}.get(call, ())
        with pytest.raises(CheckpointError, match=r"step 2 could not be written .*No space left .*steps \[1\]"):
            getattr(store, call)(*arguments)
        store.wait()
        assert_complete(store.load())

    def test_leaving_the_store_finishes_the_last_one(self, tmp_path):
        with CheckpointStore(tmp_path) as store:
            store.save_async(1, state_of(1))
        assert_complete(CheckpointStore(tmp_path).load())

    def test_an_error_under_way_is_not_hidden(self, tmp_path, monkeypatch):
        gate = Gate(monkeypatch)
        gate.error = OSError(errno.ENOSPC, "No space left on device")
        gate.open.release()

        def train():
            with CheckpointStore(tmp_path) as store:
                store.save_async(1, {})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            train()

    def test_a_process_that_ends_finishes_its_checkpoint(self, tmp_path):
        script = "import sys; from daes.storage.checkpoint import CheckpointStore as S; import torch; "
        script += "S(sys.argv[1]).save_async(1, {'a': torch.ones(1 << 20)})"
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
        assert CheckpointStore(tmp_path).load().state["a"].sum() == 1 << 20


class TestSharing:
    def test_one_writer_at_a_time(self, store):
        filled(store, 1)
        other = CheckpointStore(store.directory)
        for save in (other.save, other.save_async):
            with pytest.raises(
                CheckpointError, match=f"process {os.getpid()} on .* is writing there, one writer at a time"
            ):
                save(2, {})
        assert_complete(other.load())
        store.close()
        filled(other, 2)
        with pytest.raises(CheckpointError, match="one writer"):
            store.save(3, {})
        other.close()

    def test_leftovers_of_the_killed_are_cleaned_up_and_nothing_else(self, store):
        store.directory.mkdir(parents=True)
        (store.directory / ".step-000000000007.safetensors.0123abcd.tmp").write_bytes(b"half")
        (store.directory / "lock.holder").write_text("process 999999999 on elsewhere\n")
        (store.directory / ".notes.tmp").write_text("mine")
        filled(store, 8)
        assert set(names(store.directory)) == {".notes.tmp", "lock", "lock.holder", "step-000000000008.safetensors"}

    def test_a_reader_looks_again_when_the_writer_overtakes_it(self, store, monkeypatch):
        filled(store, 1)
        reader = CheckpointStore(store.directory)
        listings = iter([[1], [5]])
        monkeypatch.setattr(reader, "steps", lambda: next(listings))
        filled(store, 5)
        store.path(1).unlink()
        assert_complete(reader.load())


CRASH = """
import os, sys, threading, warnings
from pathlib import Path
from daes.storage import durable
from daes.storage import checkpoint, state_file
from daes.storage.checkpoint import CheckpointStore, CheckpointWarning

warnings.simplefilter("error", CheckpointWarning)  # no checkpoint may be refused

os.fsync = lambda file: None  # a process that ends loses nothing it gave to the kernel; this saves the waiting
SOURCES = {checkpoint.__file__, durable.__file__, state_file.__file__}

def content(version):
    return {"version": version, "numbers": list(range(version, version + 50))}

def crash_at(line):
    seen = 0
    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename not in SOURCES:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                os._exit(9)
        return trace
    return trace

def save_and_crash(where, mode, line):
    store = CheckpointStore(where, keep=1)
    if mode == "async":
        threading.settrace(crash_at(line))
        store.save_async(2, content(2))
        store.wait()
    else:
        sys.settrace(crash_at(line))
        store.save(1 if mode == "again" else 2, content(2))
    os._exit(0)

for mode in ("next", "again", "async"):
    versions, caught, line, crashed = [], 0, 0, True
    while crashed:
        line += 1
        where = Path(sys.argv[1]) / mode / str(line)
        with CheckpointStore(where, keep=1) as store:
            store.save(1, content(1))
        child = os.fork()
        if not child:
            save_and_crash(where, mode, line)
        crashed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        caught += any(entry.name.endswith(".tmp") for entry in where.iterdir())
        with CheckpointStore(where, keep=1) as store:
            found = store.load().state
            assert found == content(found["version"]), (mode, line, found)
            assert crashed or found["version"] == 2
            versions.append(found["version"])
            store.save(3, content(3))
            assert store.steps() == [3] and len(list(where.iterdir())) == 3, list(where.iterdir())
    assert versions == sorted(versions), "once the new one is found it stays found"
    assert caught > 5 and versions.count(1) > 20 and versions.count(2) > 5, (caught, versions)
"""


def test_a_crash_at_any_line_leaves_a_complete_checkpoint(tmp_path):
    """Ends the writer before every single line of the saving, in turn."""
    command = [sys.executable, "-W", "error", "-c", CRASH, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


KILL = """
import os, random, signal, sys, time, warnings
from pathlib import Path
import numpy as np, torch
from daes.storage.checkpoint import CheckpointStore, CheckpointWarning

warnings.simplefilter("error", CheckpointWarning)  # no checkpoint may be refused

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(int(sys.argv[3]))

def content(step):
    generator = torch.Generator().manual_seed(step)
    return {
        "model": {"weight": torch.rand(100_000, generator=generator)},
        "reservoir": np.random.default_rng(step).random(50_000),
        "position": {"row": step},
    }

def train(acknowledge, aside):
    store = CheckpointStore(folder, keep=2)
    checkpoint = store.load()
    step = 0 if checkpoint is None else checkpoint.step
    while True:
        step += 1
        (store.save_async if aside else store.save)(step, content(step))
        if not aside:
            os.write(acknowledge, step.to_bytes(8, "little"))

start = time.perf_counter()
with CheckpointStore(folder / "measured") as store:
    for step in range(3):
        store.save(step, content(step))
while_saving = time.perf_counter() - start
folder = folder / "store"

newest = caught = acknowledged = 0
for _ in range(rounds):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        train(write, aside=chance.random() < 0.5)
    chance.random()
    os.close(write)
    time.sleep(chance.uniform(0.0, while_saving))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    promised = int.from_bytes(said[-8:], "little") if said else 0
    acknowledged += len(said) // 8
    caught += any(entry.name.endswith(".tmp") for entry in folder.iterdir()) if folder.exists() else 0
    store = CheckpointStore(folder, keep=2)
    checkpoint = store.load()
    # How long a save takes changes with the disk: aim anew after every kill, so that about every other save succeeds.
    went_on = checkpoint is not None and checkpoint.step > newest
    while_saving = min(while_saving * (0.8 if went_on else 1.25), 5.0)
    if checkpoint is None:
        assert newest == promised == 0
        continue
    expected = content(checkpoint.step)
    assert checkpoint.step >= max(newest, promised), (checkpoint.step, newest, promised)
    assert torch.equal(checkpoint.state["model"]["weight"], expected["model"]["weight"])
    assert np.array_equal(checkpoint.state["reservoir"], expected["reservoir"])
    assert checkpoint.state["position"] == expected["position"]
    newest = checkpoint.step
print(newest, caught, acknowledged)
"""


def test_killed_at_random_moments_the_store_always_has_a_complete_checkpoint(tmp_path):
    """kill −9, many times: what was said to be saved is there, whole, and nothing goes back."""
    command = [sys.executable, "-W", "error", "-c", KILL, str(tmp_path), "80", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    newest, caught, acknowledged = map(int, run.stdout.split())
    assert newest > 5
    assert acknowledged > 0
    assert caught > 5, "the kills must come in the middle of a save to show anything"
    with CheckpointStore(tmp_path / "store", keep=2) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        store.save(newest + 1, {})
        assert store.load().state == {}
        assert len(names(tmp_path / "store")) == 4
