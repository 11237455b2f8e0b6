"""`daes demo`: a complete comparison on two streams that come with the package."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from json import dumps
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daes.cli.console import note, out, progress_bar, say
from daes.cli.options import Json, option, whole_number

if TYPE_CHECKING:
    from daes.experiments.compare import TrialProgress
    from daes.report.comparison import Compared
    from daes.stream.dataset import Dataset

METHODS = ("efd", "fe", "autodis", "ple", "dae", "daes-gate", "daes")
BACKBONE = "fnn"
BATCH_SIZE = 256


def demo(
    rows: Annotated[int, option("Maximum rows of each stream.", of=whole_number(1000))] = 90_000,
    seeds: Annotated[int, option("Models per method.", of=whole_number(1))] = 2,
    jobs: Annotated[int, option("Models trained at the same time.", of=whole_number(1))] = 2,
    folder: Annotated[
        Path, option("Folder for results and report; an older demo is replaced.", "--out", metavar="DIR")
    ] = Path("runs/demo"),
    json: Json = False,
) -> None:
    """Compare DAES with other embeddings of numerical features on flights and a simulated ad stream, in a few minutes.

    Every model reads the stream once and scores each batch before it learns from it. The flights left New York in 2013
    (was one more than 15 minutes late?); the ads are simulated, so the best possible score is known. One more run of
    `daes` on each stream records details: drift, knots, what the model learned.

    Prints the tables and writes an HTML report. No method is tuned.
    """
    from daes.training.config import TrainConfig

    started = perf_counter()
    streams = _streams(rows)
    train = TrainConfig(batch_size=BATCH_SIZE, window=max(rows // 10, 1000))
    for stream in streams:  # `compare` would reuse the results of an older demo, whatever version of daes made them
        for name in ("results.jsonl", "comparison.json"):
            (folder / stream.name / name).unlink(missing_ok=True)
    with _progress(len(streams) * (len(METHODS) * seeds + 1) * rows) as bar:
        tables = [_compare(stream, folder, train, seeds, jobs, bar) for stream in streams]
        _record(streams, folder, train, jobs, bar)
    report, compared = _report(streams, folder)
    seconds = perf_counter() - started
    if json:
        content = {"report": str(report), "seconds": seconds, "comparisons": [table.to_dict() for table in tables]}
        typer.echo(dumps(content, allow_nan=False))
    else:
        _print(compared, seconds)
        say(f"The report: {report}")
    if any(table.failures for table in tables):
        raise typer.Exit(1)


@dataclass(frozen=True)
class DemoStream:
    """A stream, and what the true probabilities score on it where they are known."""

    name: str
    data: "Dataset"
    ceiling: Mapping[str, float]


def _streams(rows: int) -> list[DemoStream]:
    """The flights, if they are installed, and the simulated ads."""
    from daes.extras import MissingExtraError
    from daes.simulation import AdStream
    from daes.stream.dataset import Dataset

    found = []
    try:
        found.append(DemoStream("flights", Dataset.open("flights", limit=rows), {}))
    except MissingExtraError as error:
        note(f"without the flights: {error}")
    whole, half = (AdStream(rows).bayes_metrics(start) for start in (0, rows // 2))
    ceiling = {"auc": whole.auc, "logloss": whole.logloss, "half_auc": half.auc, "half_logloss": half.logloss}
    found.append(DemoStream("adstream", Dataset.open(f"adstream:{rows}"), ceiling))
    return found


def _compare(stream: DemoStream, folder: Path, train: Any, seeds: int, jobs: int, bar: "DemoProgress") -> Any:
    from daes.experiments.compare import compare

    return compare(
        stream.data,
        methods=METHODS,
        backbones=[BACKBONE],
        seeds=seeds,
        train=train,
        jobs=jobs,
        out=folder / stream.name,
        subject="daes",
        progress=lambda progress: bar.trial(stream.name, progress),
    )


def _record(streams: Sequence[DemoStream], folder: Path, train: Any, jobs: int, bar: "DemoProgress") -> None:
    """A run of `daes` on each stream, for the details that a comparison does not keep."""
    from daes.experiments.workers import run_tasks

    items = [(stream.name, stream.data, str(folder / stream.name / "run")) for stream in streams]
    done: Iterable[tuple[Any, Any]]
    if jobs == 1:
        done = ((item, _run(train, item, partial(bar.run, item[0]))) for item in items)
    else:
        done = run_tasks(_run, train, items, jobs=jobs, on_note=lambda item, rows: bar.run(item[0], rows))
    for (name, *_), problem in done:
        if problem is not None:
            raise RuntimeError(f"the run of daes on {name} failed: {problem}")


def _run(train: Any, item: tuple[str, "Dataset", str], note: Callable[[int], None]) -> str | None:
    """One run in a process of its own; the error, if there is one."""
    from daes.training.run import train_run

    _, data, folder = item
    model = {"embedding": "daes", "backbone": BACKBONE}

    def advance(trainer: Any, *_: Any) -> None:
        if trainer.batches % 20 == 0:
            note(trainer.rows)

    try:
        train_run(data, folder, model=model, config=train, overwrite=True, callbacks=[advance])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _report(streams: Sequence[DemoStream], folder: Path) -> tuple[Path, "list[Compared]"]:
    from daes.report import compared_in, write_comparisons

    compared = [
        compared_in(folder / stream.name, run_dir=folder / stream.name / "run", ceiling=stream.ceiling)
        for stream in streams
    ]
    lead = (
        f"{len(METHODS)} ways to embed numbers, in one pass over {' and '.join(stream.name for stream in streams)}; "
        "every batch is scored before it is learned from."
    )
    return write_comparisons(folder / "report.html", "daes demo", lead, compared), compared


class DemoProgress:
    """Progress of the demo: a bar on a terminal, and a line per finished model."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task
        self._rows: dict[tuple[Any, ...], int] = {}

    def trial(self, stream: str, progress: "TrialProgress") -> None:
        """Update the progress of a trial of the comparison."""
        trial, result = progress.trial, progress.result
        self._advance((stream, trial.label, trial.seed), progress.rows)
        self._progress.update(self._task, description=f"{stream}: {trial.label}")
        if result is None:
            return
        told = f"{stream:<9} {trial.label:<10} seed {trial.seed}  "
        if result.error is not None:
            note(f"{told}failed: {result.error}")
            return
        auc, loss = result.metrics["half_auc"], result.metrics["half_logloss"]
        note(f"{told}AUC {auc:.4f}  LogLoss {loss:.4f}  {result.seconds:5.1f} s")

    def run(self, stream: str, rows: int) -> None:
        """Update the progress of the recorded run on a stream."""
        self._advance((stream,), rows)
        self._progress.update(self._task, description=f"{stream}: recording daes")

    def _advance(self, key: tuple[Any, ...], rows: int) -> None:
        self._progress.update(self._task, advance=rows - self._rows.get(key, 0))
        self._rows[key] = rows


@contextmanager
def _progress(total: int) -> Iterator[DemoProgress]:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    progress = progress_bar(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(compact=True),
    )
    with progress:
        yield DemoProgress(progress, progress.add_task("starting", total=total))


def _print(compared: "Sequence[Compared]", seconds: float) -> None:
    from daes.report.comparison_tables import verdict

    seeds = len(compared[0].table.seeds)
    spread = f"mean ± deviation of {seeds} seeds" if seeds > 1 else "one seed"
    say(f"AUC and LogLoss over the second half of each stream, {spread}; > marks the best.")
    for of in compared:
        out.print(_table(of))
        say(verdict(of).partition(": ")[2])
        for failure in of.table.failures:
            say(f"{failure.label}, seed {failure.seed}, failed: {failure.error}")
        out.print()
    out.print(f"Done in {seconds:.0f} s.")


def _table(compared: "Compared") -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from daes.report.comparison import CEILING

    style = box.ASCII2 if out.options.ascii_only else box.SIMPLE_HEAD
    table = Table("method", title=compared.name, title_justify="left", title_style="bold", box=style, pad_edge=False)
    for name in ("AUC", "LogLoss", "rows/s"):
        table.add_column(name, justify="right", no_wrap=True)
    best = {measure: compared.best(BACKBONE, measure) for measure in compared.headline}
    for label in METHODS:
        row = [Text(label, style="bold" if label == compared.subject else "")]
        for measure in compared.headline:
            first = best[measure] == label
            value = f"{'> ' if first else ''}{compared.table.summary(label, BACKBONE, measure)}"
            row.append(Text(value, style="bold green" if first else ""))
        speeds = [trial.rows_per_second for trial in compared.trials(label, BACKBONE)]
        row.append(Text(f"{sum(speeds) / len(speeds):,.0f}" if speeds else "–"))
        table.add_row(*row)
    if compared.ceiling:
        known = (f"{compared.ceiling[measure]:.4f}" for measure in compared.headline)
        table.add_row(*(Text(text, style="dim") for text in (CEILING, *known, "")))
    return table
