"""Is time linear and memory flat while a long stream is trained on? Prints and writes both along the stream.

    python benchmarks/memory.py --rows 100000000
    python benchmarks/memory.py --device cuda --rows 100000000 --batch-size 65536 --processes 14

On an accelerator one process cannot simulate rows as fast as they are learned from: `--processes` lets several do it.
The resident set and the processor time, which other work on the machine disturbs less than the clock, are those of the
process that trains.
"""

import argparse
import json
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from time import perf_counter, process_time

import torch

from daes.experiments.fingerprint import code_fingerprint
from daes.model import CTRModel
from daes.simulation import AdStream
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.training import StreamTrainer, TrainConfig


class DrawnStream(AdStream):
    """A simulated stream whose batches are drawn by several processes, in order; it ends some time after the first.

    Args:
        num_rows: rows of the stream.
        processes: how many draw; 0 for none beside this one.
        seconds: after how long it ends.
    """

    def __init__(self, num_rows: int, processes: int, seconds: float) -> None:
        super().__init__(num_rows)
        self.processes, self.seconds = processes, seconds

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        batches = self._drawn(schema, batch_size) if self.processes else super().iter_batches(schema, batch_size)
        end = None
        for batch in batches:
            yield batch
            end = end or perf_counter() + self.seconds
            if perf_counter() > end:
                return

    def _drawn(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        context, rows = multiprocessing.get_context("spawn"), self.num_rows
        assert rows is not None
        with ProcessPoolExecutor(self.processes, context, _begin, (rows,)) as pool:
            waiting: deque[Future[Batch]] = deque()
            for start in range(0, rows, batch_size):
                waiting.append(pool.submit(_draw, start, min(start + batch_size, rows), schema))
                if len(waiting) > 2 * self.processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


_drawn_from: list[AdStream] = []
"""The stream that a process draws from."""


def _begin(num_rows: int) -> None:
    _drawn_from.append(AdStream(num_rows))


def _draw(start: int, stop: int, schema: Schema) -> Batch:
    return _drawn_from[0].batch(start, stop, schema)


def resident_megabytes() -> float:
    """Memory of this process in main memory, from the kernel's own count of pages (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Train once over a simulated stream and watch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the stream (20000000)")
    parser.add_argument("--points", type=int, default=20, help="how often to look; also after 1e6 and 1e7 rows")
    parser.add_argument("--batch-size", type=int, default=8192, help="rows per step (8192)")
    parser.add_argument("--method", default="daes", help="what embeds numbers (daes)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--processes", type=int, default=0, help="that simulate rows, beside the one that trains")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end the stream so long after its first batch"
    )
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/memory.json"), help="where JSON goes")
    given = parser.parse_args()

    torch.manual_seed(0)
    stream = DrawnStream(given.rows, given.processes, given.seconds)
    model = CTRModel.from_sample(
        stream.schema,
        stream.batch(0, min(given.rows, 50_000)),
        embedding=given.method,
        backbone="fnn",
        sizes=5000,
        backbone_options={"hidden": (32, 8)},
    ).to(given.device)
    every = max(1, given.rows // given.points)
    marks = iter(sorted({1, 1_000_000, 10_000_000, *range(every, given.rows + 1, every)}))
    mark = next(marks)
    seen: list[tuple[int, float, float, float]] = []
    begin: tuple[float, float] | None = None

    def watch(trainer: StreamTrainer, batch: object, logits: object) -> None:
        nonlocal mark, begin
        if trainer.rows < mark:
            return
        while trainer.rows >= mark:
            mark = next(marks, given.rows + 1)
        now = perf_counter(), process_time()
        begin = begin or now  # after the first batch: by then processes were started and kernels compiled
        seen.append((trainer.rows, now[0] - begin[0], now[1] - begin[1], resident_megabytes()))
        print("{:>12,} rows {:8.1f} s {:8.1f} s of processor {:8.0f} MB".format(*seen[-1]), flush=True)

    result = StreamTrainer(model, TrainConfig(batch_size=given.batch_size), callbacks=[watch]).run(stream)
    later = [megabytes for rows, *_, megabytes in seen if rows >= result.rows / 4]
    growth = later[-1] / later[0] - 1
    print(f"from a quarter of the stream to its end memory grew by {growth:+.1%}; AUC {result.metrics['auc']:.4f}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    names = "rows", "seconds", "processor_seconds", "resident_megabytes"
    points = [dict(zip(names, point, strict=True)) for point in seen]
    found = {"code": code_fingerprint(), "rows": result.rows, "growth": growth, "points": points}
    given.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
