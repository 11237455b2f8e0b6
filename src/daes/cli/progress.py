"""Progress of a long job: a bar on a terminal, a line every 20 seconds elsewhere; always on stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from daes.cli import console

if TYPE_CHECKING:
    from rich.progress import Progress

_BETWEEN_METRICS = 1.0
_BETWEEN_LINES = 20.0


class RowProgress:
    """Counts the rows of a job; `advance` is called after every batch."""

    def __init__(self, bar: "Progress", title: str, total: int | None, done: int = 0) -> None:
        self._bar = bar
        self._title = title
        self._task = bar.add_task(title, total=total, completed=done, speed="", status="")
        self._total = total
        self._first = self._done = done
        self._started = self._printed = self._measured = time.monotonic()

    def advance(self, rows: int) -> None:
        """Count further rows as done."""
        self._done += rows
        self._bar.update(self._task, completed=self._done, speed=f"{self._speed():,.0f} rows/s")
        now = time.monotonic()
        if not console.err.is_terminal and now - self._printed >= _BETWEEN_LINES:
            self._printed = now
            status = self._bar.tasks[self._task].fields["status"]
            parts = (f"{self._done:,} rows", f"{self._speed():,.0f} rows/s", status, self._left())
            console.note(f"{self._title}: {', '.join(filter(None, parts))}")

    def needs_status(self) -> bool:
        """Whether a new status is due, once per second."""
        now = time.monotonic()
        if now - self._measured < _BETWEEN_METRICS:
            return False
        self._measured = now
        return True

    def set_status(self, status: str) -> None:
        """Set the text beside the bar."""
        self._bar.update(self._task, status=status)

    def set_total(self, total: int | None) -> None:
        """Set the number of rows, once it is known."""
        self._total = total
        self._bar.update(self._task, total=total)

    def start_at(self, done: int) -> None:
        """Count rows that were done before this process."""
        self._first = self._done = done
        self._started = time.monotonic()
        self._bar.update(self._task, completed=done)

    def _speed(self) -> float:
        passed = time.monotonic() - self._started
        return (self._done - self._first) / passed if passed > 0 else 0.0

    def _left(self) -> str:
        speed = self._speed()
        if self._total is None or not speed:
            return ""
        return f"{(self._total - self._done) / speed / 60:.1f} minutes left"


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
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
    )
    with bar:
        yield RowProgress(bar, title, total)


def metric_status(metrics: Any) -> str:
    """Window AUC and LogLoss of a `StreamMetrics`, short; empty where they are not defined yet."""
    from daes.metrics.stream import LogLoss

    loss = LogLoss()
    loss.absorb(metrics.window.rows())
    auc = metrics.window.compute()
    return "" if auc != auc else f"AUC {auc:.4f} LogLoss {loss.compute():.4f}"
