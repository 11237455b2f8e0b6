"""One process of those that `test_divided_tables` starts with torchrun: trains with a large table, says what it took.

torchrun --nproc-per-node 2 tests/engines/divided_worker.py no|torch|torchrec IDS DATA OUT
"""

import json
import os
import sys
import threading
from pathlib import Path

import torch

from daes.cli.train import _tables
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.processes import memory as memory_of_machine
from daes.training.processes import process_group
from daes.training.run import train_run


def memory() -> int:
    """Bytes of memory that the process has now, without pages of files."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


class Peak(threading.Thread):
    """Looks at the memory of the process all the time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = memory()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.01):
            self.most = max(self.most, memory())

    def stop(self) -> int:
        self._end.set()
        self.join()
        return self.most


def train(by: str, ids: int, data: str, out: str) -> int:
    """The most memory that a run took in this process, which is resumed if there is one."""
    peak = Peak()
    peak.start()
    model = {"embedding": "fe", "backbone": "fnn", "dim": 8, "evidence": False, "sizes": {"user": ids}}
    config = TrainConfig(batch_size=100, checkpoint_every=1000)
    tables = _tables(by, int(os.environ["WORLD_SIZE"]))
    train_run(Dataset.open(data), out, model=model, config=config, resume=True, tables=tables)
    return peak.stop()


if __name__ == "__main__":
    by, ids, data, out = sys.argv[1:]
    torch.set_num_threads(1)
    if by == "no":
        memory_of_machine._machine = lambda: None  # whole tables as on two machines, which do not share memory
    with process_group() as processes:
        small = train(by, 10, data, f"{out}-small")  # what is loaded at the first use is not the table's
        taken = processes.gather(train(by, int(ids), data, out) - small)
        if processes.first:
            print(json.dumps(taken))
    # Threads of TorchRec's libraries at times abort a process that ends as usual, with all done and said.
    sys.stdout.flush()
    os._exit(0)
