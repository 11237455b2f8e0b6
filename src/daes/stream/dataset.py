"""`Dataset`: what to read, what its columns mean, and how many of its rows."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from daes.stream.bad_rows import BadRows
from daes.stream.batch import Batch
from daes.stream.cursor import BatchError, Position
from daes.stream.cursor_source import CursorSource
from daes.stream.datasets import find_entry
from daes.stream.files_source import FilesSource
from daes.stream.opening import absolute, name_of, open_source, refuse_file_options
from daes.stream.prefetch import Prefetch
from daes.stream.roles import infer_roles, no_label, with_roles
from daes.stream.schema import Schema
from daes.stream.source import BatchSource, Source, TableSource

_ROWS_AT_ONCE = 65_536
_FINGERPRINT_ROWS = 10_000
_MAX_BYTES = 1 << 30


class Dataset:
    """Rows and what their columns mean. A dataset is itself a source of its rows, at most `limit` of them.

    `Dataset.open` opens files, tables and datasets by name; the constructor takes a source.

    All datasets made from one another (`head`, `with_schema`, `from_start`) read through one opened source, each from
    its own position; only one of them can be iterated at a time. An unpickled dataset opens its files again, so that a
    worker process does its own reading.

    Args:
        source: where the rows come from; it is read from row 0.
        schema: what its columns mean.
        name: a short name for reports; by default that of the source's class.
        notes: sentences on what was done to the data, such as dropping rows without a label.
        limit: yield at most this many rows from the start; None for all.

    >>> import pyarrow as pa
    >>> table = pa.table({"click": [0, 1, 1], "price": [0.5, 2.0, 1.0], "city": ["Bern", "Rome", "Bern"]})
    >>> data = Dataset.open(table, limit=2)
    >>> data.schema
    Schema(label='click', numerical=('price',), categorical=('city',), time=None, weight=None)
    >>> data.num_rows, [batch.numerical.tolist() for batch in data.iter_batches(data.schema, batch_size=8)]
    (2, [[[0.5], [2.0]]])
    """

    def __init__(
        self,
        source: Source,
        schema: Schema,
        *,
        name: str | None = None,
        notes: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be positive, got {limit}")
        self.schema = schema
        self.name = type(source).__name__ if name is None else name
        self.notes = tuple(notes)
        self.limit = limit
        self.what: Any = source
        self.options: Mapping[str, Any] = {}
        self._source: Source | None = source
        self._position: Position = {"row": 0}
        self._memory: Dataset | None = None
        self._by_time = False

    @classmethod
    def open(
        cls,
        what: Any,
        *,
        schema: Schema | None = None,
        label: str | None = None,
        numerical: Sequence[str] | None = None,
        categorical: Sequence[str] | None = None,
        time: str | None = None,
        weight: str | None = None,
        exclude: Sequence[str] = (),
        needs_label: bool = True,
        limit: int | None = None,
        **options: Any,
    ) -> "Dataset":
        """Open data and determine what its columns mean.

        Args:
            what: a dataset by name (`flights`) or with its path (`criteo:PATH`, `automl:PATH`; see `DATASETS`); a path,
                a glob, a directory or a URL of Parquet or CSV files, or a sequence of these (see
                `daes.stream.files.find_files`); a pyarrow Table, RecordBatch or RecordBatchReader, or a function that
                makes a fresh reader; a pandas or polars frame; a topic of a broker (`nats://host/stream`,
                `kafka://host/topic`, see `daes.stream.messages`); a source; or a `Dataset`. A file with the name of a
                dataset is `./flights`.
            schema: what the columns mean, if that is known completely; otherwise it is the dataset's own schema, or
                what `infer_schema` finds, changed by the following arguments.
            label, numerical, categorical, time, weight: column names; they take precedence over inference.
            exclude: columns that are not used.
            needs_label: whether a schema without a label is an error.
            limit: read at most this many rows from the start; None for all.
            options: `bad_rows` ("error" or "skip"), `label_map` and `shard=(rank, world)` (see
                `CursorSource.configure`); `format` ("parquet" or "csv", if the file names do not tell); for CSV files
                those of `CsvSource` (`separator`, `header`, `column_names`, `decimal`, `quoting`, `missing`,
                `missing_categories`); for a dataset by name its own; `follow=True` for files that keep arriving
                (`daes.stream.follow`), with `order` and `max_wait`.
        """
        named = {"label": label, "numerical": numerical, "categorical": categorical, "time": time, "weight": weight}
        source, known = _open(what, options)
        if schema is None:
            if known is None:
                schema = infer_roles(source, named, exclude)
            else:
                schema = with_roles(known.schema, source, named, exclude)
            if needs_label and schema.label is None:
                raise ValueError(no_label(source.arrow_schema.names, named, exclude))
        if isinstance(what, Dataset):
            return what.with_schema(schema).head(limit)
        name, notes = (name_of(what), ()) if known is None else (known.name, known.notes)
        data = cls(source, schema, name=name, notes=notes, limit=limit)
        data.what, data.options = what, options
        return data

    @property
    def source(self) -> Source:
        """What the rows are read from, opened once."""
        if self._source is None:
            self._source, _ = _open(self.what, self.options)
            if self._by_time:
                self._source = self._sorted() or self._source
        return self._source

    @property
    def is_live(self) -> bool:
        """Whether rows keep coming: see `CursorSource`."""
        return bool(getattr(self.source, "is_live", False))

    @property
    def sorted_by(self) -> str | None:
        """The time by which `in_time_order` has sorted the rows; None if they are in the order of the source."""
        return self.schema.time if self._by_time else None

    @property
    def bad_rows(self) -> BadRows:
        """The rows left out so far."""
        found = getattr(self.source, "bad_rows", None)
        return found if isinstance(found, BadRows) else BadRows()

    def head(self, rows: int | None) -> "Dataset":
        """Only the first `rows` rows; None for all."""
        limits = [limit for limit in (self.limit, rows) if limit is not None]
        return self._with(limit=min(limits, default=None))

    def with_schema(self, schema: Schema) -> "Dataset":
        """The same rows with other columns."""
        return self._with(schema=schema)

    def with_source(self, source: Source) -> "Dataset":
        """The same dataset, read from another source of the same rows."""
        return self._with(source=source)

    def from_start(self, *, prefetch: int = 0) -> Source:
        """The rows from the start, whatever the position; a thread reads `prefetch` batches ahead."""
        start = self._with()
        return Prefetch(start, prefetch) if prefetch and not isinstance(self.source, BatchSource) else start

    def in_memory(self, max_bytes: int = _MAX_BYTES) -> "Dataset":
        """The same rows in memory, read once; the dataset itself if they need more than `max_bytes`.

        It is also the dataset itself if some rows are refused: each reader decides what to do with them.
        """
        if self._memory is None:
            rows = self._read_all(max_bytes)
            self._memory = self if rows is None else self._with(source=BatchSource(rows, self.schema))
        return self._memory

    def in_time_order(self, max_bytes: int = _MAX_BYTES) -> tuple["Dataset", str | None]:
        """The same rows in the order of their time, and a sentence on what was found; None if nothing was checked.

        Files and tables with a time column are checked. Rows that are not in order are read and sorted if they need at
        most `max_bytes` of memory, otherwise they stay in the order of the file. Rows with equal times keep their
        order.

        >>> import pyarrow as pa
        >>> data = Dataset.open(pa.table({"click": [0, 1, 0], "price": [1.0, 2.0, 3.0], "at": [3, 1, 2]}), time="at")
        >>> ordered, found = data.in_time_order()
        >>> print(found)
        2 of 3 rows are earlier than a row before them, the first is row 2: they were sorted by 'at'
        >>> ordered.sample(3).numerical[:, 0].tolist()
        [2.0, 3.0, 1.0]
        """
        if self.schema.time is None or not isinstance(self.source, FilesSource | TableSource):
            return self, None
        rows, late, first = self._count_late()
        if not late:
            return self, f"the rows are in the order of {self.schema.time!r}"
        found = f"{late:,} of {rows:,} rows are earlier than a row before them, the first is row {first:,}"
        source = self._sorted(max_bytes)
        if source is None:
            return self, f"{found}: they are too many to sort in memory and are read in the order of the file"
        made = self._with(source=source, notes=(*self.notes, f"The rows were sorted by {self.schema.time!r}."))
        made._by_time = True
        return made, f"{found}: they were sorted by {self.schema.time!r}"

    def _count_late(self) -> tuple[int, int, int]:
        """The number of rows, how many are earlier than a row before them, and the number of the first, from 1."""
        rows = late = first = 0
        latest = np.iinfo(np.int64).min
        numerical = self.schema.numerical[:1]  # a schema needs a feature
        narrow = Schema(None, numerical, () if numerical else self.schema.categorical[:1], time=self.schema.time)
        for batch in self.from_start(prefetch=1).iter_batches(narrow, _ROWS_AT_ONCE):
            assert batch.time is not None
            before = np.maximum.accumulate(np.concatenate([[latest], batch.time]))
            earlier = batch.time < before[:-1]
            if earlier.any() and not late:
                first = rows + int(np.argmax(earlier)) + 1
            late += int(earlier.sum())
            rows += len(batch)
            latest = before[-1]
        return rows, late, first

    def _sorted(self, max_bytes: int = _MAX_BYTES) -> BatchSource | None:
        """All rows in the order of their time; None if they need more memory."""
        rows = self._read_all(max_bytes)
        if rows is None or rows.time is None:
            return None
        return BatchSource(rows[np.argsort(rows.time, kind="stable")], self.schema, self.bad_rows)

    def sample(self, rows: int, *, batch_size: int = _ROWS_AT_ONCE, skip_bad_batches: bool = False) -> Batch:
        """The first rows as one batch, or all if there are fewer.

        Args:
            rows: how many.
            batch_size: rows per batch; a batch is refused as a whole.
            skip_bad_batches: leave out a batch whose values are refused; otherwise raise a `BatchError`.
        """
        pieces: list[Batch] = []
        found = 0
        for batch in self.batches(batch_size, skip_bad_batches=skip_bad_batches):
            pieces.append(batch)
            found += len(batch)
            if found >= rows:
                break
        if not pieces:
            next(self.batches(batch_size), None)  # raises what is wrong with the first batch that was left out
            raise ValueError(f"the data must have at least one row that can be read; {self.name} has none")
        return Batch.concat(pieces)[:rows]

    def batches(self, batch_size: int, *, skip_bad_batches: bool = False) -> Iterator[Batch]:
        """The batches from the start, whatever the position; see `sample`."""
        source = self._with()
        while True:
            try:
                yield from source.iter_batches(self.schema, batch_size)
                return
            except BatchError as error:
                if not skip_bad_batches:
                    raise
                source.seek(error.next_position)

    def count_rows(self) -> int:
        """The number of rows; if the source does not know it, they are read once."""
        return self._count

    def fingerprint(self) -> str:
        """A hash of the schema, the first rows and the number of rows, to detect other data."""
        return self._fingerprint

    def stamps(self) -> list[list[Any]] | None:
        """Absolute path, size and modification time of each file, to see without reading whether files have changed.

        None if the rows are not in files, or if the files have no modification time.
        """
        return self.source.stamps() if isinstance(self.source, FilesSource) else None

    def describe(self) -> dict[str, Any]:
        """The dataset as plain values for JSON."""
        return {
            "what": absolute(self.what) if isinstance(self.what, str | Path) else self.name,
            "name": self.name,
            "rows": self.source.num_rows,
            "notes": list(self.notes),
            "options": {name: value for name, value in self.options.items() if name != "max_wait"},
            "limit": self.limit,
        }

    @property
    def num_rows(self) -> int | None:
        """The number of rows; None if counting them means reading them."""
        known = self.source.num_rows
        return known if known is None or self.limit is None else min(known, self.limit)

    @property
    def arrow_schema(self) -> Any:
        """Column names and types as a pyarrow Schema."""
        return self.source.arrow_schema

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """Batches of `batch_size` rows (the last may be short, and those with bad rows are), from `position()` on."""
        source = self._at_position()
        return self._up_to_limit(source.iter_batches(schema, batch_size))

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """The same rows as pyarrow Tables of these columns (None: all)."""
        source = self._at_position()
        if isinstance(source, FilesSource):
            source.schema = self.schema  # columns are read by their roles, whatever the first rows look like
        return self._up_to_limit(source.iter_tables(columns, batch_size))

    def position(self) -> Position:
        """The place of the next row not yet handed out, JSON-able."""
        return dict(self._position)

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go to a result of `position()`, or to `{"row": n}`."""
        self.source.seek(position)
        self._position = self.source.position()

    def _at_position(self) -> Source:
        if self.source.position() != self._position:
            self.source.seek(self._position)
        if isinstance(self.source, CursorSource):
            self.source.stop_row = self.limit
        return self.source

    def _up_to_limit(self, items: Iterator[Any]) -> Iterator[Any]:
        """Batches or tables until `limit` rows are read; the position is then the row after the limit."""
        if self._rows_left() <= 0:
            return
        for item in items:
            self._position = self.source.position()
            left = self._rows_left()
            if left < 0:
                item = item[: max(len(item) + int(left), 0)]
                self.seek({"row": self.limit})  # type: ignore[dict-item]
            if len(item) or left > 0:
                yield item  # without rows if a live source waits
            if left <= 0:
                return

    def _rows_left(self) -> float:
        return np.inf if self.limit is None else self.limit - int(self._position["row"])

    def _read_all(self, max_bytes: int) -> Batch | None:
        """All rows as one batch; None if they need more than `max_bytes` or some are refused."""
        pieces: list[Batch] = []
        size = 0
        try:
            for piece in self.from_start(prefetch=1).iter_batches(self.schema, _ROWS_AT_ONCE):
                pieces.append(piece)
                size += sum(array.nbytes for array in piece.arrays().values())
                if size > max_bytes:
                    return None
        except BatchError:
            return None
        return Batch.concat(pieces) if pieces else None

    @cached_property
    def _count(self) -> int:
        known = self.num_rows
        if known is not None:
            return known
        column = (*self.schema.categorical, *self.schema.columns)[0]  # text can be read from any row
        return sum(table.num_rows for table in self._with().iter_tables([column], _ROWS_AT_ONCE))

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.schema.to_json()} {self._count}".encode())
        sample = self.sample(_FINGERPRINT_ROWS, batch_size=256, skip_bad_batches=True)
        for array in sample.arrays().values():
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _with(self, **changes: Any) -> "Dataset":
        """The same dataset at its start, with some attributes changed."""
        now = {"source": self.source, "schema": self.schema, "name": self.name, "notes": self.notes}
        made = Dataset(**{**now, "limit": self.limit, **changes})
        made.what, made.options, made._by_time = self.what, self.options, self._by_time
        return made

    def __getstate__(self) -> dict[str, Any]:
        kept = ("schema", "name", "notes", "limit", "what", "options", "_position", "_by_time")
        return {**{name: getattr(self, name) for name in kept}, "_source": None, "_memory": None}


def _open(what: Any, options: Mapping[str, Any]) -> tuple[Source, Dataset | None]:
    """The source of what `Dataset.open` takes; and the dataset, if it is one or names one."""
    if isinstance(what, Dataset) and options:
        raise TypeError(f"an open Dataset takes no options, got {', '.join(options)}")
    policy = {name: options[name] for name in ("bad_rows", "label_map", "shard") if name in options}
    others = {name: value for name, value in options.items() if name not in policy}
    entry = find_entry(what)
    if entry is not None:
        refuse_file_options(others, f"the dataset {what}")
    known = what if isinstance(what, Dataset) else None if entry is None else entry.open(what, **others)
    source = open_source(what, **others) if known is None else known.source
    if isinstance(source, CursorSource):
        source.configure(**policy)
    elif policy.get("shard") is not None:
        raise TypeError(f"a {type(source).__name__} cannot be divided into shards, got {policy['shard']!r}")
    return source, known
