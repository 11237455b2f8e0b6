"""Sources made of other sources: rows held in memory, read once and gone through often; the first rows alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.stream.source import Position, Source

_ROWS_AT_ONCE = 65_536


class HeldRows:
    """A source of the rows of one batch; a batch of it is a view.

    Args:
        rows: the rows.
        schema: what their columns are; no other can be asked for.

    >>> import numpy as np
    >>> schema = Schema("click", numerical=("price",), categorical=())
    >>> rows = Batch(np.arange(5, dtype=np.float32).reshape(5, 1), np.empty((5, 0), np.int64), np.ones(5, np.float32))
    >>> source = HeldRows(rows, schema)
    >>> [len(batch) for batch in source.iter_batches(schema, 2)], source.position()
    ([2, 2, 1], {'row': 5, 'batch': 3})
    """

    def __init__(self, rows: Batch, schema: Schema) -> None:
        self.rows = rows
        self.schema = schema
        self._position: Position = {"row": 0, "batch": 0}

    @property
    def num_rows(self) -> int:
        """All rows."""
        return len(self.rows)

    @property
    def arrow_schema(self) -> Any:
        """There is none: rows held as arrays have no Arrow types any more."""
        raise TypeError("rows held in memory are arrays and have no Arrow schema")

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """Batches of exactly `batch_size` rows (the last may be short), from `position()` on."""
        if schema != self.schema:
            raise ValueError("schema must be the one that the rows were read with; it differs")
        while int(self._position["row"]) < len(self.rows):
            start, number = int(self._position["row"]), int(self._position["batch"])
            stop = min(start + batch_size, len(self.rows))
            self._position = {"row": stop, "batch": number + 1}
            yield self.rows[start:stop]

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """Not to be had: the columns of text are hashes by now."""
        raise TypeError("rows held in memory are arrays and cannot be read as tables")

    def position(self) -> Position:
        """The next row not yet handed out."""
        return dict(self._position)

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go to what `position()` said, or to `{"row": n}`."""
        self._position = {"row": int(position["row"]), "batch": int(position.get("batch", 0))}


class FirstRows:
    """The first rows of a source, as a source.

    >>> from daes.simulation import AdStream
    >>> stream = AdStream(num_rows=100)
    >>> [len(batch) for batch in FirstRows(stream, 25).iter_batches(stream.schema, 10)]
    [10, 10, 5]
    """

    def __init__(self, source: Source, count: int) -> None:
        self.source = source
        self.count = count

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, None if the source may have fewer and does not know."""
        known = self.source.num_rows
        return None if known is None else min(known, self.count)

    @property
    def arrow_schema(self) -> Any:
        """That of the source."""
        return self.source.arrow_schema

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """Batches of exactly `batch_size` rows (the last may be short), from `position()` on."""
        left = self._left()
        if left > 0:
            for batch in self.source.iter_batches(schema, batch_size):
                yield batch[:left]
                left = self._left()
                if left <= 0:
                    return

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """The same rows as pyarrow Tables of these columns (None: all)."""
        left = self._left()
        if left > 0:
            for table in self.source.iter_tables(columns, batch_size):
                yield table.slice(0, left)
                left = self._left()
                if left <= 0:
                    return

    def position(self) -> Position:
        """That of the source."""
        return self.source.position()

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go to what `position()` said, or to `{"row": n}`."""
        self.source.seek(position)

    def _left(self) -> int:
        return self.count - int(self.source.position()["row"])


def hold(source: Source, schema: Schema, *, max_rows: int | None = None, max_bytes: int | None = None) -> Batch | None:
    """The rows from where the source stands, all or at most `max_rows`; None if they need more than `max_bytes`."""
    pieces: list[Batch] = []
    rows = size = 0
    for piece in source.iter_batches(schema, _ROWS_AT_ONCE):
        if max_rows is not None:
            piece = piece[: max_rows - rows]
        # A piece of a larger table would keep all of it alive, and is copied by the concatenation anyway.
        pieces.append(piece)
        rows += len(piece)
        size += sum(array.nbytes for array in vars(piece).values() if array is not None)
        if max_bytes is not None and size > max_bytes:
            return None
        if rows == max_rows:
            break
    if not pieces:
        raise ValueError("the data must have at least one row; there is none")
    return Batch.concat(pieces)
