"""What a page consists of, as plain data; the templates turn it into HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """Remarks as a list."""

    notes: Sequence[str]


class WarningBox(NamedTuple):
    """What a reader should look out for, in a box."""

    warnings: Sequence[str]


class Command(NamedTuple):
    """A command to copy, and what it is for."""

    purpose: str
    command: str


class Ranking(NamedTuple):
    """The columns of a run, the most important first; `hidden` more are not listed."""

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
    """A part of a page; `group` names what it is about on a page about several things."""

    name: str
    title: str
    blocks: Sequence[Block]
    group: str = ""

    @property
    def prefix(self) -> str:
        """What makes ids of this group unique on the page.

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
    """The figures that there are, or a sentence where there are none."""
    found = [figure for figure in figures if figure is not None]
    if not found:
        return [Paragraph(otherwise)]
    return [Grid(found)] if side_by_side else [*found]
