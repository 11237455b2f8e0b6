"""`daes train --divide-tables`, started by torchrun: with torch alone and with TorchRec."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes and memory in /proc"),
]
WORKER = Path(__file__).with_name("divided_worker.py")
ROWS = 6000
OPTIONS = ("--batch-size", 40, "--checkpoint-every", 1000, "--sync-every", 400, "--recent", 30, "--no-report")


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    random = np.random.default_rng(0)
    user = random.zipf(1.3, ROWS) % 2000
    table = {
        "click": (random.random(ROWS) < 0.2 + 0.3 * (user % 3 == 0)).astype(np.int8),
        "price": random.lognormal(size=ROWS),
        "user": pa.array([f"user {number}" for number in user]),
        "city": pa.array([f"city {number}" for number in random.integers(0, 30, ROWS)]),
    }
    path = tmp_path_factory.mktemp("data") / "clicks.parquet"
    pq.write_table(pa.table(table), path)
    return path


@pytest.fixture(params=["torch", "torchrec"])
def by(request):
    if request.param == "torchrec":
        pytest.importorskip("torchrec", reason="torchrec is not installed")
    return request.param


def _torchrun(world, *arguments, **options):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def _train(world, *arguments):
    process = _torchrun(world, "-m", "daes", "train", *arguments)
    said = process.communicate(timeout=300)
    assert process.returncode == 0, said[1][-3000:]
    return said[0]


def _state(folder):
    return CheckpointStore(RunFolder(folder).checkpoints).load().state


def test_it_is_the_run_with_whole_tables(clicks, by, tmp_path):
    _train(3, clicks, *OPTIONS, "--out", tmp_path / "whole")
    _train(3, clicks, *OPTIONS, "--divide-tables", by, "--out", tmp_path / "divided")
    found, expected = (_state(tmp_path / name)["step"] for name in ("divided", "whole"))
    for name, tensor in expected["model"].items():
        torch.testing.assert_close(found["model"][name], tensor, rtol=1e-4, atol=1e-6, equal_nan=True)
    for one, two in zip(found["optimizers"][0]["sums"], expected["optimizers"][0]["sums"], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    found, expected = (RunFolder(tmp_path / name).read("metrics") for name in ("divided", "whole"))
    assert found["metrics"] == pytest.approx(expected["metrics"], rel=1e-5, nan_ok=True)
    assert RunFolder(tmp_path / "divided").read("config")["options"]["divide_tables"] == by


def test_killed_and_resumed_with_another_number(clicks, by, tmp_path):
    run = tmp_path / "run"
    agent = _torchrun(3, "-m", "daes", "train", clicks, *OPTIONS, "--divide-tables", by, "--out", run)
    while not CheckpointStore(RunFolder(run).checkpoints).steps():
        assert agent.poll() is None, agent.communicate()[1][-3000:]
        time.sleep(0.02)
    workers = [int(one) for one in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]
    os.kill(workers[-1], signal.SIGKILL)
    assert agent.wait(120) == 1
    assert "has lost another one, which has ended or does not answer" in agent.communicate()[1]
    assert 0 < _state(run)["rows"] < ROWS
    _train(2, "--out", run, "--resume")
    found = RunFolder(run).read("metrics")
    assert (found["rows"], found["world_size"]) == (ROWS, 2)
    _train(1, "--out", run, "--resume")  # one process has whole tables
    assert RunFolder(run).read("metrics")["metrics"] == found["metrics"]


@pytest.fixture(scope="module")
def taken(clicks, tmp_path_factory):
    """What a run with ten million rows of a table takes in each of two processes, at most; and when it is resumed."""

    def taken(tables):
        folder = tmp_path_factory.mktemp(tables)
        pq.write_table(pq.read_table(clicks).slice(0, 2000), folder / "few.parquet")
        found = []
        for _ in range(2):
            process = _torchrun(2, WORKER, tables, 10_000_000, folder / "few.parquet", folder / "run")
            said = process.communicate(timeout=600)
            assert process.returncode == 0, said[1][-3000:]
            found.append(json.loads(said[0].splitlines()[-1]))
        print(tables, found)
        return found

    return taken


@pytest.fixture(scope="module")
def whole(taken):
    (_, second), _ = taken("no")
    return second  # the first process copies all rows for a checkpoint


def test_two_processes_have_half_of_ten_million_rows_each(by, taken, whole):
    both = 10_000_000 * 8 * 4 * 2  # the table and Adagrad's sums
    assert 0.9 * both < whole < 1.3 * both
    for run in taken(by):
        for process in run:
            assert 0.4 < process / whole < 0.6, (run, whole)
