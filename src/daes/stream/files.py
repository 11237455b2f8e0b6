"""Which files a path, a glob, a directory or a URL means, and one source made of several files."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from daes.extras import require
from daes.stream.cursor import Cursor, CursorSource, Position, Roles, SourceError, check_columns
from daes.stream.schema import is_text

Where = str | Path | Sequence[str | Path]

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_MAGIC = re.compile(r"[*?\[]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """One file: the pyarrow filesystem it is on, its path there, and the columns its Hive directories stand for."""

    filesystem: Any
    path: str
    partitions: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def compression(self) -> str | None:
        """What the file is compressed with, by its name."""
        return COMPRESSIONS.get(Path(self.name).suffix.lower())

    @property
    def suffix(self) -> str:
        """The ending that tells the format, in lower case: `.csv` of `DAY.CSV.gz`."""
        path = Path(self.name)
        return (path.with_suffix("") if self.compression else path).suffix.lower()


def find_files(where: Where, suffixes: tuple[str, ...] = ()) -> list[DataFile]:
    """The files that are meant, in order; none is an error.

    - A file is itself. A sequence keeps its order.
    - A glob (`*`, `?`, `[…]` within one directory, `**` across directories) and a directory (searched through and
      through for names that end in `suffixes`; what starts with `_` or `.` is left out) come in natural order: day_2
      before day_10. Below the directory, or below the first part of the path that has a wildcard, `key=value`
      directories are columns.
    - A URL: `file://`; `s3://`, `gs://`, `hdfs://` and what else pyarrow.fs knows; otherwise through fsspec where that
      is installed and knows the scheme (`http://`, `https://` and others).
    """
    if not isinstance(where, str | Path):
        if not where:
            raise ValueError(f"at least one path is needed, however: {where!r}")
        return [file for one in where for file in find_files(one, suffixes)]
    filesystem, path = _filesystem(where)
    literal = str(where).startswith(("http://", "https://"))  # a question mark in these is not a wildcard
    fs = require("pyarrow.fs")
    try:
        kind = filesystem.get_file_info(path).type
        if kind == fs.FileType.File or literal:
            return [DataFile(filesystem, path)]
        if kind == fs.FileType.Directory:
            listed = _list(filesystem, path.rstrip("/") or "/", "**", f"there is no file in the directory {where}")
            chosen = [file for file in listed if not suffixes or file.suffix in suffixes]
            if not chosen:
                raise FileNotFoundError(f"no file in the directory {where} ends in {' or '.join(suffixes)}")
            return chosen
        if _MAGIC.search(path):
            parts = path.split("/")
            first = next(number for number, part in enumerate(parts) if _MAGIC.search(part))
            base, pattern = "/".join(parts[:first]), "/".join(parts[first:])
            return _list(
                filesystem, base or ("/" if path.startswith("/") else "."), pattern, f"no file matches {where}"
            )
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise SourceError(f"{where} cannot be reached: {error}") from error
    raise FileNotFoundError(f"there is no file {where}")


def _filesystem(where: str | Path) -> tuple[Any, str]:
    fs = require("pyarrow.fs")
    text = str(where)
    scheme = urlsplit(text).scheme if "://" in text else ""
    if isinstance(where, Path) or not scheme:
        return fs.LocalFileSystem(), Path(where).expanduser().as_posix()
    if scheme == "file":
        return fs.LocalFileSystem(), Path(url2pathname(re.sub("^file://(localhost)?", "", text))).as_posix()
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
        return filesystem, path
    except (ValueError, OSError) as error:
        if "Unrecognized filesystem type" not in str(error):
            raise SourceError(f"{text} cannot be reached: {error}") from error
    try:
        fsspec = require("fsspec")
        filesystem, path = fsspec.core.url_to_fs(text)
    except (ImportError, ValueError) as error:
        raise SourceError(f"{text} cannot be read: {error}; download it, or install what is missing") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def _list(filesystem: Any, base: str, pattern: str, nothing: str) -> list[DataFile]:
    fs = require("pyarrow.fs")
    deep = "/" in pattern or "**" in pattern
    selector = fs.FileSelector(base, recursive=deep, allow_not_found=True)
    accept = _glob(pattern)
    prefix = "" if base == "." else base.rstrip("/") + "/"
    found = {}
    for info in filesystem.get_file_info(selector):
        if info.type != fs.FileType.File:
            continue
        below = info.path.removeprefix("./").removeprefix(prefix)
        hidden = pattern == "**" and any(part.startswith(("_", ".")) for part in below.split("/"))
        if accept.fullmatch(below) and not hidden:
            found[below] = DataFile(filesystem, info.path, _partitions(below))
    if not found:
        raise FileNotFoundError(nothing)
    return [found[below] for below in sorted(found, key=natural_order)]


def _glob(pattern: str) -> re.Pattern[str]:
    out = ""
    for token in re.findall(r"\*\*/?|\*|\?|\[[^\]]+\]|.", pattern):
        if token.startswith("**"):
            out += "(?:.*/)?" if token.endswith("/") else ".*"
        elif token == "*":
            out += "[^/]*"
        elif token == "?":
            out += "[^/]"
        elif len(token) > 1:
            out += token.replace("[!", "[^")
        else:
            out += re.escape(token)
    return re.compile(out, re.DOTALL)


def natural_order(name: str) -> tuple[list[Any], str]:
    """A sort key that takes the digits in a name for numbers.

    >>> sorted(["day_10", "day_9", "day_1"], key=natural_order)
    ['day_1', 'day_9', 'day_10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], name


def _partitions(below: str) -> dict[str, str | None]:
    pairs = [part.partition("=") for part in below.split("/")[:-1] if "=" in part]
    return {unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in pairs if key}


class FilesSource(CursorSource):
    """Several files of one kind, read one after the other as one stream.

    Only the columns asked for are read. Each file must have them, with values of the same kind (numbers, text, times)
    as in the first file. The Hive partitions are columns of text, or of numbers where the schema wants numbers; a
    column of that name within a file wins.
    """

    _suffixes: tuple[str, ...] = ()
    _file_start: ClassVar[Position] = {"skip": 0}
    _schema: Any = None

    def __init__(self, where: Where | Sequence[DataFile], shard: tuple[int, int] | None = None) -> None:
        given = not isinstance(where, str | Path) and len(where) > 0 and isinstance(where[0], DataFile)
        self._files: list[DataFile] = list(where) if given else find_files(where, self._suffixes)  # type: ignore[arg-type]
        for file in self._files:
            if file.partitions.keys() != self._files[0].partitions.keys():
                first = self._files[0]
                raise SourceError(
                    "all files must have the same partitions, however: "
                    f"{first.path} has {list(first.partitions)}, {file.path} has {list(file.partitions)}"
                )
        super().__init__(shard)
        self._place_keys = frozenset({"file", "name", *self._file_start})

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files, in the order in which they are read."""
        return tuple(file.path for file in self._files)

    @abstractmethod
    def _file_cursor(
        self, file: DataFile, types: Mapping[str, Any], roles: Roles, place: Position, rows_at_once: int
    ) -> Cursor:
        """Open one file at `place`, which has no `skip`. `types` are the columns to read as `_file_schema` has them."""

    @abstractmethod
    def _file_schema(self, file: DataFile) -> Any:
        """The columns of one file as a pyarrow Schema."""

    @property
    def arrow_schema(self) -> Any:
        """Names and types of the first file's columns, then of the partitions."""
        pa = require("pyarrow")
        if self._schema is None:
            schema = self._file_schema(self._files[0])
            for key in self._files[0].partitions:
                if key not in schema.names:
                    schema = schema.append(pa.field(key, pa.string()))
            self._schema = schema
        return self._schema

    def _start(self) -> Position:
        return {"file": 0, "name": self._files[0].name, **self._file_start}

    def _check_place(self, position: Position) -> None:
        number, name = int(position["file"]), position["name"]
        known = [file.name for file in self._files] + [""]
        if number >= len(known) or known[number] != name:
            here = repr(known[number]) if number < len(known) else f"not there, of {len(self._files)} files"
            raise ValueError(f"position must be of these files, however: file {number} was {name!r} and is {here}")

    def _where(self, position: Position) -> str:
        number = int(position["file"])
        file = f", in {self._files[number].path}" if number < len(self._files) else ""
        return f"row {position['row']}{file}"

    def _cursor(self, columns: Sequence[str], roles: Roles, place: Position, rows_at_once: int) -> Cursor:
        return _Chain(self, columns, roles, place, rows_at_once)

    def _open_file(
        self, number: int, columns: Sequence[str], roles: Roles, place: Position, rows_at_once: int
    ) -> tuple[Cursor, dict[str, str | None]]:
        """The cursor of a file and the values of its partitions among `columns`."""
        file = self._files[number]
        inside = self._file_schema(file)
        partitions = {
            key: value for key, value in file.partitions.items() if key in columns and key not in inside.names
        }
        own = [name for name in columns if name not in partitions] or inside.names[:1]
        check_columns(own, inside.names, f"{file.path}: ")
        for name in own:
            expected, found = self.arrow_schema.field(name).type, inside.field(name).type
            if _kind(expected) != _kind(found) and "null" not in (str(expected), str(found)):
                raise SourceError(
                    f"files must agree on their columns, however: {name!r} is {expected} in {self._files[0].path} "
                    f"and {found} in {file.path}"
                )
        types = {name: inside.field(name).type for name in own}
        return self._file_cursor(file, types, roles, place, rows_at_once), partitions


def _kind(arrow_type: Any) -> str:
    types = require("pyarrow").types
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "numbers"
    if is_text(arrow_type):
        return "text"
    if types.is_timestamp(arrow_type) or types.is_date(arrow_type):
        return "times"
    return str(arrow_type)


class _Chain:
    """One file's cursor after the other."""

    def __init__(
        self, source: FilesSource, columns: Sequence[str], roles: Roles, place: Position, at_once: int
    ) -> None:
        self._source, self._columns, self._roles, self._at_once = source, list(columns), roles, at_once
        self._number = int(place["file"])
        self._inner: Cursor | None = None
        self._partitions: dict[str, Any] = {}
        self._open({key: value for key, value in place.items() if key not in ("file", "name")})

    def _open(self, place: Position) -> None:
        if self._number == len(self._source._files):
            return
        self._inner, values = self._source._open_file(self._number, self._columns, self._roles, place, self._at_once)
        path = self._source._files[self._number].path
        self._partitions = {key: _partition(key, value, self._roles.get(key), path) for key, value in values.items()}

    def _next_file(self) -> None:
        self.close()
        self._number += 1
        self._open({key: value for key, value in self._source._file_start.items() if key != "skip"})

    def read(self, limit: int) -> Any | None:
        while self._inner is not None:
            table = self._inner.read(limit)
            if table is not None:
                return self._complete(table)
            self._next_file()
        return None

    def _complete(self, table: Any) -> Any:
        pa = require("pyarrow")
        for key, value in self._partitions.items():
            table = table.append_column(key, pa.repeat(value, table.num_rows))
        return table.select(self._columns) if self._partitions else table

    def skip(self, rows: int) -> int:
        left = rows
        while left and self._inner is not None:
            left -= self._inner.skip(left)
            if left:
                self._next_file()
        return rows - left

    def place(self) -> Position:
        if self._inner is None:
            return {"file": self._number, "name": "", **self._source._file_start}
        return {"file": self._number, "name": self._source._files[self._number].name, **self._inner.place()}

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


def _partition(key: str, value: str | None, role: str | None, path: str) -> Any:
    """A partition's value as an Arrow scalar of the type its role asks for."""
    pa = require("pyarrow")
    try:
        if role in ("numerical", "label", "weight"):
            return pa.scalar(None if value is None else float(value), pa.float64())
        if role == "time" and value is not None:
            return pa.scalar(int(value)) if value.isdecimal() else pa.scalar(value).cast(pa.timestamp("ns"))
    except ValueError as error:
        raise SourceError(f"the {role} column must hold numbers, however: {path} has {key}={value}") from error
    return pa.scalar(value, pa.string())
