"""The backbones as text: a table of all, or one with its options and their defaults."""

from rich.console import RenderableType
from rich.table import Table

from daes.backbone import BACKBONES, BackboneEntry
from daes.cli import entry_text
from daes.cli.console import plain_table


def table(width: int) -> Table:
    """The table of backbones for a terminal of this width; a narrow one leaves out the references."""
    wide = width >= 90
    grid: Table = plain_table()
    grid.add_column("name", style="bold", no_wrap=True)
    grid.add_column("backbone")
    grid.add_column("orders of interaction")
    grid.add_column("plain\ninputs", justify="center")
    if wide:
        grid.add_column("reference", no_wrap=True)
    for entry in BACKBONES.values():
        grid.add_row(entry.name, *_cells(entry), *([entry.citation] if wide else []))
    return grid


def render(name: str) -> RenderableType:
    """One backbone for a terminal."""
    entry = BACKBONES.find(name)
    orders = [f"orders of interaction: {entry.interactions}"] if entry.interactions else []
    return entry_text.render(entry, [*orders, f"{'takes' if entry.takes_plain else 'no'} plain inputs"])


def markdown() -> str:
    """The table of docs/methods.md."""
    rows = [[f"`{entry.name}`", *_cells(entry), entry.citation] for entry in BACKBONES.values()]
    head = ("name", "backbone", "orders of interaction", "plain inputs", "reference")
    return entry_text.markdown_table(head, rows, centred=["plain inputs"]) + "\n"


def _cells(entry: BackboneEntry) -> tuple[str, str, str]:
    return entry.title, entry.interactions, "yes" if entry.takes_plain else "–"
