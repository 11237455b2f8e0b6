"""One forward pass through rows, which is what a kind of source implements; `CursorSource` makes a source of it."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from daes.stream.arrow import pa
from daes.stream.batch import Batch
from daes.stream.category_text import category_text
from daes.stream.schema import column_kind, no_such_column

Position = dict[str, int | str]

NUMBER_ROLES = ("numerical", "label", "weight")


class SourceError(ValueError):
    """The data cannot be read; the message names the file and, if there is one, the row."""


class BatchError(SourceError):
    """A batch was read but its values are refused: a label of 2, a missing weight, …

    `position` is where the batch starts, `next_position` where the next one does: `seek` there to continue without it.
    """

    def __init__(self, message: str, position: Position, next_position: Position) -> None:
        super().__init__(message)
        self.position = position
        self.next_position = next_position


class Cursor(ABC):
    """One forward pass through rows: what a kind of source implements. The policies are `CursorSource`'s."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether there is another row; may read what it takes to know."""

    @abstractmethod
    def read(self, limit: int) -> Any:
        """A Table, or a Batch, of 1 to `limit` rows. Only after `ready()`."""

    @abstractmethod
    def place(self) -> Position:
        """Of the next row: where to open another cursor, and under `skip` how many rows to skip there."""

    def skip(self, rows: int) -> int:
        """Skip up to `rows` rows; returns how many there were. Reads them unless a subclass knows a faster way."""
        left = rows
        while left and self.ready():
            left -= len(self.read(left))
        return rows - left

    def wait(self, seconds: float) -> None:  # noqa: B027
        """For live sources: return as soon as there may be another row, at the latest after `seconds`."""

    def close(self) -> None:  # noqa: B027 (some have nothing open)
        """Release what is open."""


class PiecewiseCursor(Cursor):
    """Rows that come in Tables or RecordBatches of any length; a subclass makes the next one."""

    _left: Any = None
    _taken = 0
    """Rows handed out or skipped."""

    @abstractmethod
    def _next_piece(self) -> Any | None:
        """The next Table or RecordBatch, None at the end."""

    def ready(self) -> bool:
        while not self.num_left():
            self._left = self._next_piece()
            if self._left is None:
                return False
        return True

    def num_left(self) -> int:
        """Rows that can be read before the next piece."""
        return 0 if self._left is None else len(self._left)

    def read(self, limit: int) -> Any:
        piece, self._left = self._left[:limit], self._left[limit:]
        self._taken += len(piece)
        return piece

    def place(self) -> Position:
        return {"skip": self._taken}


class NumberedCursor(Cursor):
    """Rows known by their numbers.

    Args:
        make: makes a Table or Batch of the rows from `start` to before `stop`, or of the first of them.
        num_rows: how many rows there are; None for no end.
    """

    def __init__(self, make: Callable[[int, int], Any], num_rows: int | None) -> None:
        self._make, self._end = make, sys.maxsize if num_rows is None else num_rows
        self._row = 0

    def ready(self) -> bool:
        return self._row < self._end

    def read(self, limit: int) -> Any:
        rows = self._make(self._row, min(self._row + limit, self._end))
        self._row += len(rows)
        return rows

    def skip(self, rows: int) -> int:
        skipped = min(rows, self._end - self._row)
        self._row += skipped
        return skipped

    def place(self) -> Position:
        return {"skip": self._row}


def check_columns(columns: Sequence[str], available: Sequence[str], where: str = "") -> None:
    """Raise a `SourceError` unless each of `columns` is available exactly once."""
    if missing := [name for name in columns if name not in available]:
        raise SourceError(where + no_such_column(missing, available))
    for name in columns:
        count = list(available).count(name)
        if count > 1:
            raise SourceError(f"{where}column names must be unique; {name!r} occurs {count} times")


def join_pieces(pieces: Sequence[Any], roles: Mapping[str, str] | None = None) -> Any | None:
    """Tables or batches of the same columns joined, None if there are none; types may differ as the roles allow."""
    if len(pieces) <= 1:
        return pieces[0] if pieces else None
    if isinstance(pieces[0], Batch):
        return Batch.concat(pieces)
    if all(piece.schema == pieces[0].schema for piece in pieces):
        return pa.concat_tables(pieces)
    other = "unused" if roles else "unknown"
    return pa.table(
        {
            name: _join_columns([piece.column(name) for piece in pieces], (roles or {}).get(name, other))
            for name in pieces[0].column_names
        }
    )


def without_views(rows: Any) -> Any:
    """A Table with plain text and bytes in place of views, of which Arrow cannot take rows; a Batch as it is."""
    plain = {"string_view": pa.large_string, "binary_view": pa.large_binary}
    for position, field in enumerate(rows.schema if isinstance(rows, pa.Table) else ()):
        if make := plain.get(str(field.type)):
            rows = rows.set_column(position, field.name, rows.column(position).cast(make()))
    return rows


def _join_columns(columns: Sequence[Any], role: str) -> Any:
    """Columns as one, without dictionaries; if their types differ, categories become text and numbers floats."""
    dictionary = pa.types.is_dictionary
    columns = [column.cast(column.type.value_type) if dictionary(column.type) else column for column in columns]
    types = dict.fromkeys(column.type for column in columns)
    if len(types) == 1:
        target = columns[0].type
    elif role in NUMBER_ROLES:
        target = pa.float64()
    elif role == "time" and all(column_kind(of) == "time" for of in types):
        target = pa.timestamp("ns")
    else:
        target = None if role == "categorical" else _common_type(types)
        if target is None and role in ("categorical", "unused"):
            columns, target = [category_text(column) for column in columns], pa.large_string()
    disagree = SourceError(f"files must agree on the types of their columns, got {', '.join(map(str, types))}")
    if target is None:
        raise disagree
    exact = role not in (*NUMBER_ROLES, "unused")  # floats round large integers
    try:
        return pa.concat_tables([pa.table({"": column.cast(target, safe=exact)}) for column in columns]).column(0)
    except pa.ArrowInvalid as error:
        raise disagree from error


def _common_type(types: Iterable[Any]) -> Any | None:
    """The type that Arrow promotes all of these types to, None if there is none."""
    try:
        return pa.unify_schemas([pa.schema([("", of)]) for of in types], promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
