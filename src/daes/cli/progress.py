"""Progress of a long job on stderr: a bar on a terminal, a line every 20 seconds elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from daes.cli import console
from daes.formatting import duration, fixed

if TYPE_CHECKING:
    from rich.progress import Progress

    from daes.experiments.compare import TrialProgress
    from daes.experiments.trial import TrialResult
    from daes.stream.dataset import Dataset
    from daes.training.trainer import StreamTrainer

_BETWEEN_METRICS = 1.0
_BETWEEN_LINES = 20.0


class RowProgress:
    """Counts the rows of a job; `advance` is called after every batch."""

    def __init__(self, bar: "Progress", title: str, total: int | None) -> None:
        self._bar = bar
        self._title = title
        self._task = bar.add_task(title, total=total, speed="", status="")
        self._total = total
        self._first = self._done = 0
        self._status = ""
        self._started = self._printed = self._measured = time.monotonic()

    def advance(self, rows: int, status: Callable[[], str] | None = None) -> None:
        """Count further rows as done; `status` gives the text beside the bar and is called once a second at most."""
        self._done += rows
        now = time.monotonic()
        if status is not None and now - self._measured >= _BETWEEN_METRICS:
            self._measured, self._status = now, status()
        passed = now - self._started
        speed = (self._done - self._first) / passed if passed > 0 else 0.0
        self._bar.update(self._task, completed=self._done, speed=f"{speed:,.0f} rows/s", status=self._status)
        if not console.err.is_terminal and now - self._printed >= _BETWEEN_LINES:
            self._printed = now
            left = (
                ""
                if self._total is None or not speed
                else f"{(self._total - self._done) / speed / 60:.1f} minutes left"
            )
            parts = (f"{self._done:,} rows", f"{speed:,.0f} rows/s", self._status, left)
            console.note(f"{self._title}: {', '.join(filter(None, parts))}")

    def set_total(self, total: int | None) -> None:
        """Set the number of rows, once it is known."""
        self._total = total
        self._bar.update(self._task, total=total)

    def start_at(self, done: int) -> None:
        """Set the number of rows that were done before this process started."""
        self._first = self._done = done
        self._started = time.monotonic()
        self._bar.update(self._task, completed=done)


@contextmanager
def row_progress(title: str, total: int | None = None) -> Iterator[RowProgress]:
    """A progress bar of rows with speed, status and remaining time."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = console.progress_bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[status]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    with bar:
        yield RowProgress(bar, title, total)


class TrainingProgress:
    """Shows the progress of a training run, as a callback of the trainer.

    Args:
        bar: where it is shown.
        data: the rows; a live source says how far behind it is.
        introduce: called before the first batch of a new run.
    """

    def __init__(self, bar: RowProgress, data: "Dataset", introduce: Callable[[], None] | None) -> None:
        self._bar, self._data, self._introduce = bar, data, introduce

    def start(self, trainer: "StreamTrainer", rows: int | None) -> None:
        self._bar.set_total(rows)
        if trainer.rows:
            self._bar.start_at(trainer.rows)
            console.err.print(f"continuing after row {trainer.rows:,}")
        elif self._introduce is not None:
            self._introduce()

    def __call__(self, trainer: "StreamTrainer", batch: Any, logits: Any) -> None:
        self._bar.advance(len(batch), partial(self._status, trainer))

    def wait(self, trainer: "StreamTrainer") -> None:
        self._bar.advance(0, partial(self._status, trainer))

    def _status(self, trainer: "StreamTrainer") -> str:
        parts = (metric_status(trainer.metrics), getattr(self._data.source, "lag", ""), trainer.waiting.status)
        return ", ".join(filter(None, parts))


def metric_status(metrics: Any) -> str:
    """Window AUC and LogLoss of a `StreamMetrics` in a few words; empty while they are not defined."""
    from daes.metrics.stream import LogLoss

    loss = LogLoss()
    loss.absorb(metrics.window.rows())
    auc = metrics.window.compute()
    return "" if auc != auc else f"AUC {auc:.4f} LogLoss {loss.compute():.4f}"


@contextmanager
def trial_progress() -> Iterator[Callable[["TrialProgress"], None]]:
    """A progress bar of trials, or one line per trial if stderr is not a terminal: a callback for `compare`."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    bar = console.progress_bar(
        TextColumn("comparing"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[status]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    parts: dict[str, float] = {}

    def show(event: "TrialProgress") -> None:
        name = status = f"{event.trial.label} on {event.trial.backbone}, seed {event.trial.seed}"
        if event.result is None:
            parts[name] = event.rows / event.total_rows if event.total_rows else 0.0
        else:
            parts.pop(name, None)
            status = _outcome(event.result)
            if not console.err.is_terminal:
                console.note(f"{event.trials_done}/{event.trials} {name}: {status}")
        bar.update(
            task,
            total=event.trials,
            completed=event.trials_done + sum(parts.values()),
            status=f"{event.trials_done}/{event.trials} trials {status}",
        )

    with bar:
        task = bar.add_task("", total=None, status="")
        yield show


def _outcome(result: "TrialResult") -> str:
    if result.error is not None:
        return f"failed: {result.error}"
    return f"AUC {fixed(result.metrics['auc'])} LogLoss {fixed(result.metrics['logloss'])} ({duration(result.seconds)})"
