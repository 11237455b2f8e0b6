"""Everything that is to be fast on a CPU, in one table: docs/results/speed-cpu.json and benchmarks/README.md.

    python -m benchmarks cpu --data criteo.parquet
    python -m benchmarks cpu --only steps layers --out build/benchmarks/speed-cpu.json

- steps: a training step (score, learn, observe, count) on rows in memory, one thread.
- scores: frozen models, many rows at a time and one.
- parquet: whole passes from a Parquet file, reading and monitoring included, on the wall clock.
- layers: forward, backward and observing of the layer that embeds numbers, against an EFD look-up and compiled peers.
- estimators: reservoirs against Apache DataSketches' KLL.
- start: what importing and the first lines of the program take, as CPU time of a new process.
- peers: whole passes on the wall clock against what other libraries do with all cores while they only learn, from rows
  in memory that are encoded already. They are installed first, into build/peers; only with `--only peers`.

Contenders take turns, and each counts with its best turn; except for whole passes time is that of the process.
Without `--data` rows are those of the simulated ad stream.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from time import process_time
from typing import Any

import torch

from benchmarks import estimators, layers
from benchmarks.peers.__main__ import FOLDER, measure
from benchmarks.serving import make_rows, summary, timed
from benchmarks.table import Entry, machine, table, write
from daes import native
from daes.model import CTRModel
from daes.serving.scorer import Scorer
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.run import train_run
from daes.training.step import TrainingStep

ROWS = 30_000
NAMES = {"deepfm": "DeepFM", "fnn": "FNN", "dcnv2": "DCN v2"}


@contextmanager
def plainly() -> Iterator[None]:
    """Within it compiled loops are not used."""
    kept, native._library = native._library, None
    try:
        yield
    finally:
        native._library = kept


def steps(data: Dataset, repeat: int) -> list[Entry]:
    """Milliseconds of a step and ratios between methods."""
    rows = data.sample(ROWS)
    found = []
    for backbone, size in (
        ("deepfm", 32),
        ("deepfm", 128),
        ("deepfm", 8192),
        ("fnn", 8192),
        ("dcnv2", 32),
        ("dcnv2", 128),
    ):
        kinds: dict[str, dict[str, Any]] = {
            "daes": {},
            "efd": {"embedding": "efd"},
            "without evidence": {"evidence": False},
            "without errors": {"evidence": {"recent": None}},
            "plain": {},
        }
        made = {name: _step(data, rows, size, {"backbone": backbone, **kind}) for name, kind in kinds.items()}
        count = max(2, min(40, ROWS // size))
        batches = cycle([rows[start : start + size] for start in range(0, ROWS - size + 1, size)])
        best = dict.fromkeys(kinds, float("inf"))
        for _ in range(repeat):
            turn = list(islice(batches, count))
            for name, step in made.items():
                best[name] = min(best[name], _turn(step, turn, name == "plain"))
        what = f"{NAMES[backbone]}, batch {size}"
        target = {32: 2.0, 128: 4.5}.get(size) if backbone == "deepfm" else None
        found += [
            Entry(f"{what}: a step with `daes`", 1e3 * best["daes"], "ms", target, higher=False),
            Entry(f"{what}: rows/s of `daes` over EFD's", best["efd"] / best["daes"], "×", 0.97),
            Entry(f"{what}: rows/s with evidence over without", best["without evidence"] / best["daes"], "×", 0.97),
            Entry(f"{what}: rows/s with recent errors over without", best["without errors"] / best["daes"], "×"),
            Entry(f"{what}: time without compiled loops over with them", best["plain"] / best["daes"], "×"),
        ]
    return found


def _step(data: Dataset, rows: Batch, size: int, options: dict[str, Any]) -> TrainingStep:
    torch.manual_seed(0)
    model = CTRModel.from_sample(data.schema, rows[:10_000], **options)
    step = TrainingStep(model, TrainConfig(batch_size=size))
    step.correcting = True
    step.learn(rows, 0)  # as in the middle of a stream
    return step


def _turn(step: TrainingStep, batches: list[Batch], plain: bool) -> float:
    """Seconds of a step."""
    if plain:
        with plainly():
            return _turn(step, batches, False)
    started = process_time()
    for batch in batches:
        step.score_and_learn(batch, 0)
    return (process_time() - started) / len(batches)


def scores(data: Dataset, repeat: int) -> list[Entry]:
    """Frozen models against each other, and one row, reading included."""
    rows, found = data.sample(ROWS), []
    models = {name: _step(data, rows, 8192, {"embedding": name}).model for name in ("daes", "efd")}
    made = {name: Scorer(model.freeze()) for name, model in models.items()}
    for size in (128, 8192):
        best = dict.fromkeys(made, float("inf"))
        batches = [rows[start : start + size] for start in range(0, ROWS - size + 1, size)][:40]
        for _ in range(repeat):
            for name, scorer in made.items():
                started = process_time()
                for batch in batches:
                    scorer.score(batch)
                best[name] = min(best[name], process_time() - started)
        found.append(
            Entry(f"DeepFM, frozen, batch {size}: rows/s of `daes` over EFD's", best["efd"] / best["daes"], "×", 0.99)
        )
    row = make_rows(data.schema, 1)
    median = summary(timed(lambda: made["daes"].score_rows(row), 1.0), 1)["p50"]
    found.append(Entry("DeepFM, frozen: a row given as a dict, median", 1e6 * median, "µs", 150.0, higher=False))
    return found


def parquet(data: Dataset, repeat: int) -> list[Entry]:
    """Rows a second of whole runs."""
    found = []
    for backbone, size, target in (
        ("deepfm", 32, 16e3),
        ("deepfm", 128, 27e3),
        ("deepfm", 8192, None),
        ("fnn", 8192, None),
        ("dcnv2", 8192, None),
    ):
        best = max(_pass(data, backbone, size) for _ in range(repeat))
        what = f"{NAMES[backbone]}, batch {size}: a pass with `daes`, reading included"
        found.append(Entry(what, best, "rows/s", target))
    return found


def _pass(data: Dataset, backbone: str, size: int) -> float:
    """Rows a second of a run."""
    limit = min(data.num_rows or ROWS, 4_000 * size)
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(batch_size=size)
        run = train_run(data.head(limit), Path(folder, "run"), model={"backbone": backbone}, config=config)
    return run.result.rows_per_second


def against_peers(data: Dataset, repeat: int) -> list[Entry]:
    """Whole runs against learning alone, each with one thread of torch or with one per core, whichever is quicker."""
    found = []
    threads, numbers = torch.get_num_threads(), sorted({1, os.cpu_count() or 1})
    for size, backbones in ((128, {"deepfm": 1.5}), (8192, {"deepfm": 1.5, "fnn": 1.5, "dcnv2": 1.1})):
        passes, peers = dict.fromkeys(backbones, 0.0), dict.fromkeys(NAMES.values(), (0.0, ""))
        for _ in range(repeat):
            for number in numbers:
                torch.set_num_threads(number)
                for backbone in backbones:
                    passes[backbone] = max(passes[backbone], _pass(data, backbone, size))
                for one in measure(data, 50_000, size, number, FOLDER):
                    peers[one.model] = max(peers.get(one.model, (0.0, "")), (one.rows_per_second, one.peer))
        torch.set_num_threads(threads)
        for backbone, target in backbones.items():
            (fastest, peer), what = peers[NAMES[backbone]], f"{NAMES[backbone]}, batch {size}"
            if fastest:
                found.append(Entry(f"{what}: the fastest peer while it only learns", fastest, f"rows/s ({peer})"))
                found.append(Entry(f"{what}: a pass over the fastest peer", passes[backbone] / fastest, "×", target))
    return found


def embedding_layers(repeat: int) -> list[Entry]:
    """Ratios to an EFD look-up, as it is and compiled, and to rtdl's PLE, compiled."""
    device, sizes = torch.device("cpu"), layers.Sizes(8192, 13, 16, 10)
    field, _ = layers.make_contenders(sizes, device, 1_000_000, 0)
    ours = ("daes", "daes-gate, 160 contexts")
    names = ("efd", *ours, "rtdl's PLE", *(f"{name}, compiled" for name in layers.COMPILED))
    rows = {row.name: row for row in layers.measure([one for one in field if one.name in names], repeat, device)}
    learning, scoring = layers.PHASES[2], layers.PHASES[0]
    found = [
        Entry("EFD, 8192 × 13, d = 16: forward and backward", rows["efd"].milliseconds[learning], "ms", higher=False)
    ]
    for name in names[1:]:
        if name in rows:
            over = rows[name].ratio
            found.append(Entry(f"{name}: forward, backward and observing over EFD", over[learning], "×", higher=False))
            found.append(Entry(f"{name}: forward in eval mode over EFD", over[scoring], "×", higher=False))
    for peer, target in (("efd, compiled", 1.5), ("rtdl's PLE, compiled", 1.0)):
        for name in ours if peer in rows else ():
            ratio = rows[name].milliseconds[learning] / rows[peer].milliseconds[learning]
            what = f"{name}: forward, backward and observing over {peer.replace('efd', 'EFD')}"
            found.append(Entry(what, ratio, "×", target, higher=False))
    return found


def reservoirs(repeat: int) -> list[Entry]:
    """Values a second over those of KLL."""
    found = []
    for length, target in ((1_000_000, 6.0), (10_000_000, 12.0)):
        rows = {row.name: row for row in estimators.measure(length, 100_000, repeat, 0)}
        jump, read = rows["JRS exact"], rows["JRS exact, read, tolerance 0.1 %"]
        found.append(
            Entry(f"`JumpReservoir`, {length:,} values: values/s over KLL's", jump.speed_up_over_kll, "×", target)
        )
        found.append(
            Entry(f"the same, {length:,} values, deciles read after every batch", read.speed_up_over_kll, "×", 5.0)
        )
        both = read.values_per_second / rows[estimators.READ_PEER].values_per_second
        found.append(Entry(f"the same, {length:,} values, where KLL's deciles are read too", both, "×"))
    return found


def start(data: str, repeat: int) -> list[Entry]:
    """CPU seconds of new processes, the imports of torch included."""
    train = "from daes.__main__ import main; main()"
    # The process ends where progress would be shown for the first time, after the first batch.
    first = (
        f"import os; from daes.cli.progress import RowProgress; RowProgress.advance = lambda *_: os._exit(0); {train}"
    )
    calls: dict[str, tuple[list[str], float | None]] = {
        "`import torch`, for comparison": (["-c", "import torch"], None),
        "`import daes`": (["-c", "import daes"], 0.1),
        "`daes --help`": (["-c", train, "--help"], 0.3),
        "`import daes.classifier`": (["-c", "import daes.classifier"], 2.0),
        f"`daes train {Path(data).name}`, up to its first progress": (["-c", first, "train", data, "--no-report"], 2.5),
        "`daes train adstream:1000`, from start to end": (["-c", train, "train", "adstream:1000", "--no-report"], None),
    }
    found = []
    for what, (arguments, target) in calls.items():
        best = min(_spent(lambda: _run(arguments)) for _ in range(repeat))  # noqa: B023 (called at once)
        found.append(Entry(what, best, "s", target, higher=False))
    return found


def _run(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        more = ["--out", str(Path(folder, "run"))] if "train" in arguments else []
        subprocess.run([sys.executable, *arguments, *more], check=True, capture_output=True)


def _spent(work: Callable[[], None]) -> float:
    """CPU seconds of the processes that the work starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("steps", "scores", "parquet", "layers", "estimators", "start")
    parser.add_argument("--data", default=f"adstream:{ROWS}", help="rows with a label, as `daes train` takes them")
    parser.add_argument("--only", nargs="+", choices=(*parts, "peers"), default=parts, help="parts (all but peers)")
    parser.add_argument("--repeat", type=int, default=5, help="turns; the best counts (5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1)")
    parser.add_argument("--out", type=Path, help="where JSON goes (docs/results, and the table into README.md)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = Dataset.open(given.data)
    measured: dict[str, Callable[[], list[Entry]]] = {
        "steps": lambda: steps(data, given.repeat),
        "scores": lambda: scores(data, given.repeat),
        "parquet": lambda: parquet(data, given.repeat),
        "layers": lambda: embedding_layers(given.repeat),
        "estimators": lambda: reservoirs(given.repeat),
        "start": lambda: start(given.data, given.repeat),
        "peers": lambda: against_peers(data, given.repeat),
    }
    about = {**machine(), "data": data.name, "compiled loops": native._library is not None}
    for part in given.only:
        new = measured[part]()
        print(table(new))
        write("cpu", new, about, given.out)


if __name__ == "__main__":
    main()
