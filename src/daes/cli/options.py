"""What options can hold, and options that several commands share."""

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from daes.choices import not_one_of
from daes.registry import registered_names

ARGUMENTS = "daes.arguments"
"""The key in a context's `meta` of the arguments that follow the command's name."""


class Kind(NamedTuple):
    """The kind of value an option takes: how its text is parsed, and what the help calls it."""

    parse: Callable[[Any], Any]
    metavar: str


def whole_number(least: int, metavar: str = "N", *, most: int = 2**63 - 1) -> Kind:
    """Whole numbers from `least` to `most`.

    >>> whole_number(1).parse("8192")
    8192
    """

    def parse(text: str) -> int:
        try:
            number = int(text)
        except (ValueError, TypeError):
            number = least - 1
        if not least <= number <= most:
            end = "below 2^63" if most == 2**63 - 1 else f"of at most {most}"
            limit = f"of at least {least}" if number < least else end
            raise typer.BadParameter(f"a whole number {limit} is needed, got {text}")
        return number

    return Kind(parse, metavar)


def number(
    *, above: float | None = None, least: float | None = None, below: float = inf, metavar: str = "NUMBER"
) -> Kind:
    """Finite numbers in a range."""
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
    """One of some names."""

    def parse(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(not_one_of(text, known))
        return text

    return Kind(parse, metavar)


def matching(pattern: str, needed: str, metavar: str) -> Kind:
    """Text that matches a pattern, which `needed` describes in the error."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise typer.BadParameter(f"{needed} is needed, got {text}")
        return text

    return Kind(parse, metavar)


class Names(tuple[str, ...]):
    """The value of an option that takes several names."""


def parse_names(given: str | Sequence[str]) -> Names:
    """Parse names: separated by commas, those with a comma in double quotes, or a list in a TOML file.

    >>> parse_names("price, age"), parse_names('"a,b", c'), parse_names(["a,b"])
    (('price', 'age'), ('a,b', 'c'), ('a,b',))
    """
    parts = next(csv.reader([given], skipinitialspace=True), []) if isinstance(given, str) else given
    return Names(part.strip() for part in parts if part.strip())


NAMES = Kind(parse_names, "LIST")
PORT = whole_number(0, most=65_535)
PAIR = matching(r"(?s)[^=]*[^=\s]\s*=.*", "NAME=VALUE", "NAME=VALUE")
DEVICE = matching(r"auto|cpu|cuda(:\d+)?", "auto, cpu, cuda or cuda:N", "NAME")
REGISTRIES = {"method": "daes.embedding", "backbone": "daes.backbone", "rival": "daes.experiments.rivals"}
"""The package of each kind of registered names. Importing one imports torch; listing its names does not."""


def registered(*kinds: str) -> tuple[str, ...]:
    """All registered names of these kinds."""
    return tuple(name for kind in kinds for name in registered_names(REGISTRIES[kind], kind))


def registered_name(kind: str) -> Kind:
    """A registered name."""
    return Kind(lambda text: one_of(*registered(kind)).parse(text), "NAME")


def registered_list(*kinds: str) -> Kind:
    """Several registered names."""
    return Kind(lambda given: Names(map(one_of(*registered(*kinds)).parse, parse_names(given))), "LIST")


def option(
    help: str, *flags: str, default: Any = None, of: Kind | None = None, panel: str | None = None, **more: Any
) -> Any:
    """An option as the default of a parameter, by which it is named if no flags are given.

    The default `...` is for options that are required, and within `Annotated`.
    """
    if of is not None:
        more |= {"parser": of.parse, "metavar": of.metavar}
    return typer.Option(default, *flags, help=help, rich_help_panel=panel, **more)


def option_field(help: str, *flags: str, default: Any = None, **more: Any) -> Any:
    """An option as a field of a dataclass, for `daes.cli.groups.grouped`."""
    value = {"default_factory": list} if default == [] else {"default": default}
    return field(**value, metadata={"option": option(help, *flags, default=..., **more)})


RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A folder of `daes train`, or a saved model.", show_default=False)
]
Device = Annotated[str, option("cpu, cuda, cuda:1, … or auto.", default=..., of=DEVICE)]
BatchSize = Annotated[int, option("Rows read at a time.", default=..., of=whole_number(1, "ROWS"))]
Seed = Annotated[int, option("Seed of the random numbers.", default=..., of=whole_number(0))]
Json = Annotated[bool, option("Print one JSON object instead of tables.", "--json", default=...)]
