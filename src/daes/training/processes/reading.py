"""Parquet files that several processes read together: each reads some of the columns and sends them to the others."""

import copy
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daes.embedding.processes import ProcessesDisagreeError
from daes.stream.bad_rows import BadRows
from daes.stream.batch import Batch
from daes.stream.cursor import Position
from daes.stream.dataset import Dataset
from daes.stream.parquet import ParquetSource
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema
from daes.stream.source import Source
from daes.training.processes.group import Processes

_ROWS_AT_ONCE = 65_536


def read_together(data: Dataset, processes: Processes, *, prefetch: int = 0) -> Source:
    """All rows, in every process.

    Of Parquet files every process reads its share of the columns, see `DividedReading`. Otherwise every process reads
    everything: rows in memory cost nothing, and text has to be parsed to find the end of a row.
    """
    if processes.count > 1 and isinstance(data.source, ParquetSource):
        return DividedReading(data, processes, prefetch=prefetch)
    return data.from_start(prefetch=prefetch)


class DividedReading:
    """Rows whose columns the processes read together.

    Process r of N reads features r, r + N, …, and label, weight and time, of about 65,000 rows at a time. The processes
    exchange what they have read, so that each has all rows in order. Since a file stores each column separately, files
    are read and decoded once, by all processes together.

    If some rows cannot be read or are refused, every process reads all columns of the next 65,000 rows, so that errors
    are the same as with one process.

    Args:
        data: Parquet files; the same in all processes.
        processes: the processes, which must all iterate in step.
        prefetch: whether a thread reads ahead.
    """

    def __init__(self, data: Dataset, processes: Processes, *, prefetch: int = 0) -> None:
        self._data, self._processes = data, processes
        source = copy.copy(data.source)
        assert isinstance(source, ParquetSource)
        source.bad_rows = BadRows()  # rows that are refused are read and recorded again by each process
        source.configure(bad_rows="error")
        columns = data.with_source(source)
        self._columns: Source = Prefetch(columns, 1) if prefetch else columns
        self._position: Position = {"row": 0}
        self._alone = (0, 0)  # the range of rows that each process reads alone

    @property
    def num_rows(self) -> int | None:
        return self._data.num_rows

    @property
    def arrow_schema(self) -> Any:
        return self._data.arrow_schema

    def position(self) -> Position:
        """The position of the next batch, the same in all processes."""
        return dict(self._position)

    def seek(self, position: Mapping[str, int | str]) -> None:
        self._columns.seek(position)
        self._position = dict(position)

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        return self._data.iter_tables(columns, batch_size)

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        ended = False
        while not ended:
            yield from self._each_alone(schema, batch_size)
            ended = yield from self._together(schema, batch_size)

    def _each_alone(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """The rest of the rows that could not be read together, also after an error in them."""
        start, stop = self._alone
        if start <= int(self._position["row"]) < stop:
            rows = self._data.head(stop)
            rows.seek(self._position)
            for batch in rows.iter_batches(schema, batch_size):
                self._position = rows.position()
                yield batch

    def _together(self, schema: Schema, batch_size: int) -> Generator[Batch, None, bool]:
        """The next rows, up to some that a process cannot read; returns whether the data have ended."""
        rank, world = self._processes.rank, self._processes.count
        shares = [_share(schema, number, world) for number in range(world)]
        at_once = batch_size * max(1, _ROWS_AT_ONCE // batch_size)
        self._columns.seek(self._position)
        pieces = self._columns.iter_batches(shares[rank], at_once)
        while True:
            row = int(self._position["row"])
            own = self._read(pieces, shares[rank])
            everyone = self._processes.gather(None if own is None else (own.numerical, own.categorical))
            if own is None or any(one is None for one in everyone):
                self._alone = (row, row + at_once)
                return False
            rows = _joined(own, everyone, shares, schema)
            if not len(rows):
                return True
            for start in range(0, len(rows), batch_size):
                stop = min(start + batch_size, len(rows))
                self._position = {"row": row + stop}
                yield rows[start:stop]

    def _read(self, pieces: Iterator[Batch], share: Schema) -> Batch | None:
        """The next rows of this process's columns, an empty batch at the end of the data; None if there is an error."""
        try:
            return next(pieces, None) or Batch.empty(share)
        except Exception:  # raised again when each process reads these rows alone
            return None


def _share(schema: Schema, rank: int, world: int) -> Schema:
    """The columns that process `rank` reads: its features, at least one, and label, weight and time."""
    features = (*schema.numerical, *schema.categorical)
    own = set(features[rank::world] or features[:1])
    numerical, categorical = (
        tuple(name for name in names if name in own) for names in (schema.numerical, schema.categorical)
    )
    return replace(schema, numerical=numerical, categorical=categorical)


def _joined(own: Batch, parts: Sequence[tuple[Any, Any]], shares: Sequence[Schema], schema: Schema) -> Batch:
    """The rows with the features that all processes have read."""
    lengths = [len(numerical) for numerical, _ in parts]
    if len(set(lengths)) > 1:
        raise ProcessesDisagreeError(
            f"the processes have read different numbers of rows ({', '.join(map(str, lengths))}): they do not read the "
            "same data"
        )
    numerical = np.empty((len(own), schema.num_numerical), np.float32)
    categorical = np.empty((len(own), schema.num_categorical), np.int64)
    for share, (numbers, ids) in zip(shares, parts, strict=True):
        numerical[:, [schema.numerical.index(name) for name in share.numerical]] = numbers
        categorical[:, [schema.categorical.index(name) for name in share.categorical]] = ids
    return replace(own, numerical=numerical, categorical=categorical)
