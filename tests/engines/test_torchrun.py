"""`daes train` on two machines: two agents of torchrun that meet over the network, here of one machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
ROWS = 6000


def _children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def machines(tmp_path):
    """Start `daes train …` on two machines of one process each; their agents."""
    started = []

    def start(*arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
        agents = []
        for machine in range(2):
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nnodes",
                "2",
                "--nproc-per-node",
                "1",
                *meeting,
            ]
            command += ["--rdzv-conf", f"is_host={machine == 0}", "-m", "daes", "train", *map(str, arguments)]
            with (tmp_path / f"{machine}.log").open("w") as log:
                agents.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        started.extend(agents)
        return agents

    yield start
    for agent in started:
        if agent.poll() is None:
            for pid in [*_children(agent.pid), agent.pid]:
                os.kill(pid, signal.SIGKILL)


def test_a_machine_that_is_gone_and_a_run_that_goes_on(machines, tmp_path):
    random = np.random.default_rng(0)
    table = {"click": random.integers(0, 2, ROWS), "price": random.lognormal(size=ROWS)}
    pq.write_table(pa.table(table), tmp_path / "clicks.parquet")
    run = tmp_path / "run"
    often = ("--batch-size", 40, "--checkpoint-every", 400, "--sync-every", 400, "--recent", 30)
    options = ("--backbone", "fnn", *often, "--no-report")
    first, second = machines(tmp_path / "clicks.parquet", "--out", run, *options)
    while not CheckpointStore(RunFolder(run).checkpoints).steps():
        assert first.poll() is None, (tmp_path / "0.log").read_text()
        time.sleep(0.02)
    for pid in [second.pid, *_children(second.pid)]:  # the agent first: it would see its process end
        os.kill(pid, signal.SIGKILL)
    assert first.wait(60) == 1
    assert (
        "has lost another one, which has ended or does not answer; resuming the run continues from its last"
        in (tmp_path / "0.log").read_text()
    )
    reached = CheckpointStore(RunFolder(run).checkpoints).load().state["rows"]
    assert 0 < reached < ROWS
    for agent in machines("--out", run, "--resume"):
        assert agent.wait(120) == 0, (tmp_path / "0.log").read_text()
    found = RunFolder(run).read("metrics")
    assert (found["rows"], found["world_size"]) == (ROWS, 2)
