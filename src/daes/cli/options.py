"""Options that several commands share, with one name and one help text."""

from collections.abc import Callable
from math import inf, nan
from typing import Annotated, Any, NamedTuple

import typer

from daes.choices import not_one_of
from daes.registry import registered_names

ARGUMENTS = "daes.arguments"
"""The key in a call's `meta` of what follows the command's name on the command line."""


class Kind(NamedTuple):
    """What an option takes: how its text is parsed, and what the help calls it."""

    parse: Callable[[Any], Any]
    metavar: str


def whole_number(least: int, metavar: str = "N") -> Kind:
    """Whole numbers; the error names the value.

    >>> whole_number(1).parse("8192")
    8192
    """

    def parse(text: str) -> int:
        try:
            number = int(text)
        except (ValueError, TypeError):
            number = least - 1
        if not least <= number < 2**63:
            limit = f"of at least {least}" if number < least else "below 2^63"
            raise typer.BadParameter(f"a whole number {limit} is needed, got {text}")
        return number

    return Kind(parse, metavar)


def number(
    *, above: float | None = None, least: float | None = None, below: float = inf, metavar: str = "NUMBER"
) -> Kind:
    """Finite numbers in a range; the error names the range and the value.

    >>> number(above=0).parse("0.03")
    0.03
    """
    ends = {"above": above, "of at least": least, "below": below}
    said = " and ".join(f"{word} {end:g}" for word, end in ends.items() if end is not None and end != inf)

    def parse(text: str) -> float:
        try:
            found = float(text)
        except (ValueError, TypeError):
            found = nan
        if not ((above is None or found > above) and (least is None or found >= least) and found < below):
            kind = "a finite number" if found == inf else "a number"
            raise typer.BadParameter(f"{kind} {said} is needed, got {text}")
        return found

    return Kind(parse, metavar)


def one_of(*known: str, metavar: str = "NAME") -> Kind:
    """A name; the error lists the names there are.

    >>> one_of("stop", "skip").parse("skip")
    'skip'
    """

    def parse(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(not_one_of(text, known))
        return text

    return Kind(parse, metavar)


REGISTRIES = {"method": "daes.embedding", "backbone": "daes.backbone", "rival": "daes.experiments.rivals"}
"""What is registered by name, with its package; loading one loads torch, knowing its names does not."""


def registered(*kinds: str) -> tuple[str, ...]:
    """All names of these kinds."""
    return tuple(name for kind in kinds for name in registered_names(REGISTRIES[kind], kind))


def registered_name(kind: str) -> Kind:
    """A registered name."""
    return Kind(lambda text: one_of(*registered(kind)).parse(text), "NAME")


def option(help: str, *flags: str, of: Kind | None = None, panel: str | None = None, **more: Any) -> Any:
    """An option in a panel of the help, called as its argument is where no flags are given."""
    if of is not None:
        more |= {"parser": of.parse, "metavar": of.metavar}
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


BatchSize = Annotated[int, option("Rows read at a time.", of=whole_number(1, "ROWS"))]
Seed = Annotated[int, option("Seed of the random numbers.", of=whole_number(0))]
Json = Annotated[bool, option("Print one JSON object instead of tables.", "--json")]
