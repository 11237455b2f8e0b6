"""Options that several commands share, with one name and one help text."""

from collections.abc import Callable
from typing import Annotated

import typer

ARGUMENTS = "daes.arguments"
"""The key in a call's `meta` of what follows the command's name on the command line."""


def whole_number(least: int) -> Callable[[str], int]:
    """A parser of whole numbers, for `typer.Option(parser=…)`; its error names the value.

    >>> whole_number(1)("8192")
    8192
    """

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise typer.BadParameter(f"a whole number of at least {least} is needed, got {text}")
        return number

    return parse


BatchSize = Annotated[
    int, typer.Option("--batch-size", parser=whole_number(1), metavar="ROWS", help="Rows read at a time.")
]
Seed = Annotated[int, typer.Option("--seed", parser=whole_number(0), metavar="N", help="Seed of the random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
