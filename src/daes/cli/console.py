"""Where the command line writes: results to `out`, progress and notes to `err`, errors to `errors`.

With `--quiet` nothing is written to `err`. Names and paths may hold `[a]`, so nothing is read as markup.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from json import dumps
from typing import Any

import typer
from rich.console import Console, ConsoleDimensions
from rich.text import Text

_NO_LIMIT = 1000


class ResultConsole(Console):
    """A console that cuts nothing, and wraps nothing where there is no terminal and no COLUMNS, as in a pipeline."""

    @property  # type: ignore[misc]  # nothing sets it
    def size(self) -> ConsoleDimensions:
        known = super().size
        limited = "COLUMNS" in os.environ or any(map(os.isatty, range(3)))
        return known if limited else ConsoleDimensions(_NO_LIMIT, known.height)

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:
        super().print(*objects, crop=crop, **options)


out = ResultConsole(highlight=False, markup=False)
err = Console(stderr=True, highlight=False, markup=False)
errors = Console(stderr=True, highlight=False, markup=False)


def say(line: str) -> None:
    """Write a line of the result without wrapping it."""
    out.print(line, soft_wrap=True)


def print_json(content: Any, *, ensure_ascii: bool = True) -> None:
    """Write the result as one line of strict JSON: NaN and infinities are null."""
    from daes.storage.run_folder import strict

    typer.echo(dumps(strict(content), allow_nan=False, ensure_ascii=ensure_ascii))


def note(line: str) -> None:
    """Write a line of progress, or a note, without wrapping it."""
    err.print(line, soft_wrap=True)


class LogHandler(logging.Handler):
    """Writes log messages to stderr, with the time of day."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "bold yellow" if record.levelno >= logging.WARNING else "dim"
        time = f"{datetime.fromtimestamp(record.created):%H:%M:%S} "
        err.print(Text.assemble((time, style), record.getMessage()), soft_wrap=True)


@contextmanager
def log_messages() -> Iterator[None]:
    """Within it, what daes logs is written to stderr: warnings, and what a logger of its own level lets through."""
    log, handler = logging.getLogger("daes"), LogHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def progress_bar(*columns: Any) -> Any:
    """A progress bar of rich on stderr that disappears at the end; nothing if stderr is not a terminal."""
    from rich.progress import Progress

    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def plain_table() -> Any:
    """A table of rich with a line below its header and no frame."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
