"""Batches of an exact size, position, seek and shards on top of a `Cursor`, written once for every kind of source."""

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.arrow import pa
from daes.stream.bad_rows import BadRow, BadRows
from daes.stream.batch import BadValues, Batch, batch_from_table
from daes.stream.cursor import BatchError, Cursor, Position, SourceError, check_columns, join_pieces, without_views
from daes.stream.schema import Schema

MAX_WAIT = 60.0
_ROWS_AT_ONCE = 65_536
_HEARTBEAT = 1.0


class CursorSource(ABC):
    """Batches of an exact size, position, seek and shards on top of a `Cursor`.

    The rows of a live source keep coming: an iterator over it ends only at `stop_row`. A batch is handed out when it is
    full, or `max_wait` seconds after its first row arrived. While no rows arrive, a batch or table without rows is
    handed out about every second, so that the caller can do other work, such as writing a checkpoint.

    Args:
        start: the place of the first row; a position has its keys.
        max_wait: for a live source, seconds that a row waits at most for its batch to fill.
    """

    stop_row: int | None = None
    """Iterators made from now on end before this row; None for the end of the data."""
    skips = False
    """Whether bad rows are left out."""
    _label_map: Mapping[str, int] | None = None
    _rank, _world = 0, 1
    _rows_at_once = _ROWS_AT_ONCE

    def __init__(self, *, start: Position | None = None, max_wait: float | None = None) -> None:
        self.is_live, self.max_wait = max_wait is not None, max_wait or 0.0
        if self.is_live:
            if not 0 < self.max_wait <= MAX_WAIT:
                raise ValueError(f"max_wait must be positive and at most {MAX_WAIT:g} seconds, got {max_wait:g}")
            self._rows_at_once = 0  # one batch at a time: no row is held back for later batches
        self.bad_rows = BadRows()
        self._start: Position = {"skip": 0} if start is None else start
        self._position: Position = {"row": 0, "batch": 0, **self._start}
        self._iterators = 0

    def configure(
        self,
        *,
        bad_rows: str | None = None,
        label_map: Mapping[str, int] | None = None,
        shard: tuple[int, int] | None = None,
    ) -> None:
        """Change what is done with bad rows, how labels are read, and which batches are read; None changes nothing.

        Args:
            bad_rows: what `iter_batches` does with a row whose label, weight or time is refused: "error", the default,
                raises a `BatchError` that names the row; "skip" leaves the row out of its batch, which is then shorter,
                and adds it to `bad_rows`.
            label_map: the text of a label to 0 or 1, if labels are something else; see `batch_from_table`.
            shard: `(rank, world)`. Batches are numbered from 0 through the whole source, and batch i belongs to the
                rank with i % world == rank; the others are skipped. `position()` counts all batches, so that after a
                `seek` each rank continues with its own batches, whatever `world` was before. Ranks may differ by one in
                how many batches they get.
        """
        if bad_rows not in (None, "error", "skip"):
            raise ValueError(f"bad_rows must be 'error' or 'skip', got {bad_rows!r}")
        for text, label in (label_map or {}).items():
            if not isinstance(text, str):
                raise TypeError(f"label_map must map texts, got {text!r}; write {str(text)!r}")
            if label not in (0, 1):
                raise ValueError(f"label_map must map to 0 and 1, got {label!r} for {text!r}")
        self.skips = self.skips if bad_rows is None else bad_rows == "skip"
        self._label_map = dict(label_map) if label_map else self._label_map
        if shard is not None:
            rank, world = shard
            if not (isinstance(rank, int) and isinstance(world, int) and 0 <= rank < world):
                raise ValueError(f"shard must be (rank, world) with 0 ≤ rank < world, got {shard!r}")
            if self.is_live and world > 1:
                raise ValueError(f"a stream without an end is read by one process, got shard={shard!r}")
            self._rank, self._world = shard

    @property
    @abstractmethod
    def arrow_schema(self) -> Any:
        """Column names and types as a pyarrow Schema."""

    @property
    def num_rows(self) -> int | None:
        """All rows of the source, whatever the position and the shard; None if that is not known."""
        return None

    @abstractmethod
    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        """Open a cursor at `place`, which has no `skip`.

        Args:
            columns: the columns of the Tables it reads, in this order.
            schema: what the columns are read for; None for raw tables.
            place: see `Cursor.place`.
            rows_at_once: how many rows are converted together.
        """

    def _roles(self, schema: Schema | None) -> dict[str, str]:
        """The roles of the columns, none without a schema; a label that `label_map` maps is read as a category."""
        roles = {} if schema is None else schema.roles
        if schema is not None and schema.label is not None and self._label_map:
            roles[schema.label] = "categorical"
        return roles

    def _row_at(self, place: Position) -> tuple[str, int]:
        """The file, or whatever contains the row at `place`, and the number of the row in it, from 1."""
        return "the data", int(place["skip"]) + 1

    def position(self) -> Position:
        """The place of the next row not yet handed out, JSON-able."""
        return dict(self._position)

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go to a result of `position()`, or to `{"row": n}`, the n-th row from the start."""
        given = dict(position)
        if set(given) == {"row"}:
            given = self._position_of(0, 0, {**self._start, "skip": given["row"]}) | given
        expected = {"row", "batch", *self._start}
        if set(given) != expected:
            raise ValueError(f"position must have the keys {sorted(expected)}, got {given!r}")
        for key, value in given.items():
            if isinstance(self._start.get(key), str):
                if not isinstance(value, str):
                    raise ValueError(f"position[{key!r}] must be text, got {value!r}")
            elif not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"position[{key!r}] must be a non-negative integer, got {value!r}")
        self._check_place(given)
        self._iterators += 1
        self._position = given

    def _check_place(self, position: Position) -> None:  # noqa: B027 (most sources have nothing to refuse)
        """Refuse a position that is not of this source."""

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """Batches of `batch_size` rows (the last may be short, and those with bad rows are), from `position()` on."""
        return self._iterate(schema.columns, schema, batch_size)

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """The same rows as pyarrow Tables of these columns (None: all)."""
        names = tuple(self.arrow_schema.names if columns is None else columns)
        if not names:
            raise ValueError(f"columns must name at least one column, got {columns!r}")
        return self._iterate(names, None, batch_size)

    def _iterate(self, columns: Sequence[str], schema: Schema | None, batch_size: int) -> Iterator[Any]:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size!r}")
        self._check_columns(columns)
        self._iterators += 1
        return self._generate(self._iterators, columns, schema, batch_size)

    def _convert(self, table: Any, schema: Schema | None) -> Any:
        """What is handed out for rows that a cursor has read: a batch, or without a schema a Table."""
        if schema is None or isinstance(table, Batch):
            return table
        return batch_from_table(table, schema, label_map=self._label_map)

    def _check_columns(self, columns: Sequence[str]) -> None:
        check_columns(columns, self.arrow_schema.names)

    def _generate(self, iterator: int, columns: Sequence[str], schema: Schema | None, batch_size: int) -> Iterator[Any]:
        # Many small batches are read and converted together, then cut: a batch of 128 rows costs a slice.
        at_once = batch_size * (max(1, self._rows_at_once // batch_size) if self._world == 1 else 1)
        row, number = int(self._position["row"]), int(self._position["batch"])
        stop_row = self.stop_row
        roles = self._roles(schema)
        place = {key: self._position[key] for key in self._start}
        skip = int(place.pop("skip", row))
        cursor = self._cursor(columns, schema, place, at_once)
        try:
            self._skip(cursor, skip)
            while True:
                others = (self._rank - number) % self._world
                if others:
                    row += cursor.skip(others * batch_size)
                    number += others
                left = at_once if stop_row is None else min(at_once, stop_row - row)
                table, places = self._read(cursor, left, roles)
                if table is None:
                    if not self.is_live or left <= 0:
                        return
                    self._move(iterator, self._position_of(row, number, places[-1][1]))
                    yield self._no_rows(columns, schema)
                    continue
                try:
                    whole = self._convert(table, schema)
                except (ValueError, TypeError):
                    whole = None  # the batches before the bad one are good: convert and check one at a time
                for start in range(0, len(table), batch_size):
                    stop = min(start + batch_size, len(table))
                    following = self._position_of(row + stop, number + 1, _place_of(stop, places))
                    if whole is None:
                        item = self._convert_one(table, schema, np.arange(start, stop), places, following)
                    else:
                        item = whole[start:stop]
                    self._move(iterator, following)
                    number += 1
                    if item is not None:
                        yield item
                row += len(table)
        finally:
            cursor.close()

    def _position_of(self, row: int, batch: int, place: Position) -> Position:
        return {"row": row, "batch": batch, **{key: place[key] for key in self._start}}

    def _move(self, iterator: int, position: Position) -> None:
        if iterator != self._iterators:
            raise RuntimeError("this iterator has ended: its source was iterated again or moved by seek")
        self._position = position

    def _read(
        self, cursor: Cursor, rows: int, roles: Mapping[str, str]
    ) -> tuple[Any | None, list[tuple[int, Position]]]:
        """Up to `rows` rows as one Table, None if there are none, and the places of the pieces it is made of."""
        pieces: list[Any] = []
        places: list[tuple[int, Position]] = []
        done = 0
        deadline = time.monotonic() + min(self.max_wait, _HEARTBEAT)
        while done < rows:
            if cursor.ready():
                if not pieces:
                    deadline = time.monotonic() + self.max_wait
                places.append((done, cursor.place()))
                pieces.append(cursor.read(rows - done))
                done += len(pieces[-1])
            elif (left := deadline - time.monotonic()) > 0:
                cursor.wait(left)
            else:
                break
        return without_views(join_pieces(pieces, roles)), [*places, (done, cursor.place())]

    def _no_rows(self, columns: Sequence[str], schema: Schema | None) -> Any:
        """What a live source hands out while no rows come."""
        if schema is not None:
            return Batch.empty(schema)
        return pa.table({name: pa.array([], pa.float64()) for name in columns})

    def _convert_one(
        self,
        table: Any,
        schema: Schema | None,
        rows: NDArray[np.int64],
        places: list[tuple[int, Position]],
        following: Position,
    ) -> Any | None:
        """One batch: these rows of the table without the bad ones; None if all are bad."""
        while len(rows):
            try:
                return self._convert(table.take(rows), schema)
            except BadValues as error:
                bad = [
                    BadRow(*self._row_at(_place_of(int(rows[index]), places)), reason)
                    for index, reason in error.reasons.items()
                ]
                if not self.skips:
                    raise BatchError(f"{bad[0]}{error.advice}", self.position(), following) from error
                for row in bad:
                    self.bad_rows.add(row)
                rows = np.delete(rows, list(error.reasons))
            except (ValueError, TypeError) as error:
                where, number = self._row_at(_place_of(int(rows[0]), places))
                message = f"the batch of {len(rows)} rows from row {number} of {where} on: {error}"
                raise BatchError(message, self.position(), following) from error
        return None

    def _skip(self, cursor: Cursor, rows: int) -> None:
        skipped = cursor.skip(rows) if rows else 0
        if skipped < rows:
            raise SourceError(f"position must lie within the data; {rows - skipped} rows are no longer there")


def _place_of(row: int, places: list[tuple[int, Position]]) -> Position:
    start, place = places[bisect_right(places, row, key=lambda mark: mark[0]) - 1]
    return {**place, "skip": int(place["skip"]) + row - start}
