"""Parquet files: only the required columns are read, a few thousand rows at a time; row groups can be skipped."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from daes.stream.arrow import fs, pa, pq
from daes.stream.cursor import Cursor, PiecewiseCursor, Position, SourceError
from daes.stream.files import DataFile, Where
from daes.stream.files_source import FilesSource
from daes.stream.schema import Schema, is_text

SUFFIXES = (".parquet", ".pq")

_MIN_ROWS, _MAX_ROWS = 1024, 65_536
_BUFFER = 1 << 20
_MIN_DICTIONARY_ROWS = 16_384
_MOST_OPEN = 8
"""So many files stay open: those that schema, sample and training read one after the other."""


class ParquetSource(FilesSource):
    """Rows of Parquet files, in the order of the files; see `FilesSource`.

    Memory holds a few thousand rows of the columns read, whatever the size of files and row groups. The last few
    files stay open and the footers are kept, so that a few files are opened once, however often their rows are read.

    >>> import tempfile, pathlib, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day in (9, 10):
    ...         path = pathlib.Path(folder, f"day={day}", "part.parquet")
    ...         path.parent.mkdir()
    ...         pq.write_table(pa.table({"price": [day + 0.5, day + 0.75]}), path)
    ...     source = ParquetSource(folder)
    ...     source.num_rows, [piece.to_pydict() for piece in source.iter_tables(None, batch_size=3)]
    (4, [{'price': [9.5, 9.75, 10.5], 'day': ['9', '9', '10']}, {'price': [10.75], 'day': ['10']}])
    """

    _suffixes = SUFFIXES

    def __init__(self, where: Where) -> None:
        super().__init__(where)
        self._footers: dict[str, Any] = {}
        self._handles: dict[str, Any] = {}

    @cached_property
    def num_rows(self) -> int:
        """The rows of all files, from their footers."""
        return sum(self._footer(file).num_rows for file in self._files)

    def _file_schema(self, file: DataFile) -> Any:
        return self._footer(file).schema.to_arrow_schema()

    def _footer(self, file: DataFile) -> Any:
        """The metadata at the end of a file, read once."""
        if file.path not in self._footers:
            self._footers[file.path] = self._open(file).metadata
        return self._footers[file.path]

    def _open(self, file: DataFile, dictionaries: Sequence[str] = ()) -> Any:
        """A ParquetFile that reads the columns `dictionaries` as dictionaries."""
        local = isinstance(file.filesystem, fs.LocalFileSystem)
        try:
            handle = self._handles.pop(file.path, None) or file.open()
            while len(self._handles) >= _MOST_OPEN:
                self._handles.pop(next(iter(self._handles)), None)  # that of the file that was asked for longest ago
            self._handles[file.path] = handle
            if handle.size() == 0:
                raise SourceError(f"{file.path} is empty, not a Parquet file")
            # Locally, a small buffer per column keeps memory flat in huge row groups; a network needs large reads.
            return pq.ParquetFile(
                handle,
                metadata=self._footers.get(file.path),
                read_dictionary=list(dictionaries) or None,
                buffer_size=_BUFFER if local else 0,
                pre_buffer=not local,
                page_checksum_verification=True,  # of pages whose writer has added one, as Spark does
            )
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{file.path} is not a whole Parquet file: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handles": {}}

    def _file_cursor(
        self, file: DataFile, types: Mapping[str, Any], schema: Schema | None, place: Position, rows_at_once: int
    ) -> Cursor:
        # Text read as a dictionary is hashed once per entry, which is five times as fast. But the dictionary is hashed
        # in every conversion, which does not pay off if few rows are converted at a time.
        categories = () if schema is None else schema.categorical
        text = [name for name in categories if name in types and is_text(types[name])]
        at_once = max(_MIN_ROWS, min(_MAX_ROWS, rows_at_once))
        opened = self._open(file, text if rows_at_once >= _MIN_DICTIONARY_ROWS else [])
        return _ParquetCursor(opened, file.path, list(types), at_once)


class _ParquetCursor(PiecewiseCursor):
    def __init__(self, file: Any, path: str, columns: Sequence[str], at_once: int) -> None:
        self._file, self._path, self._columns, self._at_once = file, path, list(columns), at_once
        metadata = file.metadata
        groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._ends = np.cumsum(groups, dtype=np.int64)
        self._rows = int(metadata.num_rows)
        self._batches = self._from_group(0)

    def _from_group(self, group: int) -> Any:
        return self._file.iter_batches(self._at_once, row_groups=range(group, len(self._ends)), columns=self._columns)

    def _next_piece(self) -> Any | None:
        if self._taken == self._rows:
            return None
        try:
            batch = next(self._batches)
        except StopIteration:
            raise SourceError(
                f"{self._path} must have {self._rows} rows by its footer; it ends after {self._taken}"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self._path} is damaged after row {self._taken}: {error}") from error
        return pa.Table.from_batches([batch]).select(self._columns)

    def skip(self, rows: int) -> int:
        start, target = self._taken, min(self._taken + rows, self._rows)
        group, here = np.searchsorted(self._ends, [target, start + self.num_left()], side="right")
        if group > here:
            self._left = None
            self._taken = int(self._ends[group - 1])
            self._batches = self._from_group(int(group))
        super().skip(target - self._taken)
        return target - start

    def close(self) -> None:
        self._left = self._batches = self._file = None  # the source keeps the file open
