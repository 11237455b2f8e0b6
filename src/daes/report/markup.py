"""HTML by the piece. Everything that comes from data goes through `text`, here and nowhere else."""

import json
from collections.abc import Iterable
from html import escape
from math import isfinite
from typing import Any

from daes.table import Cell, Table


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


def table_html(table: Table) -> str:
    """A table that scrolls sideways where it is wider than the page."""

    def side(column: int) -> str:
        return ' class="left"' if column in table.left else ""

    def cell_html(place: int, cell: Cell) -> str:
        dot = f'<i class="dot" style="background:var(--{text(cell.colour)})"></i>' if cell.colour else ""
        inner = dot + (f"<strong>{text(cell.content)}</strong>" if cell.strong else text(cell.content))
        note = f" <small>{text(cell.note)}</small>" if cell.note else ""
        tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
        return f"<{tag}{scope}{side(place)}>{inner}{note}</{tag}>"

    caption = f"<caption>{text(table.caption)}</caption>" if table.caption else ""
    head = "".join(f'<th scope="col"{side(place)}>{text(name)}</th>' for place, name in enumerate(table.head))
    rows = ("".join(cell_html(place, cell) for place, cell in enumerate(row)) for row in table.cells())
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


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
