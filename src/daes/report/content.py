"""The contents of a page as plain data; the templates turn it into HTML."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from daes.formatting import NONE
from daes.report.features import ColumnSummary
from daes.report.figures import Figure
from daes.table import Table


class Paragraph(NamedTuple):
    """A paragraph of plain text; `style` is a class of page.css."""

    text: str
    style: str = ""


class Heading(NamedTuple):
    """A heading within a section."""

    text: str


class Notes(NamedTuple):
    """A list of remarks."""

    notes: Sequence[str]


class WarningBox(NamedTuple):
    """Warnings in a box."""

    warnings: Sequence[str]


class Command(NamedTuple):
    """A command to copy, and its purpose."""

    purpose: str
    command: str


class Ranking(NamedTuple):
    """The columns of a run, the most important first; `hidden` is the number of columns not listed."""

    columns: Sequence[ColumnSummary]
    hidden: int = 0


class Details(NamedTuple):
    """A table that opens on a click."""

    summary: str
    table: Table


class Grid(NamedTuple):
    """Figures side by side on wide screens."""

    figures: Sequence[Figure]


Block = Paragraph | Heading | Notes | WarningBox | Command | Ranking | Details | Table | Figure | Grid


@dataclass(frozen=True)
class Section:
    """A section of a page; `group` names its subject on a page with several subjects."""

    name: str
    title: str
    blocks: Sequence[Block]
    group: str = ""

    @property
    def prefix(self) -> str:
        """Prefix that makes the ids of this group unique on the page.

        >>> Section("drift", "Drift", [], group="ad stream").anchor
        'ad-stream-drift'
        """
        return re.sub(r"\W+", "-", f"{self.group}-") if self.group else ""

    @property
    def anchor(self) -> str:
        """The id of the section."""
        return f"{self.prefix}{self.name}"


@dataclass(frozen=True)
class Page:
    """A page; `facts` are its key numbers with their names."""

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()


def drawn(figures: Sequence[Figure | None], otherwise: str, *, side_by_side: bool = False) -> list[Block]:
    """The figures that are not None, or a sentence if there are none."""
    found = [figure for figure in figures if figure is not None]
    if not found:
        return [Paragraph(otherwise)]
    return [Grid(found)] if side_by_side else [*found]


def settings(title: str, given: Mapping[str, Any]) -> list[Details]:
    """Settings as a table that opens on a click; empty if there are none."""
    rows = list(flat(given))
    table = Table(("setting", "value"), rows, left=frozenset({0, 1}))
    return [Details(f"{title} ({len(rows)})", table)] if rows else []


def flat(given: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested settings as dotted names and short texts.

    >>> list(flat({"model": {"dim": 16, "context": ["a", "b"], "l2": None}, "sizes": {}}))
    [('model.dim', '16'), ('model.context', 'a, b'), ('model.l2', '–'), ('sizes', '–')]
    """
    for key, value in given.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        elif value is None or value in ({}, [], ()):
            yield name, NONE
        elif isinstance(value, list | tuple) and not any(isinstance(item, Mapping | list) for item in value):
            yield name, ", ".join(map(str, value))
        else:
            yield name, str(value)
