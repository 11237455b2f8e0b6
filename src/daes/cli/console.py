"""Where the command line writes: results to `out`, progress and notes to `err`, errors to `errors`.

With `--quiet` nothing is written to `err`.
"""

from json import dumps
from typing import Any

import typer
from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
errors = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Write a line of the result as it is: a long one is not broken, and `[a]` in it is no mark-up."""
    out.print(line, soft_wrap=True, markup=False)


def print_json(content: Any, *, ensure_ascii: bool = True) -> None:
    """Write the result as one line of strict JSON: NaN and infinities are null."""
    from daes.storage.run_folder import strict

    typer.echo(dumps(strict(content), allow_nan=False, ensure_ascii=ensure_ascii))


def note(line: str) -> None:
    """Write a line of progress or a remark as it is."""
    err.print(line, soft_wrap=True, markup=False)


def progress_bar(*columns: Any) -> Any:
    """A bar of rich on stderr that is gone when it is done; nothing where stderr is no terminal."""
    from rich.progress import Progress

    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def plain_table() -> Any:
    """A table of rich with a line below its head and no frame."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
