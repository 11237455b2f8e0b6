"""What a second process is worth: rows per second, processor time per row and quality of 1, 2, … processes.

python benchmarks/processes.py clicks.parquet --processes 1,2 --seeds 3 [--read each]

Cores share memory, caches and power, and some are two for the price of one: with `--apart` each process trains a model
of its own, which shows what as many processes can do at the most on a machine.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.stream.source import BatchSource
from daes.training import StreamTrainer, TrainConfig
from daes.training.processes import Processes, ProcessTrainer, read_together


def open_data(what: str, limit: int | None, read: str | None) -> Dataset:
    """The rows; `random:ROWS` are 13 numbers and 26 categories as Criteo has them, in memory, and need no packages."""
    if not what.startswith("random:"):
        data = Dataset.open(what, limit=limit)
        return data.in_memory() if read is None else data
    rows = int(what.partition(":")[2])
    random = np.random.default_rng(0)
    numbers = random.lognormal(2.0, 2.0, (rows, 13)).astype(np.float32)
    numbers[random.random(numbers.shape) < 0.2] = np.nan
    ids = np.minimum(random.zipf(1.2, (rows, 26)), 10 ** (1 + np.arange(26) % 6)).astype(np.int64) * 0x9E3779B97F4A7C1
    logit = np.log(numbers[:, 0]) / 4 + (ids[:, 0] % 7 - 3) / 3 - 1
    label = (random.random(rows) < 1 / (1 + np.exp(-np.nan_to_num(logit)))).astype(np.float32)
    schema = Schema("click", tuple(f"n{place}" for place in range(13)), tuple(f"c{place}" for place in range(26)))
    return Dataset(BatchSource(Batch(numbers, ids, label), schema), schema, limit=limit)


def work(rank: int, world: int, store: str, given: argparse.Namespace, seed: int, ready: Any, results: Any) -> None:
    """One process of a run; what it took goes into the queue."""
    torch.set_num_threads(1)
    world = 1 if given.apart else world
    if world > 1:
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(minutes=10)
        )
    data, prefetch = open_data(given.data, given.limit, given.read), 0 if given.read is None else 2
    torch.manual_seed(seed)
    sample = data.sample(10_000)
    options = {"hidden": tuple(int(width) for width in given.hidden.split(","))} if given.hidden else {}
    model = CTRModel.from_sample(data.schema, sample, backbone=given.backbone, backbone_options=options)
    model = model.to(given.device)
    batch_size = given.batch_size * (world if given.weak else 1)
    config = TrainConfig(batch_size=batch_size, seed=seed, window=10_000, sync_every=given.sync_every)
    trainer: StreamTrainer
    processes = Processes()
    marks: list[tuple[int, float, float]] = []

    def mark(trainer: StreamTrainer, *_: Any) -> None:
        marks.append((trainer.rows, time.perf_counter(), time.process_time()))

    if world == 1:
        trainer, source = StreamTrainer(model, config, callbacks=[mark]), data.from_start(prefetch=prefetch)
    else:
        trainer = ProcessTrainer(model, config, processes, callbacks=[mark])
        source = read_together(data, processes, prefetch=prefetch)
        if given.read == "each":
            source = data.from_start(prefetch=prefetch)
    ready.wait()  # all have their data
    marks.append((0, time.perf_counter(), time.process_time()))
    result = trainer.run(source)
    begun = next(one for one in marks if one[0] >= given.skip)
    mark(trainer)
    rows, wall, processor = (end - start for start, end in zip(begun, marks[-1], strict=True))
    results.put(
        {
            "rank": rank,
            "rows": rows,
            "seconds": wall,
            "processor_seconds": processor,
            "auc": result.metrics["auc"],
            "logloss": result.metrics["logloss"],
            "exchanges": getattr(trainer, "exchanges", 0),
        }
    )


def run(world: int, given: argparse.Namespace, seed: int) -> dict[str, Any]:
    """A run of so many processes: the time of the slowest, the processor time of the busiest."""
    context = multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(world)
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=work, args=(rank, world, f"{folder}/store", given, seed, ready, results))
            for rank in range(world)
        ]
        for worker in workers:
            worker.start()
        found = [results.get(timeout=3600) for _ in workers]
        for worker in workers:
            worker.join()
    found.sort(key=lambda one: one["rank"])
    rows, slowest = found[0]["rows"], max(one["seconds"] for one in found)
    processor = [1e6 * one["processor_seconds"] / rows for one in found]
    return {
        "processes": world,
        "apart": given.apart,
        "seed": seed,
        "rows": rows,
        "rows_per_second": rows * (world if given.apart else 1) / slowest,
        "processor_us_per_row": max(processor),
        "processor_us_per_row_by_rank": processor,
        **{name: found[0][name] for name in ("auc", "logloss", "exchanges")},
    }


def main() -> None:
    """Train in 1, 2, … processes, one after the other, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="what `daes train` takes; random:ROWS for random ones")
    parser.add_argument("--limit", type=int, default=None, help="rows")
    parser.add_argument("--skip", type=int, default=0, help="rows before the clock starts")
    parser.add_argument("--processes", default="1,2", help="numbers of processes, separated by commas")
    parser.add_argument("--seeds", type=int, default=1, help="runs with different seeds (1)")
    parser.add_argument("--batch-size", type=int, default=32, help="rows per step (32)")
    parser.add_argument("--weak", action="store_true", help="the batch size is that of each process, not of all")
    parser.add_argument("--apart", action="store_true", help="each process trains a model of its own on all rows")
    parser.add_argument("--sync-every", type=int, default=20_000, help="as in `daes train` (20000)")
    parser.add_argument(
        "--read",
        choices=("together", "each"),
        help="read the files while training, as `daes train` does, or everything in each process; default: in memory",
    )
    parser.add_argument("--backbone", default="deepfm", help="name (deepfm)")
    parser.add_argument("--hidden", help="widths of the backbone's hidden layers, separated by commas")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/processes.json"), help="where JSON goes")
    given = parser.parse_args()
    numbers = [int(number) for number in given.processes.split(",")]
    found = []
    print("processes  seed      rows    rows/s  processor µs/row     AUC  LogLoss  exchanges")
    for seed in range(given.seeds):
        for world in numbers:
            one = run(world, given, seed)
            found.append(one)
            print(
                f"{world:9d} {seed:5d} {one['rows']:9,d} {one['rows_per_second']:9,.0f}"
                f" {one['processor_us_per_row']:17.2f}  {one['auc']:.4f}   {one['logloss']:.4f} {one['exchanges']:10d}",
                flush=True,
            )
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
