"""Trainers that learn from a broker and are killed: every message counts once."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.storage.checkpoint import CheckpointStore

# A process that runs a trainer in a child and kills it once it has written up to three more checkpoints, so many times.
# Forking spares each run the seconds that imports take; clients of the broker are made in the child.
SUPERVISOR = """
import json, os, random, signal, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
from daes.storage.checkpoint import CheckpointStore
from daes.training.config import TrainConfig
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.run import train_run
import daes.stream.nats_consumer, daes.stream.kafka_consumer, nats, confluent_kafka, pyarrow.compute

given = json.loads(sys.argv[1])

def run(folder):
    schema = Schema("click", ("price", "age"), ("city",))
    data = Dataset.open(given["url"], schema=schema, max_wait=30.0, limit=given["rows"])
    config = TrainConfig(batch_size=50, checkpoint_every=100, window=500)
    train_run(data, folder, model={"backbone": "fnn", "dim": 4}, config=config, sample_rows=200, resume=True)

def last_step(folder):
    return max(CheckpointStore(Path(folder) / "checkpoints").steps(), default=0)

moments = random.Random(given["seed"])
for folder, most in given["runs"].items():
    kills = 0
    while True:
        more, pause = moments.randrange(4), moments.uniform(0, 0.02)
        until = last_step(folder) + more * 2  # steps of 50 rows, and a checkpoint every 100 rows
        child = os.fork()
        if child == 0:
            try:
                run(folder)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        ends, status = time.monotonic() + 120, None
        while status is None and time.monotonic() < ends:
            pid, code = os.waitpid(child, os.WNOHANG)
            status = code if pid else None
            if status is None and kills < most and last_step(folder) >= until:
                time.sleep(pause)
                break
            time.sleep(0.001)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            kills += 1
            continue
        if status:
            sys.exit(1)
        break
    print(kills)
"""
ROWS = 1500
POISON = (17, 500, 1234)


def supervise(url: str, runs: dict[Path, int]) -> list[int]:
    """Train into each folder, killed so many times at most on the way; how many times each was."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    given = {"url": url, "rows": ROWS, "seed": 1, "runs": {str(folder): kills for folder, kills in runs.items()}}
    command = [sys.executable, "-c", SUPERVISOR, json.dumps(given)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def payloads():
    random = np.random.default_rng(0)
    price = random.lognormal(size=ROWS)
    click = random.random(ROWS) < 1 / (1 + price)
    made = [
        json.dumps({"click": int(click[n]), "price": round(float(price[n]), 3), "age": n, "city": n % 9}).encode()
        for n in range(ROWS)
    ]
    for place in POISON:
        made.insert(place, b"poison")
    return made, int(click.sum())


def counted(folder):
    """What a finished run has counted."""
    metrics = json.loads((folder / "metrics.json").read_text())
    state = CheckpointStore(folder / "checkpoints").load().state
    model = state["step"]["model"]
    letters = [json.loads(line) for line in (folder / "dead_letters.jsonl").read_text().splitlines()]
    return {
        "metrics": metrics["metrics"]["rows"],
        "rows": metrics["rows"],
        "reservoirs": np.asarray(model["numerical.distributions.count"]).tolist(),
        "evidence": np.asarray(model["evidence.total"]).tolist(),
        "sample": int(np.asarray(model["evidence.sample.seen"])),
        "letters": sorted((letter["partition"], letter["offset"]) for letter in letters),
        "dead_letters": metrics["dead_letters"],
    }


@pytest.mark.parametrize(("name", "partitions"), [("nats", 1), ("kafka", 3)])
def test_a_trainer_that_is_killed_counts_every_message_once(name, partitions, tmp_path, request):
    broker = request.getfixturevalue(f"{name}_server")
    url = broker.make()
    made, clicks = payloads()
    broker.send(url, made, **({"partitions": partitions} if partitions > 1 else {}))
    assert supervise(url, {tmp_path / "whole": 0, tmp_path / "run": 4}) == [0, 4]
    found = counted(tmp_path / "run")
    letters = found.pop("letters")
    assert len(set(letters)) == len(letters) == len(POISON)
    assert found == {
        "metrics": ROWS,
        "rows": ROWS,
        "reservoirs": [ROWS, ROWS],
        "evidence": [float(ROWS), float(clicks)],
        "sample": ROWS,
        "dead_letters": len(POISON),
    }
    if partitions == 1:  # of several partitions the order may differ
        one, other = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "whole"))
        assert one["metrics"] == other["metrics"]
        states = [CheckpointStore(tmp_path / name / "checkpoints").load().state for name in ("run", "whole")]
        ours, theirs = (state["step"]["model"] for state in states)
        assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in theirs)


def test_the_command_learns_from_a_topic_until_it_is_told_to_stop(nats_server, tmp_path):
    url = nats_server.make()
    made, _ = payloads()
    nats_server.send(url, made[:1000])

    def daes(*arguments):
        result = CliRunner().invoke(build_app(), ["train", "--out", str(tmp_path / "run"), *arguments, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout), result.stderr

    steps = CheckpointStore(tmp_path / "run" / "checkpoints")

    def stop():
        while not steps.steps():
            time.sleep(0.02)
        nats_server.send(url, made[1000:1100])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    options = ["--sample-rows", "200", "--batch-size", "64", "--backbone", "fnn", "--max-wait", "0.2", "--no-report"]
    stopped, errors = daes(url, *options)
    assert "stopped by SIGTERM after" in errors
    # What was not read when it stopped is read by the run that goes on.
    found, _ = daes("--resume", "--limit", "1098", "--no-report")
    assert (found["resumed_at"], found["rows"], found["dead_letters"]) == (stopped["rows"], 1098, 2)


@pytest.mark.parametrize("more", [{}, {"sold": "not yet"}], ids=["no such column", "a column of text"])
def test_the_label_of_later_messages_has_the_name_that_is_given(more, nats_server, tmp_path):
    rows, outcomes = nats_server.make(), nats_server.make()
    nats_server.send(
        rows, [json.dumps({"id": n, "price": n % 7, "city": "ab"[n % 2], **more}).encode() for n in range(200)]
    )
    nats_server.send(outcomes, [json.dumps({"id": n, "sold": int(n % 4 == 0)}).encode() for n in range(0, 200, 2)])
    options = ["--labels", outcomes, "--key", "id", "--label", "sold", "--label-window", "1s", "--limit", "200"]
    quick = ["--sample-rows", "100", "--batch-size", "50", "--backbone", "fnn", "--no-report", "--json"]
    run, given = tmp_path / "run", ["train", rows, *options, *quick]
    result = CliRunner().invoke(build_app(), [*given, "--out", str(run)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["rows"], found["labels"]["matched"], found["dead_letters"]) == (200, 100, 0)
    model = CheckpointStore(run / "checkpoints").load().state["step"]["model"]
    assert np.asarray(model["evidence.total"]).tolist() == [200.0, 50.0]
    schema = json.loads((run / "config.json").read_text())["schema"]
    assert (schema["label"], schema["numerical"], schema["categorical"]) == ("sold", ["price"], ["city"])
    result = CliRunner().invoke(build_app(), [*given, "--out", str(tmp_path / "other"), "--label-map", "yes=1"])
    assert "label_map is for labels that come with their rows" in result.stderr
