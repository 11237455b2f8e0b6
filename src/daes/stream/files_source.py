"""One source made of several files."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

from daes.stream.arrow import pa
from daes.stream.bad_rows import BadRows
from daes.stream.cursor import NUMBER_ROLES, Cursor, Position, SourceError, check_columns
from daes.stream.cursor_source import CursorSource
from daes.stream.files import DataFile, Where, find_files
from daes.stream.schema import Schema, column_kind, is_text, is_unnamed

_COMPARED, _SHOWN = 16, 10


class FilesSource(CursorSource):
    """Several files of one kind, read one after the other as one stream.

    Only the requested columns are read. Every file must have them. A category may be text in one file and an integer or
    a boolean in another, and a number an integer or a float; otherwise, and in tables without a schema, the values must
    be of the same kind (numbers, text, times) as in the first file. Hive partitions are columns of text, or of numbers
    if the schema wants numbers; a column of the same name within a file takes precedence.

    Args:
        where: a file, a glob, a directory or a URL, or a sequence of these; see `daes.stream.files.find_files`.
    """

    _suffixes: tuple[str, ...] = ()
    _file_start: ClassVar[Position] = {"skip": 0}
    schema: Schema | None = None
    """How to read the columns in `iter_tables`; `iter_batches` has a schema of its own."""

    def __init__(self, where: Where) -> None:
        self._files = find_files(where, self._suffixes)
        first = self._files[0]
        for file in self._files:
            if file.partitions.keys() != first.partitions.keys():
                raise SourceError(
                    f"all files must have the same partitions; {first.path} has {list(first.partitions)}, "
                    f"{file.path} has {list(file.partitions)}"
                )
        super().__init__(start={"file": 0, "name": first.name, **self._file_start})
        self.bad_rows = BadRows(self.paths)
        self._ends: list[int] = []  # how many rows there are up to the end of each file, as far as they were read

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files, in the order in which they are read."""
        return tuple(file.path for file in self._files)

    def row_of(self, row: int) -> tuple[str, int]:
        """The file of a row that was read, counted from 0 from the start of the data, and its number there, from 1.

        All rows must have been read from the start, and rows that were left out are not counted.
        """
        number = bisect_right(self._ends, row)
        return self._files[number].path, row + 1 - (self._ends[number - 1] if number else 0)

    def stamps(self) -> list[list[Any]] | None:
        """Absolute path, size and modification time (ns) of every file; None if a file system does not tell."""
        found = []
        for file in self._files:
            info = file.filesystem.get_file_info(file.path)
            if info.mtime_ns is None or info.size is None:
                return None
            found.append([file.absolute, info.size, info.mtime_ns])
        return found

    def later_columns(self) -> dict[str, str]:
        """Columns that the first file does not have, each with a file that has it.

        Of many files, the last one and 15 others are looked at; those that cannot be read are left out.
        """
        later = self._files[1:][::-1]
        found: dict[str, str] = {}
        for file in later[:: max(1, -(-len(later) // _COMPARED))]:
            with suppress(SourceError, OSError):
                for name in self._file_schema(file).names:
                    if name not in self.arrow_schema.names and not is_unnamed(name):
                        found[name] = file.path
        return found

    @abstractmethod
    def _file_cursor(
        self, file: DataFile, types: Mapping[str, Any], schema: Schema | None, place: Position, rows_at_once: int
    ) -> Cursor:
        """Open one file at `place`, or at its start if that is empty.

        Args:
            file: the file.
            types: the columns to read, with the types that `_file_schema` gives them.
            schema: what the columns are read for; None for tables.
            place, rows_at_once: as in `CursorSource._cursor`.
        """

    @abstractmethod
    def _file_schema(self, file: DataFile) -> Any:
        """The columns of one file as a pyarrow Schema; may make use of `arrow_schema`."""

    def _first_schema(self) -> Any:
        """The columns of the first file, without making use of `arrow_schema`."""
        return self._file_schema(self._files[0])

    @cached_property
    def arrow_schema(self) -> Any:
        """Names and types of the first file's columns, then of the partitions."""
        schema = self._first_schema()
        for key in self._files[0].partitions:
            if key not in schema.names:
                schema = schema.append(pa.field(key, pa.string()))
        return schema

    def _check_place(self, position: Position) -> None:
        number, name = int(position["file"]), position["name"]
        known = [file.name for file in self._files] + [""]
        # No name means the end of the files there were: reading continues with those added since.
        if number >= len(known) or (name and known[number] != name):
            here = repr(known[number]) if number < len(known) else f"not there, of {len(self._files)} files"
            raise ValueError(f"position must be of these files; file {number} was {name!r} and is {here}")

    def _row_at(self, place: Position) -> tuple[str, int]:
        path = self._files[int(place["file"])].path
        return path, self.bad_rows.number(path, int(place.get("offset_row", 0)), int(place["skip"]) + 1)

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        return _Chain(self, columns, schema, place, rows_at_once)

    def _roles(self, schema: Schema | None) -> dict[str, str]:
        return super()._roles(schema or self.schema)


def columns_not_used(path: str, names: Sequence[str]) -> str:
    """A warning of a later file's columns that the first file lacks.

    >>> columns_not_used("2.csv", ["age", "city"])
    "2.csv has columns that are not used, since the first file lacks them: 'age', 'city'"
    """
    shown = ", ".join(map(repr, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"{path} has columns that are not used, since the first file lacks them: {shown}"


def _kind(arrow_type: Any, role: str | None) -> str:
    """What the types of a column must have in common in all files, given its role."""
    types = pa.types
    found = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    kind = column_kind(found)
    if role in ("categorical", "unused") and (kind in ("numerical", "categorical", "time") or types.is_time(found)):
        return "category"
    if types.is_boolean(found):
        return "numerical" if role in NUMBER_ROLES else "boolean"
    return "text" if is_text(found) else kind


class _Chain(Cursor):
    """One file's cursor after the other."""

    def __init__(
        self, source: FilesSource, columns: Sequence[str], schema: Schema | None, place: Position, at_once: int
    ) -> None:
        self._source, self._columns, self._schema, self._at_once = source, list(columns), schema, at_once
        self._inner: Cursor | None = None
        self._number = 0
        self._partitions: dict[str, Any] = {}
        self._open(int(place.get("file", 0)), place)

    def _open(self, number: int, place: Position) -> None:
        ends = self._source._ends
        if self._inner is not None and len(ends) >= self._number:  # a file was read to its end, and all before it
            at = self._inner.place()
            rows = int(at.get("offset_row", 0)) + int(at["skip"])
            ends[self._number :] = [rows + (ends[self._number - 1] if self._number else 0)]
        self.close()
        self._number = number
        source, files = self._source, self._source._files
        if number == len(files):
            return
        file, roles = files[number], source._roles(self._schema)
        inside = source._file_schema(file)
        self._partitions = {
            key: _partition(key, value, roles.get(key), file.path)
            for key, value in file.partitions.items()
            if key in self._columns and key not in inside.names
        }
        own = [name for name in self._columns if name not in self._partitions] or inside.names[:1]
        check_columns(own, inside.names, f"{file.path}: ")
        types = {name: inside.field(name).type for name in own}
        for name, found in types.items():
            expected = source.arrow_schema.field(name).type
            kinds = {_kind(kind, roles.get(name, "unused" if roles else None)) for kind in (expected, found)}
            if len(kinds - {"null"}) > 1:
                advice = "; as a category (--categorical) it can be both" if kinds == {"numerical", "text"} else ""
                raise SourceError(
                    f"files must agree on their columns; {name!r} is {expected} in {files[0].path} "
                    f"and {found} in {file.path}{advice}"
                )
        self._inner = source._file_cursor(file, types, self._schema, place, self._at_once)

    def ready(self) -> bool:
        while self._inner is not None:
            if self._inner.ready():
                return True
            self._open(self._number + 1, {})
        return False

    def read(self, limit: int) -> Any:
        assert self._inner is not None
        table = self._inner.read(limit)
        for key, value in self._partitions.items():
            table = table.append_column(key, pa.repeat(value, table.num_rows))
        return table.select(self._columns) if self._partitions else table

    def skip(self, rows: int) -> int:
        left = rows
        while left and self._inner is not None:
            left -= self._inner.skip(left)
            if left:
                self._open(self._number + 1, {})
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
    try:
        if role in NUMBER_ROLES:
            return pa.scalar(None if value is None else float(value), pa.float64())
        if role == "time" and value is not None:
            return pa.scalar(int(value)) if value.isdecimal() else pa.scalar(value).cast(pa.timestamp("ns"))
    except ValueError as error:
        wanted = "timestamps or integers" if role == "time" else "numbers"
        raise SourceError(f"{role} column {key!r} must hold {wanted}; {path} has {key}={value}") from error
    return pa.scalar(value, pa.string())
