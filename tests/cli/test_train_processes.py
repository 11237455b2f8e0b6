"""`daes train` as torchrun starts it: several processes, told apart by their environment."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from daes.cli.app import build_app
from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder


def _work(rank, world, port, output, arguments):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.stdout, sys.stderr = ((output / f"{rank}.{name}").open("w", buffering=1) for name in ("out", "err"))
    build_app()(arguments, prog_name="daes")


@pytest.fixture
def started(tmp_path_factory):
    """Start `daes …` in several processes; a function that waits for them: exit code, stdout and stderr of each."""
    running = []

    def start(world, *arguments):
        output = tmp_path_factory.mktemp("output")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("fork")
        workers = [
            context.Process(target=_work, args=(rank, world, port, output, [str(one) for one in arguments]))
            for rank in range(world)
        ]
        for worker in workers:
            worker.start()
        running.extend(workers)

        def wait():
            for worker in workers:
                worker.join(120)
            texts = [[(output / f"{rank}.{name}").read_text() for name in ("out", "err")] for rank in range(world)]
            return [(worker.exitcode, *text) for worker, text in zip(workers, texts, strict=True)]

        return workers, wait

    yield start
    for worker in running:
        worker.kill()


OPTIONS = ("--backbone", "fnn", "--batch-size", "20", "--exclude", "id", "--no-report")


def test_the_first_process_speaks(started, clicks, tmp_path):
    _, wait = started(2, "train", clicks, "--out", tmp_path / "run", "--limit", "200", *OPTIONS, "--json")
    (code, out, err), other = wait()
    assert code == 0, err
    printed = json.loads(out)
    assert (printed["rows"], printed["world_size"]) == (200, 2)
    assert other == (0, "", "")
    assert RunFolder(tmp_path / "run").read("config")["run"]["world_size"] == 2


def test_bad_input_is_said_once(started, tmp_path):
    _, wait = started(2, "train", tmp_path / "none.parquet", "--out", tmp_path / "run")
    first, second = wait()
    assert first[0] == 2
    assert "none.parquet" in first[2]
    assert second[::2] == (1, "daes: process 0 has failed: its output says why\n")


def test_a_run_to_start_from_that_is_not_there_is_said_once(started, clicks, tmp_path):
    _, wait = started(2, "train", clicks, "--from", tmp_path / "none", "--out", tmp_path / "run")
    first, second = wait()
    assert first[0] == 2
    assert "no run in" in first[2]
    assert second[::2] == (1, "daes: process 0 has failed: its output says why\n")


def test_standard_input_is_refused(started, tmp_path):
    _, wait = started(2, "train", "-", "--out", tmp_path / "run")
    first, second = wait()
    assert first[0] == 2
    assert first[2] == (
        "daes: standard input can be read by one process only, and 2 were started: name a file that all of them can "
        "open\n"
    )
    assert second[::2] == (1, "daes: process 0 has failed: its output says why\n")
    assert not (tmp_path / "run").exists()


def test_a_killed_process_ends_the_run_with_a_sentence(started, clicks, tmp_path):
    run = tmp_path / "run"
    frequent = ("--checkpoint-every", "40", "--sync-every", "40", "--limit", "600")
    workers, wait = started(2, "train", clicks, "--out", run, *OPTIONS, *frequent)
    while not CheckpointStore(RunFolder(run).checkpoints).steps():
        time.sleep(0.02)
    os.kill(workers[1].pid, signal.SIGKILL)
    (code, _, err), second = wait()
    assert second[0] == -signal.SIGKILL
    assert code == 1
    assert "daes: process 0 of 2 has lost another one, which has ended or does not answer; resuming the run" in err
    assert "Traceback" not in err
    _, wait = started(3, "train", "--out", run, "--resume")
    (code, out, err), *_ = wait()
    assert code == 0, err
    assert "continuing after row" in err
    assert "600 rows" in out


def test_divided_tables(started, clicks, tmp_path):
    run = tmp_path / "run"
    frequent = ("--checkpoint-every", "40", "--sync-every", "40", "--limit", "400")
    _, wait = started(2, "train", clicks, "--out", run, *OPTIONS, *frequent, "--divide-tables", "torch")
    (code, out, err), second = wait()
    assert code == 0, err
    assert "400 rows" in out
    assert second == (0, "", "")
    assert RunFolder(run).read("config")["options"]["divide_tables"] == "torch"
    _, wait = started(3, "train", "--out", run, "--resume", "--limit", "600")  # its tables are divided again
    (code, out, err), *_ = wait()
    assert code == 0, err
    assert "continuing after row 400" in err
    assert "600 rows" in out
    _, wait = started(1, "train", "--out", run, "--resume", "--limit", "800")
    ((code, out, err),) = wait()
    assert code == 0, err
    assert "800 rows" in out


@pytest.mark.parametrize(
    ("world", "by", "code", "sentence"),
    [
        (1, "torch", 2, "--divide-tables needs several processes, started by torchrun or --ray, got torch and one"),
        (2, "torchrec", 1, "torchrec is needed here and not installed: pip install 'daes[torchrec]'"),
    ],
)
def test_tables_that_cannot_be_divided(started, clicks, tmp_path, monkeypatch, world, by, code, sentence):
    monkeypatch.setitem(sys.modules, "torchrec", None)
    _, wait = started(world, "train", clicks, "--out", tmp_path / "run", "--divide-tables", by)
    first, *others = wait()
    assert first[0] == code
    assert sentence in first[2]
    assert all(other[::2] == (1, "daes: process 0 has failed: its output says why\n") for other in others)
    assert not (tmp_path / "run").exists()


def _torchrun(*options):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    return [*command, "-m", "daes", "train"], {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}


@pytest.mark.slow
def test_torchrun(clicks, tmp_path):
    command, environment = _torchrun()
    command += [str(clicks), "--out", str(tmp_path / "run"), *OPTIONS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1,200 rows" in done.stdout
    assert done.stdout.count("wrote ") == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_torchrun_restarts_a_run_of_which_a_process_was_killed(clicks, tmp_path):
    run = tmp_path / "run"
    command, environment = _torchrun("--max-restarts", "1")
    frequent = ("--checkpoint-every", "40", "--sync-every", "40")
    command += [str(clicks), "--out", str(run), "--resume", *OPTIONS, *frequent]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
    try:
        while not CheckpointStore(RunFolder(run).checkpoints).steps():
            assert started.poll() is None
            time.sleep(0.02)
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        killed = [one for one in children if b"\0RANK=1\0" in Path(f"/proc/{one}/environ").read_bytes()]
        os.kill(int(killed[0]), signal.SIGKILL)
        out, err = started.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode == 0, err
    assert "continuing after row" in err
    assert "1,200 rows" in out
