"""One process of those that `test_torchrec` starts: does a task and prints what it found as JSON."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from daes.embedding.categorical import CategoricalEmbedding
from daes.engines.torchrec import ShardedEmbedding, unsharded
from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema

SIZES = {"city": 50, "device": 7}
OPTIMIZERS = {"sgd": (torch.optim.SGD, {}), "adagrad": (torch.optim.Adagrad, {"eps": 1e-10})}


def train(rank: int, world: int, optimizer: str) -> dict[str, object]:
    """Steps on parts of a batch, of one process none at all, against steps on the whole batch with a plain table."""
    torch.manual_seed(0)
    plain = CategoricalEmbedding(SIZES, 4)
    table = ShardedEmbedding(SIZES, 4, optimizer=optimizer, learning_rate=0.1)
    table.load_rows(plain.weight.detach())
    make, options = OPTIMIZERS[optimizer]
    steps = make(plain.parameters(), lr=0.1, **options)
    differences = []
    random = torch.Generator().manual_seed(1)  # the same rows in all processes
    for step in range(4):
        ids = torch.randint(0, 60, (12, 2), generator=random)
        goal = torch.randn(12, 2, 4, generator=random)
        parts = [slice(0, 12)] if world == 1 else ([slice(0, 6), slice(6, 12)] if step else [slice(0, 12), slice(0, 0)])
        own = parts[rank]
        found = table(ids[own])
        wanted = plain(ids)
        differences.append(float((found - wanted[own]).abs().max()) if len(found) else 0.0)
        # The sum over processes, each divided by their number, is the gradient of the whole batch's mean.
        ((found - goal[own]).square().sum() * world / 12).backward()
        steps.zero_grad()
        ((wanted - goal).square().sum() / 12).backward()
        steps.step()
    whole = table.whole()
    if whole is not None:
        differences.append(float((whole - plain.weight).abs().max()))
    return {"worst": max(differences), "shard": list(table.shard.shape), "first_row": table.first_row}


def memory(rank: int, world: int, rows: int) -> dict[str, object]:
    """What a large table and its optimiser add to the memory of a process."""
    ShardedEmbedding([10], 8)(
        torch.tensor([[1]])
    ).sum().backward()  # what is loaded at the first use is not the table's
    before = _resident()
    table = ShardedEmbedding([rows - 2], 8)
    for start in range(0, rows, rows // 250):  # a page of the optimiser's state is there once it is written to
        ids = torch.arange(start + 1, min(start + rows // 250, rows) + 1)[rank::world].unsqueeze(1)
        table(ids).sum().backward()
    return {"grown": _resident() - before, "shard": list(table.shard.shape)}


def save(rank: int, world: int, folder: str) -> dict[str, object]:
    """A model with a sharded table scores as the plain one that is made of it, which can be saved."""
    schema = Schema("click", ("price",), tuple(SIZES))
    torch.manual_seed(0)
    model = CTRModel(schema, "fe", "fnn", evidence=False, categorical=ShardedEmbedding(SIZES, 8)).eval()
    random = np.random.default_rng(0)
    batch = Batch(random.random((9, 1), np.float32), random.integers(0, 90, (9, 2)))
    scores = model.predict_proba(batch)
    try:
        model.state_dict()
        refused = ""
    except RuntimeError as error:
        refused = str(error)
    made = unsharded(model)
    if made is None:
        return {"refused": refused, "parameters": len(list(model.parameters()))}
    made.save_pretrained(Path(folder))
    again = CTRModel.from_pretrained(Path(folder)).predict_proba(batch)
    return {"worst": float(np.abs(again - scores).max()), "refused": refused, "sizes": made.sizes}


def _resident() -> int:
    """Bytes of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    rank, world, store, task, argument = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    tasks = {"train": train, "memory": lambda *given: memory(*given[:2], int(given[2])), "save": save}
    print(json.dumps(tasks[task](int(rank), int(world), argument)))
    dist.destroy_process_group()
    # Threads of TorchRec's libraries at times abort a process that ends as usual, with all done and said.
    sys.stdout.flush()
    os._exit(0)
