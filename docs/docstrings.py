"""Examples in docstrings as code: doctests become fenced blocks, which Markdown would take for quotations."""

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Used by mkdocstrings; see mkdocs.yml."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)


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
