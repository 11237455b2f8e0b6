"""Files that keep arriving in a folder, read as one endless stream."""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from daes.formatting import counted
from daes.stream.arrow import pa
from daes.stream.bad_rows import BadRow
from daes.stream.cursor import Cursor, Position, SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.files import DataFile, find_files, is_directory_or_glob, natural_order
from daes.stream.files_source import FilesSource, columns_not_used
from daes.stream.schema import Schema, is_unnamed

_log = logging.getLogger("daes.stream")

_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload")
_BETWEEN_LISTINGS = 1.0


class FollowedFiles(CursorSource):
    """The files of a folder or a glob, each read once, then those that arrive later.

    A file counts as complete as soon as it has its name: write it under another name and rename it. Names that start
    with "." or "_" or end in .tmp, .temp, .part, .partial, .inprogress or .crdownload (also before the extension of a
    compression) are ignored. The extension tells the format. A file that was read is known by its path: it may be moved
    away but must not change, and a new file must have another name.

    Args:
        where: a folder or a glob, local or a URL; see `daes.stream.files.find_files`.
        make: opens one file as a source.
        accepts: whether to read a file, by its name.
        order: of the files that are there: by "name" (day_2 before day_10) or by "time", oldest first.
        max_wait: see `CursorSource`.

    If bad rows are skipped, so is a file that cannot be opened.

    >>> import tempfile
    >>> from daes.stream.csv import CsvSource
    >>> from daes.stream.schema import Schema
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "1.csv").write_text("click,price\\n1,0.5\\n")
    >>> schema = Schema("click", ("price",), ())
    >>> batches = FollowedFiles(folder, lambda file: CsvSource([file]), max_wait=0.01).iter_batches(schema, 1)
    >>> next(batches).numerical.tolist(), len(next(batches))
    ([[0.5]], 0)
    >>> _ = (folder / "2.csv.tmp").write_text("click,price\\n0,2\\n")
    >>> _ = (folder / "2.csv.tmp").rename(folder / "2.csv")
    >>> next(batch for batch in batches if len(batch)).numerical.tolist()
    [[2.0]]
    """

    def __init__(
        self,
        where: str | Path,
        make: Callable[[DataFile], FilesSource],
        *,
        accepts: Callable[[DataFile], bool] = lambda file: True,
        order: str = "name",
        max_wait: float = 1.0,
    ) -> None:
        if order not in ("name", "time"):
            raise ValueError(f"order must be 'name' or 'time', got {order!r}")
        if not isinstance(where, str | Path) or not is_directory_or_glob(where):
            raise ValueError(f"a folder or a glob is needed to wait for files, got {where!r}")
        super().__init__(max_wait=max_wait, start={"name": "", "place": "", "done": "[]", "skip": 0})
        self.where, self.order = where, order
        self._make, self._accepts = make, accepts
        self.waiting = 0
        """Files that are there but not begun."""
        self.known_columns: set[str] | None = None
        """Further columns of a file are reported, each once; None if all columns to read were named."""

    @cached_property
    def arrow_schema(self) -> Any:
        """The columns of the first file that has rows; waits for it."""
        found = self._first_schema()
        if found is None:
            _log.warning("there is no file with rows in %s yet: waiting for the first one", self.where)
        while found is None:
            time.sleep(_BETWEEN_LISTINGS)
            found = self._first_schema()
        return found

    def _first_schema(self) -> Any | None:
        for file in self.files():
            with suppress(SourceError, OSError) if self.skips else nullcontext():
                found = self.open_file(file).arrow_schema
                if any(not pa.types.is_null(column.type) for column in found):
                    return found
        return None

    def open_file(self, file: DataFile) -> FilesSource:
        """The source of one file."""
        source = self._make(file)
        source.configure(bad_rows="skip" if self.skips else "error", label_map=self._label_map)
        source.bad_rows = self.bad_rows
        return source

    @property
    def lag(self) -> str:
        """How far reading is behind, as text for people."""
        return f"{counted(self.waiting, 'file')} behind"

    def files(self) -> list[DataFile]:
        """The complete files that are there now, in order."""
        try:
            found = find_files(self.where, waiting=True)
        except FileNotFoundError:
            return []
        files = [replace(file, path=file.absolute) for file in found if _is_complete(file) and self._accepts(file)]
        if self.order == "time":
            times = {file.path: file.filesystem.get_file_info(file.path).mtime_ns or 0 for file in files}
            return sorted(files, key=lambda file: (times[file.path], natural_order(file.path)))
        return files

    def _row_at(self, place: Position) -> tuple[str, int]:
        name, inner = str(place["name"]), json.loads(str(place["place"]) or "{}")
        return name, self.bad_rows.number(name, int(inner.get("offset_row", 0)), int(place["skip"]) + 1)

    def _check_columns(self, columns: Sequence[str]) -> None:
        """Each file is checked when it is opened."""

    def _roles(self, schema: Schema | None) -> dict[str, str]:
        """As in `CursorSource`; in raw tables a column becomes text where the types of its files disagree."""
        return super()._roles(schema) or dict.fromkeys(self.arrow_schema.names, "unused")

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        return _FollowCursor(self, columns, schema, place, rows_at_once)


class _FollowCursor(Cursor):
    """One file's cursor after the other, without an end."""

    def __init__(
        self, source: FollowedFiles, columns: Sequence[str], schema: Schema | None, place: Position, at_once: int
    ) -> None:
        self._source, self._columns, self._schema, self._at_once = source, columns, schema, at_once
        self._queue: deque[DataFile] = deque()
        self._listed = 0.0
        self._unreachable = False
        self._inner: Cursor | None = None
        self._name = str(place["name"])
        self._done: set[str] = set(json.loads(str(place["done"])))
        self._done_text = str(place["done"])
        if self._name:
            found = [file for file in source.files() if file.path == self._name]
            if not found:
                raise SourceError(f"{self._name} was not read to its end and is no longer there")
            self._open(found[0], json.loads(str(place["place"])))

    def _open(self, file: DataFile, place: Position) -> None:
        source, followed = self._source.open_file(file), self._source
        if followed.known_columns is not None:
            found = source.arrow_schema.names
            if new := [name for name in found if name not in followed.known_columns and not is_unnamed(name)]:
                _log.warning(columns_not_used(file.path, new))
            followed.known_columns.update(found)
        self._inner = source._cursor(self._columns, self._schema, place, self._at_once)

    def ready(self) -> bool:
        while True:
            if self._inner is not None:
                if self._try_to_read(self._inner.ready):
                    return True
                self._finish()
            if not self._queue:
                self._list()
            if not self._queue:
                return False
            file = self._queue.popleft()
            self._source.waiting = len(self._queue)
            self._name = file.path
            self._try_to_read(self._open, file, {})

    def _try_to_read(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """The result of the step; None if the file cannot be read and is skipped."""
        try:
            return step(*arguments)
        except (SourceError, OSError) as error:
            if not self._source.skips:
                raise
            self._source.bad_rows.add(BadRow(self._name, 1, f"the file cannot be read from here on: {error}"))
            self._finish()
            return None

    def _finish(self) -> None:
        """Mark the current file as read."""
        self.close()
        if self._name:
            self._done.add(self._name)
            self._done_text = json.dumps(sorted(self._done))
            self._name = ""

    def _list(self) -> None:
        if time.monotonic() - self._listed < _BETWEEN_LISTINGS:
            return
        try:
            self._queue.extend(file for file in self._source.files() if file.path not in self._done)
            self._unreachable = False
        except (SourceError, OSError) as error:  # a bucket may be unreachable for a while
            if not self._unreachable:
                _log.warning("%s; trying again", error)
            self._unreachable = True
        self._listed = time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, self._listed + _BETWEEN_LISTINGS - time.monotonic())))

    def read(self, limit: int) -> Any:
        assert self._inner is not None
        return self._inner.read(limit)

    def place(self) -> Position:
        inner = {} if self._inner is None else self._inner.place()
        rest = {key: value for key, value in inner.items() if key not in ("skip", "file", "name")}
        return {
            "name": self._name,
            "place": json.dumps(rest) if self._name else "",
            "done": self._done_text,
            "skip": int(inner.get("skip", 0)),
        }

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def _is_complete(file: DataFile) -> bool:
    name = file.name.lower()
    unpacked = Path(name).with_suffix("").name if file.compression else name
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED) and not unpacked.endswith(_UNFINISHED)
