"""Where rows come from: one interface for files, tables and frames, with exact resume.

A source is read from its position on. `position()` is the place of the next row not yet handed out, small enough to
store with a model; after `seek(position)` the stream continues with the same values and the same batch boundaries.

>>> import pyarrow as pa
>>> from daes.stream.schema import Schema
>>> source = TableSource(pa.table({"click": [0, 1, 0], "price": [1.0, 2.0, 3.0]}))
>>> schema = Schema("click", ("price",), ())
>>> first = next(source.iter_batches(schema, batch_size=2))
>>> source.position()
{'row': 2, 'batch': 1, 'skip': 2}
>>> [batch.numerical.tolist() for batch in source.iter_batches(schema, batch_size=2)]
[[[3.0]]]
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from daes.stream.arrow import pa
from daes.stream.bad_rows import BadRows
from daes.stream.batch import Batch
from daes.stream.cursor import Cursor, NumberedCursor, PiecewiseCursor, Position, SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.schema import Schema


class Source(Protocol):
    """What every source can do. It has one position, hence one iterator at a time."""

    @property
    def num_rows(self) -> int | None:
        """All rows of the source, whatever the position; None if they would have to be read to count."""

    @property
    def arrow_schema(self) -> Any:
        """Column names and types as a pyarrow Schema; of a CSV file, what its first block suggests."""

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """Batches of exactly `batch_size` rows (the last may be short), from `position()` on."""

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """The same rows as pyarrow Tables of these columns (None: all)."""

    def position(self) -> Position:
        """The place of the next row not yet handed out, JSON-able. `row` counts rows and `batch` batches."""

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go to a result of `position()`, or to `{"row": n}`, the n-th row from the start (0 rewinds)."""


class TableSource(CursorSource):
    """Rows of a pyarrow Table or RecordBatch, a pandas or polars frame, or any object with Arrow's C stream interface.

    Args:
        table: the rows. A pandas index is not a column.

    >>> import polars
    >>> TableSource(polars.DataFrame({"price": [1.0, 2.0]})).num_rows
    2
    """

    def __init__(self, table: Any) -> None:
        super().__init__()
        self._table = as_table(table)

    @property
    def arrow_schema(self) -> Any:
        return self._table.schema

    @property
    def num_rows(self) -> int:
        return int(self._table.num_rows)

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        table = self._table.select(list(columns))
        return NumberedCursor(lambda start, stop: table.slice(start, stop - start), self.num_rows)


class NumberedSource(CursorSource):
    """Rows that are made from their numbers when they are handed out: a position is a row, and seeking is free."""

    def __init__(self) -> None:
        super().__init__(start={})

    def _check_place(self, position: Position) -> None:
        if self.num_rows is not None and int(position["row"]) > self.num_rows:
            raise ValueError(f"position must lie within {self.num_rows} rows, got {position!r}")


class BatchSource(NumberedSource):
    """Rows in memory, as one batch; the batches it yields are views if they have the same columns.

    Args:
        rows: the rows.
        schema: what their columns are.
        bad_rows: the rows that were left out when these were read.

    >>> import numpy as np
    >>> schema = Schema("click", numerical=("price",), categorical=())
    >>> rows = Batch(np.arange(5, dtype=np.float32).reshape(5, 1), np.empty((5, 0), np.int64), np.ones(5, np.float32))
    >>> source = BatchSource(rows, schema)
    >>> [len(batch) for batch in source.iter_batches(schema, 2)], source.position()
    ([2, 2, 1], {'row': 5, 'batch': 3})
    """

    def __init__(self, rows: Batch, schema: Schema, bad_rows: BadRows | None = None) -> None:
        super().__init__()
        self.bad_rows = bad_rows or BadRows()
        self.rows = rows
        self.schema = schema

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def arrow_schema(self) -> Any:
        """There is none: arrays have no Arrow types."""
        raise TypeError("rows in memory are arrays and have no Arrow schema")

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """Not possible: text has been hashed."""
        raise TypeError("rows in memory are arrays and cannot be read as tables")

    def _check_columns(self, columns: Sequence[str]) -> None:
        """`_cursor` checks the columns and their roles."""

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        assert schema is not None  # there are no tables of these rows
        own = self.schema.roles
        for name, role in schema.roles.items():
            if own.get(name) != role:
                raise ValueError(f"the rows in memory have no {role} column {name!r}, got the columns {own}")
        if schema == self.schema:
            return NumberedCursor(lambda start, stop: self.rows[start:stop], len(self.rows))
        numerical = [self.schema.numerical.index(name) for name in schema.numerical]
        categorical = [self.schema.categorical.index(name) for name in schema.categorical]
        others = [part for part in ("label", "weight", "time") if getattr(schema, part) is not None]

        def make(start: int, stop: int) -> Batch:
            rows = self.rows[start:stop]
            kept = {part: getattr(rows, part) for part in others}
            return Batch(rows.numerical.take(numerical, axis=1), rows.categorical.take(categorical, axis=1), **kept)

        return NumberedCursor(make, len(self.rows))


def as_table(data: Any) -> Any:
    """The data as a pyarrow Table, without copying if possible."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, AttributeError) as error:
        found = "; ".join(map(str, error.args))
        message = f"each column of a {type(data).__name__} must have values of one type, got: {found}"
        raise SourceError(message) from error
    except (OverflowError, UnicodeError) as error:  # of a value, and they do not say of which column
        name = next(name for name in data.columns if not _fits_arrow(data[name]))
        message = (
            f"column {name!r} of a {type(data).__name__} has a value that Arrow cannot hold ({error}): "
            "make it a column of floats, or of valid text"
        )
        raise SourceError(message) from error
    raise TypeError(f"table must be an Arrow table or a pandas or polars frame, got {type(data).__name__}")


def _fits_arrow(column: Any) -> bool:
    try:
        pa.Array.from_pandas(column)
    except (OverflowError, UnicodeError):
        return False
    return True


class ReaderSource(CursorSource):
    """Rows of a pyarrow RecordBatchReader, one pass.

    Args:
        reader: the reader, or a function without arguments that makes a new one. With a function the source can
            `seek` anywhere, with a reader only forward.

    >>> import pyarrow as pa
    >>> table = pa.table({"price": [1.0, 2.0, 3.0]})
    >>> source = ReaderSource(table.to_reader)
    >>> [piece.num_rows for piece in source.iter_tables(None, 2)]
    [2, 1]
    """

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._make: Callable[[], Any] | None = reader if callable(reader) else None
        self._reader = reader() if callable(reader) else reader
        if not isinstance(self._reader, pa.RecordBatchReader):
            raise TypeError(f"reader must be a pyarrow RecordBatchReader, got {type(self._reader).__name__}")
        if self._make is None:
            self._rows_at_once = 0  # rows cannot be read twice: never read more than is handed out
        self._open: _ReaderCursor | None = None

    @property
    def arrow_schema(self) -> Any:
        return self._reader.schema

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        if self._make is not None:
            return _ReaderCursor(self._make(), columns)
        if self._open is None:
            self._open = _ReaderCursor(self._reader, columns)
        self._open.columns = list(columns)
        return self._open

    def _skip(self, cursor: Cursor, rows: int) -> None:
        done = int(cursor.place()["skip"])
        if rows < done:
            raise SourceError(
                f"a RecordBatchReader cannot go back to row {rows} after {done} rows; "
                "give a function that makes a new reader"
            )
        super()._skip(cursor, rows - done)


class _ReaderCursor(PiecewiseCursor):
    def __init__(self, reader: Any, columns: Sequence[str]) -> None:
        self._reader = reader
        self.columns = list(columns)

    def _next_piece(self) -> Any | None:
        return next(self._reader, None)

    def read(self, limit: int) -> Any:
        return pa.Table.from_batches([super().read(limit)]).select(self.columns)
