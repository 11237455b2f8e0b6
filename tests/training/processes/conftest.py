import multiprocessing
import os
import pickle
import signal
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist

from daes.storage.checkpoint import CheckpointStore
from daes.storage.run_folder import RunFolder


@dataclass
class Outcome:
    """What became of a process: what its function returned, or the error, or the signal that ended it."""

    value: Any = None
    error: str = ""
    exit_code: int | None = 0


def _work(rank, world, store, timeout, function, arguments, pipe):
    torch.set_num_threads(1)  # threads of the parent do not outlive the fork
    try:
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(seconds=timeout)
        )
        outcome = Outcome(function(rank, *arguments))
    except BaseException as error:
        outcome = Outcome(error=f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    pipe.send_bytes(
        pickle.dumps(outcome)
    )  # whole: tensors would be sent as places in memory that ends with the process
    os._exit(0)


@pytest.fixture
def in_processes(tmp_path_factory):
    """Call `function(rank, *arguments)` in `world` processes with a gloo group; what became of each.

    Unless `may_fail`, an error of one is an error here.
    """

    def run(world, function, *arguments, may_fail=False, meanwhile=None, timeout=60):
        store = str(tmp_path_factory.mktemp("store") / "file")
        context = multiprocessing.get_context("fork")
        pipes, workers = [], []
        for rank in range(world):
            mine, theirs = context.Pipe(duplex=False)
            worker = context.Process(
                target=_work, args=(rank, world, store, timeout, function, arguments, theirs), daemon=True
            )
            worker.start()
            theirs.close()
            pipes.append(mine)
            workers.append(worker)
        try:
            if meanwhile is not None:
                meanwhile(workers)
            outcomes = []
            for pipe, worker in zip(pipes, workers, strict=True):
                try:
                    outcome = (
                        pickle.loads(pipe.recv_bytes()) if pipe.poll(120) else Outcome(error="no answer within 120 s")
                    )
                except EOFError:
                    worker.join(10)
                    outcome = Outcome(error="ended", exit_code=worker.exitcode)
                outcomes.append(outcome)
        finally:
            for worker in workers:
                worker.kill()
        for outcome in outcomes:
            assert may_fail or not outcome.error, outcome.error
        return outcomes if may_fail else [outcome.value for outcome in outcomes]

    return run


@pytest.fixture(scope="module")
def clicks(request, tmp_path_factory):
    """A Parquet file of the `ROWS` of the module."""
    rows = request.module.ROWS
    random = np.random.default_rng(0)
    price = random.lognormal(size=rows)
    table = {
        "click": (random.random(rows) < 1 / (1 + price)).astype(np.int8),
        "price": pa.array(price, mask=random.random(rows) < 0.1),
        "city": pa.array([f"city {number}" for number in random.integers(0, 30, rows)]),
        "device": pa.array([f"device {number}" for number in random.integers(0, 5, rows)]),
    }
    path = tmp_path_factory.mktemp("data") / "clicks.parquet"
    pq.write_table(pa.table(table), path, row_group_size=100)
    return path


@pytest.fixture
def kill_at_a_checkpoint():
    """Kill the second process once the run in a folder has a checkpoint: for `meanwhile`."""

    def make(folder):
        def kill(workers):
            while not CheckpointStore(RunFolder(folder).checkpoints).steps():
                time.sleep(0.01)
            os.kill(workers[1].pid, signal.SIGKILL)

        return kill

    return make
