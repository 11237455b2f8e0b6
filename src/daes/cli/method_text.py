"""The methods as text: a table of all, or one with its options and their defaults."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from daes.cli import entry_text
from daes.cli.console import plain_table
from daes.embedding import METHODS, MethodEntry
from daes.embedding.registry import FAMILIES

_UNLIMITED = 10_000
_RECONSTRUCTION = "* a reconstruction: `daes methods NAME` says what is known and what was chosen."


def table(width: int) -> RenderableType:
    """The table of methods for a terminal of this width; where it is too wide, without titles and references."""
    console = Console(width=width)
    needed = console.measure(whole := _grid(wide=True), options=console.options.update(max_width=_UNLIMITED)).maximum
    grid = whole if needed <= width else _grid(wide=False)
    return Group(grid, "", Text("\n".join(_notes()).replace("`", ""), style="dim"))


def _grid(*, wide: bool) -> Table:
    grid: Table = plain_table()
    grid.add_column("name", style="bold", no_wrap=True)
    if wide:
        grid.add_column("method", no_wrap=True)
    grid.add_column("learns")
    for heading in ("continuous", "distribution-\naware", "field-\naware"):
        grid.add_column(heading, justify="center")
    if wide:
        grid.add_column("reference", no_wrap=True)
    family = ""
    for entry in METHODS.values():
        if entry.family != family:
            family = entry.family
            grid.add_section()
            grid.add_row(Text(family, style="italic cyan", overflow="ignore"))
        title, reference = ([entry.title], [entry.citation]) if wide else ([], [])
        grid.add_row(
            f"  {entry.name}{'*' * entry.reconstruction}", *title, _learning(entry), *_marks(entry), *reference
        )
    return grid


def render(name: str) -> RenderableType:
    """One method for a terminal."""
    entry = METHODS.find(name)
    traits = {
        "continuous": entry.continuous,
        "distribution-aware": entry.distribution_aware,
        "field-aware": entry.field_aware,
        "a reconstruction": entry.reconstruction,
    }
    return entry_text.render(entry, [entry.family, _learning(entry), *(name for name, has in traits.items() if has)])


def markdown() -> str:
    """The table of docs/methods.md."""
    rows = []
    for entry in METHODS.values():
        family = f"[{entry.family}](methods/{page(entry.family)})" if entry.family in FAMILIES else entry.family
        star = "\\*" if entry.reconstruction else ""
        rows.append([f"`{entry.name}`{star}", entry.title, family, _learning(entry), *_marks(entry), entry.citation])
    traits = ("continuous", "distribution-aware", "field-aware")
    head = ("name", "method", "family", "learns", *traits, "reference")
    return "\n".join([entry_text.markdown_table(head, rows, centred=traits), "", "\\" + "\n".join(_notes()), ""])


def _notes() -> list[str]:
    return [_RECONSTRUCTION, *(f"`{entry.name}`: {entry.note}" for entry in METHODS.values() if entry.note)]


def page(family: str) -> str:
    """The file in docs/methods that describes the family."""
    return f"{family.replace(' ', '-')}.md"


def _learning(entry: MethodEntry) -> str:
    return "streaming" if entry.streaming else "offline"


def _marks(entry: MethodEntry) -> list[str]:
    traits = (entry.continuous, entry.distribution_aware, entry.field_aware)
    return ["yes" if has else "–" for has in traits]
