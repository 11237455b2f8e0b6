"""How fast estimators of a stream's distribution are, as ratios within one run, with their error beside it.

A stream of lognormal values in batches of 8192 goes through a bare NaN scan (the floor: less no one can do who looks at
the values), a sort of each batch (what order statistics pay), Apache DataSketches' KLL and t-digest by themselves and
as they are here (which also skip and count what is not finite), GK, and the reservoirs; KLL and one of these also with
their deciles read after every batch, as a model that refreshes its knots each step does.

Values are made a chunk at a time, outside of the timing. Every contender then takes the same chunk, in an order that
rotates, so that all share whatever else the machine does; time is that of the process. With `--repeat k` the stream is
run k times and each chunk counts with its best time.

Rank errors are exact: after a run the stream is made once more, and the values below each estimate are counted.

    python benchmarks/estimators.py
    python benchmarks/estimators.py --lengths 1000000 10000000 --repeat 5 --out build/benchmarks/estimators.json
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from time import get_clock_info, perf_counter, process_time
from typing import Any

import datasketches
import numpy as np
from numpy.typing import NDArray

import daes
from daes.distribution import DistributionEstimator, GKSketch, JumpReservoir, KLLSketch, Reservoir, TDigestSketch

BATCH = 8192
CHUNK = 64 * BATCH
LENGTHS = (1_000_000, 10_000_000, 40_000_000)
LEVELS = np.arange(1, 100) / 100
DECILES = np.arange(1, 10) / 10

FLOOR, PEER, READ_PEER = "NaN scan", "DataSketches KLL k=200", "DataSketches KLL, read each batch"
TARGET_LENGTH = 40_000_000
TIMES_KLL, TIMES_SCAN, RANK_ERROR = 10.0, 8.0, 0.004

# Time of this process, not of the wall: on a busy machine the slow contenders would else be interrupted more often.
CLOCK = process_time if get_clock_info("process_time").resolution < 1e-6 else perf_counter

Floats = NDArray[np.float64]
Step = Callable[[Floats], Any]


@dataclass(frozen=True)
class Contender:
    """What is run: `start` gives what is done to each batch, and the estimator that is asked at the end, if any."""

    name: str
    start: Callable[[], tuple[Step, DistributionEstimator | None]]


@dataclass(frozen=True)
class Row:
    """One contender on one stream."""

    name: str
    seconds: float
    values_per_second: float
    times_scan: float
    speed_up_over_kll: float
    max_rank_error: float | None
    state_bytes: int | None


@dataclass(frozen=True)
class Target:
    """What was asked for and what was measured."""

    name: str
    wanted: float
    measured: float
    reached: bool


def contenders(size: int) -> list[Contender]:
    """All that are compared, at `size` slots per reservoir."""
    return [
        Contender(FLOOR, lambda: (lambda batch: np.isnan(batch).any(), None)),
        Contender("sort of each batch", lambda: (np.sort, None)),
        Contender(PEER, lambda: (datasketches.kll_doubles_sketch(200).update, None)),
        Contender(READ_PEER, _kll_read),
        Contender("DataSketches t-digest k=200", lambda: (datasketches.tdigest_double(200).update, None)),
        Contender("KLLSketch k=200", lambda: _updates(KLLSketch(200))),
        Contender("TDigestSketch k=200", lambda: _updates(TDigestSketch(200))),
        Contender("GKSketch ε=0.001", lambda: _updates(GKSketch(0.001))),
        Contender("RS", lambda: _updates(Reservoir(size))),
        Contender("JRS exact", lambda: _updates(JumpReservoir(size))),
        Contender("JRS exact, read each batch", lambda: _updates_and_reads(JumpReservoir(size))),
        Contender("JRS exact, read, tolerance 0.1 %", lambda: _updates_and_reads(JumpReservoir(size, tolerance=1e-3))),
        Contender("JRS paper", lambda: _updates(JumpReservoir(size, skip="paper"))),
    ]


def _kll_read() -> tuple[Step, None]:
    sketch = datasketches.kll_doubles_sketch(200)

    def step(batch: Floats) -> None:
        sketch.update(batch)
        sketch.get_quantiles(DECILES)

    return step, None


def _updates(estimator: DistributionEstimator) -> tuple[Step, DistributionEstimator]:
    return estimator.update, estimator


def _updates_and_reads(estimator: DistributionEstimator) -> tuple[Step, DistributionEstimator]:
    def step(batch: Floats) -> None:
        estimator.update(batch)
        estimator.quantile(DECILES)

    return step, estimator


def chunks(length: int, seed: int) -> Iterator[Floats]:
    """The stream, always the same for a seed."""
    # Other numbers than those the reservoirs draw from the same seed.
    rng = np.random.default_rng((CHUNK, seed))
    for start in range(0, length, CHUNK):
        yield rng.lognormal(size=min(CHUNK, length - start))


def measure(length: int, size: int, repeat: int, seed: int) -> list[Row]:
    """All contenders on one stream."""
    field = contenders(size)
    best = np.full((len(field), -(-length // CHUNK)), np.inf)
    estimators: list[DistributionEstimator | None] = []
    for number in range(repeat):
        started = [contender.start() for contender in field]
        estimators = [estimator for _, estimator in started]
        for place, chunk in enumerate(chunks(length, seed)):
            batches = np.split(chunk, range(BATCH, chunk.size, BATCH))
            for turn in range(len(field)):
                which = (turn + place + number) % len(field)
                best[which, place] = min(best[which, place], _time(started[which][0], batches))
            _say(f"{length:,} values, run {number + 1} of {repeat}: {(place + 1) / best.shape[1]:.0%}")
    seconds = best.sum(axis=1).tolist()
    errors = _rank_errors(estimators, length, seed)
    names = [contender.name for contender in field]
    scan, kll = seconds[names.index(FLOOR)], seconds[names.index(PEER)]
    return [
        Row(
            name=name,
            seconds=spent,
            values_per_second=length / spent,
            times_scan=spent / scan,
            speed_up_over_kll=kll / spent,
            max_rank_error=error,
            state_bytes=None if estimator is None else int(estimator.nbytes),  # type: ignore[attr-defined]
        )
        for name, spent, error, estimator in zip(names, seconds, errors, estimators, strict=True)
    ]


def _time(step: Step, batches: Sequence[Floats]) -> float:
    start = CLOCK()
    for batch in batches:
        step(batch)
    return CLOCK() - start


def _rank_errors(estimators: Sequence[DistributionEstimator | None], length: int, seed: int) -> list[float | None]:
    """The largest distance between a level and the rank that the estimate for it has in the stream."""
    quantiles = [None if estimator is None else estimator.quantile(LEVELS) for estimator in estimators]
    points = np.sort(np.concatenate([estimate for estimate in quantiles if estimate is not None]))
    # counts[i] is of values above exactly i of the points, so that the first i + 1 counts are of values up to point i.
    counts = np.zeros(points.size + 1, np.int64)
    for chunk in chunks(length, seed):
        counts += np.bincount(points.searchsorted(chunk, side="left"), minlength=points.size + 1)
    ranks = np.cumsum(counts[:-1]) / length
    return [
        None if estimate is None else float(np.abs(ranks[points.searchsorted(estimate)] - LEVELS).max())
        for estimate in quantiles
    ]


def judge(rows: Sequence[Row]) -> list[Target]:
    """What JRS exact was to reach, on the stream of these rows."""
    jump = next(row for row in rows if row.name == "JRS exact")
    assert jump.max_rank_error is not None
    return [
        Target(
            "values/s over DataSketches KLL's, at least",
            TIMES_KLL,
            jump.speed_up_over_kll,
            jump.speed_up_over_kll >= TIMES_KLL,
        ),
        Target("time over the NaN scan's, at most", TIMES_SCAN, jump.times_scan, jump.times_scan <= TIMES_SCAN),
        Target("largest rank error, at most", RANK_ERROR, jump.max_rank_error, jump.max_rank_error <= RANK_ERROR),
    ]


def show(length: int, rows: Sequence[Row]) -> None:
    """One table."""
    print(f"\n{length:,} values")
    print(f"{'':34}{'values/s':>10}{'× scan':>9}{'× KLL':>9}{'rank error':>12}{'state':>10}")
    for row in rows:
        error = "" if row.max_rank_error is None else f"{100 * row.max_rank_error:.3f} %"
        state = "" if row.state_bytes is None else f"{row.state_bytes:,}"
        ratios = f"{row.times_scan:9.2f}{row.speed_up_over_kll:9.2f}"
        print(f"{row.name:34}{row.values_per_second / 1e6:8.1f} M{ratios}{error:>12}{state:>10}")


def show_targets(length: int, targets: Sequence[Target]) -> None:
    """Whether JRS exact reached what it was to reach."""
    note = "" if length == TARGET_LENGTH else f" (the targets are meant for {TARGET_LENGTH:,})"
    print(f"\nTargets of JRS exact, measured on {length:,} values{note}:")
    for target in targets:
        reached = "reached" if target.reached else "NOT reached"
        print(f"  {target.name:42} {target.wanted:g}: {target.measured:.3g}, {reached}")


def environment() -> dict[str, Any]:
    """What the numbers were measured with."""
    return {
        "daes": daes.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "datasketches": version("datasketches"),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "clock": CLOCK.__name__,
    }


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=_positive, nargs="+", default=LENGTHS, help="values a stream")
    parser.add_argument("--size", type=_positive, default=100_000, help="slots per reservoir (100000)")
    parser.add_argument("--repeat", type=_positive, default=3, help="runs a stream; each chunk's best time counts (3)")
    parser.add_argument("--seed", type=int, default=0, help="of the stream (0)")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/estimators.json"), help="where JSON goes")
    given = parser.parse_args()

    print(f"Batches of {BATCH:,}, reservoirs of {given.size:,}, best of {given.repeat} interleaved runs a chunk.")
    print("× scan: time over the NaN scan's. × KLL: values/s over DataSketches KLL's.")
    print("Rank error: the largest at 99 percentiles. State: bytes.")
    streams = {}
    for length in given.lengths:
        streams[length] = measure(length, given.size, given.repeat, given.seed)
        _say("")
        show(length, streams[length])
    longest = max(streams)
    targets = judge(streams[longest])
    show_targets(longest, targets)

    given.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "benchmark": "estimators",
        "batch": BATCH,
        "size": given.size,
        "repeat": given.repeat,
        "seed": given.seed,
        "environment": environment(),
        "streams": [{"length": length, "rows": [asdict(row) for row in rows]} for length, rows in streams.items()],
        "targets": {"length": longest, "meant_for": TARGET_LENGTH, "items": [asdict(target) for target in targets]},
    }
    given.out.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    print(f"\nwrote {given.out}")


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"a positive whole number is needed, got {text}")
    return number


if __name__ == "__main__":
    main()
