"""One table model: rows of cells, rendered for a document, a terminal or (in `daes.report`) a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from daes.extras import require


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        content: what it says.
        strong: whether it stands out, as the best of its column.
        note: what follows in small print, as a standard deviation or a mark.
        colour: on a page, a colour of the theme ("c1") for a dot before the content.
    """

    content: str
    strong: bool = False
    note: str = ""
    colour: str = ""

    def __str__(self) -> str:
        return f"{self.content} {self.note}" if self.note else self.content


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    Args:
        head: one name per column.
        rows: strings, or cells where something stands out.
        caption: what it shows.
        left: the columns of text; numbers are aligned to the right.

    >>> rows = [("efd", "0.75"), ("daes", Cell("0.76", strong=True, note="± 0.01"))]
    >>> print(Table(("method", "AUC"), rows).markdown())
    | method | AUC |
    | :-- | --: |
    | efd | 0.75 |
    | daes | **0.76 ± 0.01** |
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    left: frozenset[int] = frozenset({0})

    def cells(self) -> list[list[Cell]]:
        """The rows, each entry a `Cell`."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """For a document: what stands out is bold."""
        lines = [self.head, [":--" if place in self.left else "--:" for place in range(len(self.head))]]
        lines += [[f"**{cell}**" if cell.strong else str(cell) for cell in row] for row in self.cells()]
        return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)

    def __rich__(self) -> Any:
        """For a terminal: what stands out is bold green."""
        text = require("rich.text").Text
        grid = require("rich.table").Table(
            title=self.caption or None, title_justify="left", box=require("rich.box").SIMPLE_HEAD, pad_edge=False
        )
        for place, name in enumerate(self.head):
            grid.add_column(name, justify="left" if place in self.left else "right", no_wrap=not place)
        for row in self.cells():
            grid.add_row(*(text(str(cell), style="bold green" if cell.strong else "") for cell in row))
        return grid


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, names: int = 1) -> str:
    """A Markdown table of anything that has a text; its first `names` columns are aligned to the left.

    >>> print(markdown_table(["method", "KL"], [["OS", 5.97]]))
    | method | KL |
    | :-- | --: |
    | OS | 5.97 |
    """
    cells = [[cell if isinstance(cell, Cell) else str(cell) for cell in row] for row in rows]
    return Table(head, cells, left=frozenset(range(names))).markdown()
