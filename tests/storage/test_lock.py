"""One writer at a time, dead ones not counted."""

import os
import re
import signal
import subprocess
import sys

import pytest

from daes.storage.lock import LockHeldError, WriterLock

HOLD = """
import sys, time
from pathlib import Path
from daes.storage.lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_holder_is_told_who_holds_it(tmp_path):
    first, second = WriterLock(tmp_path / "lock"), WriterLock(tmp_path / "lock")
    first.acquire()
    first.acquire()
    with pytest.raises(LockHeldError, match=f"process {os.getpid()} on .* is writing there"):
        second.acquire()
    assert first.is_locked
    assert not second.is_locked
    first.release()
    second.acquire()
    assert second.is_locked


def test_files_left_by_a_dead_process_are_taken_over(tmp_path):
    (tmp_path / "lock").write_text("")
    (tmp_path / "lock.holder").write_text("process 999999999 on elsewhere, a line that is longer than the next one\n")
    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    assert re.fullmatch(f"process {os.getpid()} on .+\n", (tmp_path / "lock.holder").read_text())
    lock.release()
    assert not (tmp_path / "lock.holder").exists()


def test_a_holder_without_a_name(tmp_path):
    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    (tmp_path / "lock.holder").unlink()
    with pytest.raises(LockHeldError, match="another process is writing there"):
        WriterLock(tmp_path / "lock").acquire()


def test_dropping_the_lock_releases_it(tmp_path):
    WriterLock(tmp_path / "lock").acquire()
    WriterLock(tmp_path / "lock").acquire()


def test_a_killed_process_holds_nothing(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"held\n"
        lock = WriterLock(tmp_path / "lock")
        with pytest.raises(LockHeldError, match=f"process {process.pid} on "):
            lock.acquire()
        process.send_signal(signal.SIGKILL)
        process.wait()
        lock.acquire()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_has_nor_keeps_it(tmp_path):
    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(ready[1], b"held" if lock.is_locked else b"free")
            os.read(go[0], 1)
        finally:
            os._exit(0)
    try:
        assert os.read(ready[0], 4) == b"free"
        lock.release()
        WriterLock(tmp_path / "lock").acquire()  # while the child still lives
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        WriterLock(tmp_path / "lock").acquire()
    assert not (tmp_path / "target").exists()
