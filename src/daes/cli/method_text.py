"""The methods as text: a table of all, or one with its options and their defaults."""

import re
from inspect import cleandoc, getdoc
from textwrap import dedent
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from daes.cli.console import plain_table
from daes.embedding import METHODS, MethodEntry, NumericalEmbedding
from daes.embedding.registry import FAMILIES

_RECONSTRUCTION = "* a reconstruction: `daes methods NAME` says what is known and what was chosen."


def explanation(name: str) -> dict[str, Any]:
    """One method: its registry entry, its docstring without the arguments, and the arguments as options."""
    entry = METHODS.find(name)
    helps = _argument_helps(entry.cls)
    options = [
        {"name": name, "default": default, "help": helps.get(name, "")} for name, default in entry.options.items()
    ]
    text = re.sub(r"\n{3,}", "\n\n", _ARGUMENTS.sub("", getdoc(entry.cls) or "")).strip()
    return {**entry.to_dict(), "text": text, "options": options}


def table(width: int) -> RenderableType:
    """The table of methods for a terminal of this width; a narrow one leaves out titles and references."""
    wide = width >= 120
    grid = plain_table()
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
    return Group(grid, "", Text("\n".join(_notes()).replace("`", ""), style="dim"))


def render(name: str) -> RenderableType:
    """One method for a terminal."""
    explained, entry = explanation(name), METHODS[name]
    traits = {
        "continuous": entry.continuous,
        "distribution-aware": entry.distribution_aware,
        "field-aware": entry.field_aware,
        "a reconstruction": entry.reconstruction,
    }
    known = [entry.family, _learning(entry), *(name for name, has in traits.items() if has)]
    options = plain_table()
    options.add_column("option", style="bold", no_wrap=True)
    options.add_column("default")
    options.add_column("what it does")
    for option in explained["options"]:
        options.add_row(option["name"], Text(_shown(option["default"])), _styled(option["help"]))
    return Group(
        Text.assemble((entry.name, "bold"), f"  {entry.title}"),
        Text(", ".join(known), style="dim"),
        *([Text(str(entry.reference), style="dim")] if entry.reference else []),
        "",
        _styled(_reflowed(explained["text"])),
        "",
        options,
    )


def markdown() -> str:
    """The table of docs/methods.md."""
    lines = [
        "| name | method | family | learns | continuous | distribution-aware | field-aware | reference |",
        "| --- | --- | --- | --- | :---: | :---: | :---: | --- |",
    ]
    for entry in METHODS.values():
        family = f"[{entry.family}](methods/{page(entry.family)})" if entry.family in FAMILIES else entry.family
        star = "\\*" if entry.reconstruction else ""
        cells = [f"`{entry.name}`{star}", entry.title, family, _learning(entry), *_marks(entry), entry.citation]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "\\" + "\n".join(_notes()), ""])


def _notes() -> list[str]:
    return [_RECONSTRUCTION, *(f"`{entry.name}`: {entry.note}" for entry in METHODS.values() if entry.note)]


def page(family: str) -> str:
    """The file in docs/methods that describes the family."""
    return f"{family.replace(' ', '-')}.md"


_ARGUMENTS = re.compile(r"^[A-Z][^\n.]*:\n((?: +.*\n?)+)", re.MULTILINE)
"""A list of arguments: a heading that ends in a colon, and indented items right below it."""


def _argument_helps(method: type[NumericalEmbedding]) -> dict[str, str]:
    """The description of each argument in the docstring, or in that of a base class."""
    helps: dict[str, str] = {}
    for cls in reversed(method.__mro__):
        for block in _ARGUMENTS.findall(cleandoc(cls.__doc__ or "")):
            for item in re.split(r"\n(?=\w+: )", dedent(block).strip()):
                argument, _, text = item.partition(": ")
                helps[argument] = " ".join(text.split())
    return helps


def _reflowed(text: str) -> str:
    """Paragraphs as one line each, for the terminal to wrap; formulas and examples stay as they are.

    >>> print(_reflowed("One\\nsentence.\\n\\n1. First\\n   item\\n2. second\\n\\n    x =\\n    y"))
    One sentence.
    <BLANKLINE>
    1. First item
    2. second
    <BLANKLINE>
        x =
        y
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        part if part.startswith(("    ", ">>>")) else re.sub(r"\n {0,3}(?!\d\. |- |\s)", " ", part)
        for part in paragraphs
    )


def _styled(text: str) -> Text:
    """Text with the Markdown of docstrings, bold and code, as styles."""
    styled = Text()
    for piece in re.split(r"(\*\*[^*\n]+\*\*|`[^`\n]+`)", text):
        if piece.startswith("**"):
            styled.append(piece[2:-2], "bold")
        elif piece.startswith("`"):
            styled.append(piece[1:-1], "cyan")
        else:
            styled.append(piece)
    return styled


def _learning(entry: MethodEntry) -> str:
    return "streaming" if entry.streaming else "offline"


def _marks(entry: MethodEntry) -> list[str]:
    traits = (entry.continuous, entry.distribution_aware, entry.field_aware)
    return ["yes" if has else "–" for has in traits]


def _shown(default: Any) -> str:
    return f"{default:_}" if isinstance(default, int) and abs(default) >= 10_000 else repr(default)
