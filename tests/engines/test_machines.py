"""`daes train` on two machines: two network namespaces, each with an address, processes and a host name of its own."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"),
        reason="network namespaces need Linux, root, ip and unshare",
    ),
]
ROWS = 4000
OPTIONS = ("--batch-size", 40, "--checkpoint-every", 400, "--sync-every", 400, "--recent", 30, "--no-report")
LOST = "has lost another one, which has ended or does not answer; resuming the run continues from its last checkpoint"


class Machines:
    """Two network namespaces that are joined by a cable, and what runs there."""

    def __init__(self, folder):
        self.folder = folder
        self.names = [f"daes-{os.getpid()}-{number}" for number in range(2)]
        self.started = []
        for name in self.names:
            _ip("netns", "add", name)
        _ip("link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "eth0", "netns", self.names[1])
        for number, name in enumerate(self.names):
            _ip("-n", name, "address", "add", self.address(number) + "/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")

    def address(self, number):
        return f"10.77.0.{1 + number}"

    def start(self, *arguments, processes=1, prepare="true"):
        """`daes train` with so many processes on each machine; the second one runs a command of the shell before it."""
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "PYTHONPATH": ":".join(sys.path),
        }
        agents = []
        for number, name in enumerate(self.names):
            inside = f'hostname machine-{number} && {prepare if number else "true"} && exec "$@"'
            place = (
                "ip",
                "netns",
                "exec",
                name,
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            )
            torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", processes)
            meeting = ("--node-rank", number, "--master-addr", self.address(0), "--master-port", 29400)
            command = (
                *place,
                "--uts",
                "sh",
                "-c",
                inside,
                "sh",
                *torchrun,
                *meeting,
                "--local-addr",
                self.address(number),
            )
            with (self.folder / f"{number}.log").open("w") as log:
                agents.append(
                    subprocess.Popen(
                        [*map(str, command), "-m", "daes", "train", *map(str, arguments)],
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        self.started += agents
        return agents

    def train(self, *arguments, **options):
        """`start`, to its end."""
        assert [agent.wait(120) for agent in self.start(*arguments, **options)] == [0, 0], self.said(0) + self.said(1)

    def said(self, number):
        return (self.folder / f"{number}.log").read_text()

    def cable(self, state):
        _ip("-n", self.names[0], "link", "set", "eth0", state)

    def close(self):
        for agent in self.started:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
                agent.wait(30)
        for name in self.names:
            _ip("netns", "delete", name)


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def machines(tmp_path):
    made = Machines(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    random = np.random.default_rng(0)
    user = random.zipf(1.3, ROWS) % 2000
    table = {
        "click": (random.random(ROWS) < 0.2 + 0.3 * (user % 3 == 0)).astype(np.int8),
        "price": random.lognormal(size=ROWS),
        "user": pa.array([f"user {number}" for number in user]),
    }
    path = tmp_path_factory.mktemp("data") / "clicks.parquet"
    pq.write_table(pa.table(table), path)
    return path


@pytest.fixture(scope="module")
def here(clicks, tmp_path_factory):
    """The run of two processes of one machine, which share memory."""
    run = tmp_path_factory.mktemp("here") / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "daes"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([*command, "train", str(clicks), *map(str, OPTIONS), "--out", str(run)], env=environment, check=True)
    return run


def _state(run):
    return CheckpointStore(RunFolder(run).checkpoints).load().state


def _same(found, expected, **tolerance):
    for name, tensor in expected["model"].items():
        torch.testing.assert_close(found["model"][name], tensor, equal_nan=True, **tolerance)
    for one, two in zip(found["optimizers"][0]["sums"], expected["optimizers"][0]["sums"], strict=True):
        torch.testing.assert_close(one, two, **tolerance)


def test_two_machines_learn_the_same_as_one(machines, clicks, here, tmp_path):
    machines.train(clicks, *OPTIONS, "--out", tmp_path / "run")
    _same(_state(tmp_path / "run")["step"], _state(here)["step"], rtol=0, atol=0)
    found, expected = (RunFolder(run).read("metrics") for run in (tmp_path / "run", here))
    assert (found["metrics"], found["world_size"]) == (expected["metrics"], 2)


def test_a_cable_that_is_pulled_out(machines, clicks, here, tmp_path):
    run = tmp_path / "run"
    agents = machines.start(clicks, *OPTIONS, "--out", run, "--process-timeout", 5)
    while not CheckpointStore(RunFolder(run).checkpoints).steps():
        assert [agent.poll() for agent in agents] == [None, None], machines.said(0) + machines.said(1)
        time.sleep(0.02)
    machines.cable("down")
    for number, agent in enumerate(agents):
        assert agent.wait(60) == 1
        assert LOST in machines.said(number)
    machines.cable("up")
    assert 0 < _state(run)["rows"] < ROWS
    machines.train("--out", run, "--resume")
    _same(_state(run)["step"], _state(here)["step"], rtol=0, atol=0)
    assert RunFolder(run).read("metrics")["metrics"] == RunFolder(here).read("metrics")["metrics"]


@pytest.mark.parametrize("by", ["torch", "torchrec"])
def test_divided_tables(machines, clicks, here, tmp_path, by):
    if by == "torchrec":
        pytest.importorskip("torchrec", reason="torchrec is not installed")
    machines.train(clicks, *OPTIONS, "--divide-tables", by, "--out", tmp_path / "run")
    _same(_state(tmp_path / "run")["step"], _state(here)["step"], rtol=1e-4, atol=1e-6)


def test_several_processes_of_each(machines, clicks, here, tmp_path):
    machines.train(clicks, *OPTIONS, "--out", tmp_path / "run", processes=2)
    _same(_state(tmp_path / "run")["step"], _state(here)["step"], rtol=1e-3, atol=1e-4)
    assert RunFolder(tmp_path / "run").read("metrics")["world_size"] == 4


def test_machines_without_a_file_system_that_they_share(machines, clicks, tmp_path):
    (tmp_path / "local").mkdir()
    run, own = tmp_path / "local" / "run", f"mount -t tmpfs tmpfs {tmp_path / 'local'}"
    agents = machines.start(clicks, *OPTIONS, "--out", run, prepare=own)
    assert [agent.wait(120) for agent in agents] == [1, 1]
    assert (
        f"process 1 on machine-1 does not see the run that process 0 has written to {run}: the machines need a file "
        "system that they share"
    ) in machines.said(1)
    assert "process 1 has failed" in machines.said(0)
