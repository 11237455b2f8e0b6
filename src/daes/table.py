"""Tables: rows of cells, rendered for a document, a terminal or (in `daes.report`) a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from daes.extras import require


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        content: the text.
        strong: whether it is emphasised, such as the best of its column.
        note: text that follows in small print, such as a standard deviation or a mark.
        colour: on a page, a colour of the theme ("c1") for a dot before the content.
        style: in a terminal, a style of rich; bold green by default if emphasised.
    """

    content: str
    strong: bool = False
    note: str = ""
    colour: str = ""
    style: str = ""

    def __str__(self) -> str:
        return f"{self.content} {self.note}" if self.note else self.content


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    Args:
        head: one name per column.
        rows: objects with a text, or cells.
        caption: title of the table.
        left: the columns of text, aligned to the left; numbers are aligned to the right.

    >>> rows = [("efd", "0.75"), ("daes", Cell("0.76", strong=True, note="± 0.01"))]
    >>> print(Table(("method", "AUC"), rows).markdown())
    | method | AUC |
    | :-- | --: |
    | efd | 0.75 |
    | daes | **0.76 ± 0.01** |
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    left: frozenset[int] = frozenset({0})

    def cells(self) -> list[list[Cell]]:
        """The rows, with every entry as a `Cell`."""
        return [[cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """For a document; emphasised cells are bold."""
        lines = [self.head, [":--" if place in self.left else "--:" for place in range(len(self.head))]]
        lines += [[f"**{cell}**" if cell.strong else str(cell) for cell in row] for row in self.cells()]
        return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)

    def __rich__(self) -> Any:
        """For a terminal; with a caption there is also space above and below. Where it is narrow, names are folded."""
        text = require("rich.text").Text
        grid = require("rich.table").Table(
            title=self.caption or None,
            title_justify="left",
            box=require("rich.box").SIMPLE_HEAD,
            show_edge=bool(self.caption),
            pad_edge=False,
        )
        rows = self.cells()
        for place, name in enumerate(self.head):
            if place in self.left:
                grid.add_column(name, overflow="fold")
            else:
                widest = max((len(str(row[place])) for row in rows), default=0)
                grid.add_column(name, justify="right", overflow="fold", min_width=widest)
        for row in rows:
            grid.add_row(*(text(str(cell), style=cell.style or "bold green" * cell.strong) for cell in row))
        return grid


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, names: int = 1) -> str:
    """`Table.markdown` of a table whose first `names` columns are text.

    >>> print(markdown_table(["method", "KL"], [["OS", 5.97]]))
    | method | KL |
    | :-- | --: |
    | OS | 5.97 |
    """
    return Table(head, list(rows), left=frozenset(range(names))).markdown()
