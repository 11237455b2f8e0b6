"""A stream by description, so that every process can open it anew: what to open and what its columns mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from daes.stream.opening import open as open_stream
from daes.stream.schema import LABEL_NAMES, Schema, infer_schema, no_such_column
from daes.stream.source import Stream


@dataclass(frozen=True)
class Data:
    """What to read. `Data.find` finds out what the columns mean.

    Args:
        what: as for `daes.stream.open`: a path, a glob, a directory, a URL, a dataset by name, a table, a frame.
        schema: what the columns mean.
        options: further options of `daes.stream.open`.
        max_rows: read no more than so many rows from the start; None for all.

    >>> import pyarrow as pa
    >>> table = pa.table({"click": [0, 1], "price": [0.5, 2.0], "city": ["Bern", "Rome"]})
    >>> Data.find(table, numerical=["price"]).schema
    Schema(label='click', numerical=('price',), categorical=('city',), time=None, weight=None)
    """

    what: Any
    schema: Schema
    options: Mapping[str, Any] = field(default_factory=dict)
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is not None and self.max_rows < 1:
            raise ValueError(f"max_rows must be positive, got {self.max_rows}")

    @classmethod
    def find(
        cls,
        what: Any,
        *,
        label: str | None = None,
        numerical: Sequence[str] | None = None,
        categorical: Sequence[str] | None = None,
        time: str | None = None,
        weight: str | None = None,
        exclude: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        max_rows: int | None = None,
        needs_label: bool = True,
    ) -> "Data":
        """Look at the columns: a dataset's own schema, or what `infer_schema` says; what is named wins over either."""
        options = dict(options or {})
        stream = open_stream(what, **options)
        named = {"label": label, "numerical": numerical, "categorical": categorical, "time": time, "weight": weight}
        if stream.schema is not None:
            schema = _changed(stream.schema, stream.source.arrow_schema.names, named, exclude)
        else:
            schema = infer_schema(stream.source.arrow_schema, **named, exclude=exclude)  # type: ignore[arg-type]
        if needs_label and schema.label is None:
            raise ValueError(
                f"label must be named, since no column of numbers is called {', '.join(LABEL_NAMES)}; "
                f"the columns are: {', '.join(stream.source.arrow_schema.names)}"
            )
        return cls(what, schema, options, max_rows)

    @cached_property
    def num_rows(self) -> int | None:
        """How many rows are to be read, None where that is not known."""
        return self.rows_of(self.open())

    def rows_of(self, stream: Stream) -> int | None:
        """How many rows of a stream that `open` gave are to be read, None where that is not known."""
        known = stream.source.num_rows
        return known if known is None or self.max_rows is None else min(known, self.max_rows)

    def describe(self, stream: Stream) -> dict[str, Any]:
        """What is read, as plain values, given the stream that `open` gave."""
        return {
            "what": str(self.what) if isinstance(self.what, str | Path) else stream.name,
            "name": stream.name,
            "rows": stream.source.num_rows,
            "notes": list(stream.notes),
            "options": dict(self.options),
            "max_rows": self.max_rows,
        }

    def open(self, *, prefetch: int = 0) -> Stream:
        """The stream from its start; `max_rows` is the reader's to keep."""
        return open_stream(self.what, schema=self.schema, prefetch=prefetch, **self.options)


def _changed(
    schema: Schema, available: Sequence[str], named: Mapping[str, str | Sequence[str] | None], exclude: Sequence[str]
) -> Schema:
    """A dataset's schema with some parts named anew; a column that is given another part loses its own."""
    given = {part: value for part, value in named.items() if value is not None}
    taken = {name for value in given.values() for name in ([value] if isinstance(value, str) else value)}
    for name in (*taken, *exclude):
        if name not in available:
            raise ValueError(no_such_column(name, available))
    parts: dict[str, Any] = {}
    for part in ("numerical", "categorical"):
        left = [name for name in getattr(schema, part) if name not in taken]
        parts[part] = tuple(name for name in given.get(part, left) if name not in exclude)
    for part in ("label", "time", "weight"):
        own = getattr(schema, part)
        parts[part] = given.get(part, None if own in taken or own in exclude else own)
    return replace(schema, **parts)
