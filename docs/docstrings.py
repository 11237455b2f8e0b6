"""Docstrings as mkdocstrings reads them: doctests in fenced blocks, since Markdown would take them for quotations, and
arguments one by one."""

import re
from typing import Any

import griffe

_SEVERAL = re.compile(r"^( +)([a-z_]+(?:, [a-z_]+)+)(:.*(?:\n\1 +.*)*)", re.MULTILINE)
"""Arguments that are described together, as in `low, high: of the interval`, with the lines that belong to them."""


class Docstrings(griffe.Extension):
    """Used by mkdocstrings; see mkdocs.yml."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(part_arguments(obj.docstring.value))


def part_arguments(text: str) -> str:
    """Give each of several arguments that are described together its own description, so that its default shows."""
    return _SEVERAL.sub(lambda found: "\n".join(found[1] + name + found[3] for name in found[2].split(", ")), text)


def fence_doctests(text: str) -> str:
    """Put every doctest, up to the empty line after it, into a fence."""
    lines: list[str] = []
    indent: str | None = None
    for line in [*text.splitlines(), ""]:
        body = line.lstrip()
        if indent is None and body.startswith(">>>"):
            indent = line[: len(line) - len(body)]
            lines.append(f"{indent}```pycon")
        elif indent is not None and not body:
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    return "\n".join(lines).rstrip("\n")
