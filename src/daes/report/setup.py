"""How a run was made: configuration, environment, notes, and what went wrong."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from daes.formatting import count
from daes.report.markup import details, paragraph, table_html, text
from daes.table import Table

_LISTED = 50


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested settings as dotted names and short texts.

    >>> list(flat({"model": {"dim": 16, "context": ["a", "b"], "l2": None}, "sizes": {}}))
    [('model.dim', '16'), ('model.context', 'a, b'), ('model.l2', '–'), ('sizes', '–')]
    """
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        elif isinstance(value, list | tuple) and all(not isinstance(item, Mapping | list) for item in value) and value:
            yield name, ", ".join(map(str, value))
        elif value is None or value == {} or value == []:
            yield name, "–"
        else:
            yield name, str(value)


def settings(title: str, given: Mapping[str, Any]) -> str:
    """Settings as a table that opens on a click."""
    rows = list(flat(given))
    if not rows:
        return ""
    return details(f"{title} ({len(rows)})", table_html(Table(("setting", "value"), rows, left=frozenset({0, 1}))))


def notes(given: Sequence[str]) -> str:
    """Remarks as a list."""
    items = "".join(f"<li>{text(note)}</li>" for note in given)
    return f'<ul class="notes">{items}</ul>' if items else ""


def bad_batches(given: Sequence[tuple[int, str]]) -> str:
    """Batches that were not learned from, with their place and the reason."""
    if not given:
        return paragraph("Every batch was learned from.")
    more = f" The first {_LISTED} are listed." if len(given) > _LISTED else ""
    said = f"{count(len(given))} {'batch was' if len(given) == 1 else 'batches were'} skipped.{more}"
    rows = [(count(row), reason) for row, reason in given[:_LISTED]]
    table = table_html(Table(("first row", "reason"), rows, left=frozenset({1})))
    return paragraph(said, "said warning") + table
