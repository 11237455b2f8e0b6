"""HTML by the piece. Everything that comes from data goes through `text`, here and nowhere else."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any


def text(value: object) -> str:
    """Text as HTML, safe between tags and in quoted attributes.

    >>> text('<b> & "c"')
    '&lt;b&gt; &amp; &quot;c&quot;'
    """
    # A NUL or another control character is no character of HTML.
    return escape("".join(char if char >= " " or char in "\t\n" else "\ufffd" for char in str(value)))


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element; NaN and ±inf become null, floats keep six digits.

    >>> embedded_json({"x": [float("nan"), 1 / 3, 2.0], "name": "</script>"})
    '{"x":[null,0.333333,2],"name":"\\\\u003c/script>"}'
    """
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        if not isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.6g}")
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what it says, and how it stands out."""

    content: str
    strong: bool = False
    colour: str = ""
    """A colour of the theme ("c1") for a dot before the content."""
    note: str = ""
    """Small print after the content."""


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows. `left` are the columns of text; numbers stand right."""

    head: tuple[str, ...]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    left: frozenset[int] = frozenset({0})

    def html(self) -> str:
        caption = f"<caption>{text(self.caption)}</caption>" if self.caption else ""
        head = "".join(f'<th scope="col"{self._side(place)}>{text(name)}</th>' for place, name in enumerate(self.head))
        body = "\n".join(f"<tr>{''.join(self._cells(row))}</tr>" for row in self.rows)
        return (
            f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )

    def _cells(self, row: Sequence[str | Cell]) -> Iterable[str]:
        for place, given in enumerate(row):
            cell = given if isinstance(given, Cell) else Cell(given)
            dot = f'<i class="dot" style="background:var(--{text(cell.colour)})"></i>' if cell.colour else ""
            inner = dot + (f"<strong>{text(cell.content)}</strong>" if cell.strong else text(cell.content))
            if cell.note:
                inner += f" <small>{text(cell.note)}</small>"
            tag = 'th scope="row"' if place == 0 else "td"
            yield f"<{tag}{self._side(place)}>{inner}</{tag.partition(' ')[0]}>"

    def _side(self, column: int) -> str:
        return ' class="left"' if column in self.left else ""


def details(summary: str, content: str) -> str:
    """Content that opens on a click."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def paragraph(content: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{text(kind)}">{text(content)}</p>' if kind else f"<p>{text(content)}</p>"


def section(name: str, title: str, content: str, group: str = "") -> str:
    """A section with a heading and an anchor; `group` comes before the title, in small print."""
    above = f'<span class="group">{text(group)}</span> ' if group else ""
    return (
        f'<section id="{text(name)}" aria-labelledby="{text(name)}-title">\n'
        f'<h2 id="{text(name)}-title">{above}{text(title)}</h2>\n{content}\n</section>'
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Key numbers, each with its name: a description list laid out as tiles."""
    tiles = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{tiles}</dl>'
