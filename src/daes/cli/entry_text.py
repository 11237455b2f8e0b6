"""A registered method or backbone as text: what it is, with its options and their defaults."""

import re
from collections.abc import Sequence
from inspect import cleandoc, getdoc
from textwrap import dedent
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from daes.cli.console import plain_table
from daes.registry import Entry


def explanation(entry: Entry[Any]) -> dict[str, Any]:
    """The entry's fields, its class's docstring without the arguments, and the arguments as options."""
    helps = _argument_helps(entry.cls)
    options = [
        {"name": name, "default": default, "help": helps.get(name, "")} for name, default in entry.options.items()
    ]
    text = re.sub(r"\n{3,}", "\n\n", _ARGUMENTS.sub("", getdoc(entry.cls) or "")).strip()
    return {**entry.to_dict(), "text": text, "options": options}


def render(entry: Entry[Any], known: Sequence[str]) -> RenderableType:
    """An entry for a terminal; `known` is said of it in its second line."""
    explained = explanation(entry)
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
        *(["", options] if explained["options"] else []),
    )


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], centred: Sequence[str] = ()) -> str:
    """A table of a document; the columns `centred` are so.

    >>> print(markdown_table(["name", "good"], [["a", "yes"]], centred=["good"]))
    | name | good |
    | --- | :---: |
    | a | yes |
    """
    rule = [":---:" if name in centred else "---" for name in head]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


_ARGUMENTS = re.compile(r"^[A-Z][^\n.]*:\n((?: +.*\n?)+)", re.MULTILINE)
"""A list of arguments: a heading that ends in a colon, and indented items right below it."""


def _argument_helps(described: type) -> dict[str, str]:
    """The description of each argument in the docstring, or in that of a base class."""
    helps: dict[str, str] = {}
    for cls in reversed(described.__mro__):
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


def _shown(default: Any) -> str:
    return f"{default:_}" if isinstance(default, int) and abs(default) >= 10_000 else repr(default)
