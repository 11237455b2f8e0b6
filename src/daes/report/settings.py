"""Settings of a run as a table."""

from collections.abc import Iterable, Mapping
from typing import Any

from daes.report.content import Details
from daes.table import Table


def settings(title: str, given: Mapping[str, Any]) -> list[Details]:
    """Settings as a table that opens on a click; nothing where there are none."""
    rows = list(flat(given))
    return (
        [Details(f"{title} ({len(rows)})", Table(("setting", "value"), rows, left=frozenset({0, 1})))] if rows else []
    )


def flat(given: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested settings as dotted names and short texts.

    >>> list(flat({"model": {"dim": 16, "context": ["a", "b"], "l2": None}, "sizes": {}}))
    [('model.dim', '16'), ('model.context', 'a, b'), ('model.l2', '–'), ('sizes', '–')]
    """
    for key, value in given.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        elif isinstance(value, list | tuple) and all(not isinstance(item, Mapping | list) for item in value) and value:
            yield name, ", ".join(map(str, value))
        elif value is None or value == {} or value == []:
            yield name, "–"
        else:
            yield name, str(value)
