"""How far a long job is: a bar on a terminal, a line now and then elsewhere; always on stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from daes.cli.console import err

if TYPE_CHECKING:
    from rich.progress import Progress

_BETWEEN_METRICS = 1.0
_BETWEEN_LINES = 20.0


class Steps:
    """Counts rows of a job; `advance` is called after every batch."""

    def __init__(self, bar: "Progress", verb: str, total: int | None, done: int = 0) -> None:
        self._bar = bar
        self._verb = verb
        self._task = bar.add_task(verb, total=total, completed=done, speed="", words="")
        self._total = total
        self._first = self._done = done
        self._started = self._said = self._measured = time.monotonic()

    def advance(self, rows: int) -> None:
        """So many rows more are done."""
        self._done += rows
        self._bar.update(self._task, completed=self._done, speed=f"{self._speed():,.0f} rows/s")
        now = time.monotonic()
        if not err.is_terminal and now - self._said >= _BETWEEN_LINES:
            self._said = now
            words = self._bar.tasks[self._task].fields["words"]
            parts = [f"{self._done:,} rows", f"{self._speed():,.0f} rows/s", *([words] if words else []), *self._left()]
            err.print(f"{self._verb}: {', '.join(parts)}", soft_wrap=True)

    def wants_words(self) -> bool:
        """Whether it is time to compute something to say, once a second."""
        now = time.monotonic()
        if now - self._measured < _BETWEEN_METRICS:
            return False
        self._measured = now
        return True

    def say(self, words: str) -> None:
        """What stands beside the bar."""
        self._bar.update(self._task, words=words)

    def expect(self, total: int | None) -> None:
        """How many rows there are, once that is known."""
        self._total = total
        self._bar.update(self._task, total=total)

    def begin_at(self, done: int) -> None:
        """Some rows were done before."""
        self._first = self._done = done
        self._started = time.monotonic()
        self._bar.update(self._task, completed=done)

    def _speed(self) -> float:
        passed = time.monotonic() - self._started
        return (self._done - self._first) / passed if passed > 0 else 0.0

    def _left(self) -> list[str]:
        speed = self._speed()
        if self._total is None or not speed:
            return []
        return [f"{(self._total - self._done) / speed / 60:.1f} minutes left"]


@contextmanager
def steps(verb: str, total: int | None = None) -> Iterator[Steps]:
    """A bar of rows with speed, words and time left."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(compact=True),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        yield Steps(bar, verb, total)


def metric_words(metrics: Any) -> str:
    """Window AUC and LogLoss of a `StreamMetrics`, short; empty where they are not defined yet."""
    from daes.metrics.stream import LogLoss

    loss = LogLoss()
    loss.absorb(metrics.window.rows())
    auc = metrics.window.compute()
    return "" if auc != auc else f"AUC {auc:.4f} LogLoss {loss.compute():.4f}"
