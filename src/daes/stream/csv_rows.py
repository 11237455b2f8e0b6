"""The rows of a CSV file: blocks are parsed, and bad rows found and named."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from daes.stream.arrow import pa, pa_csv, pc
from daes.stream.bad_rows import BadRow, BadRows
from daes.stream.csv_text import NOT_CLOSED, CsvBlocks, CsvFormat
from daes.stream.cursor import PiecewiseCursor, Position, SourceError
from daes.stream.files import DataFile

_MANY_LINES = 100
BLANKS = " \t"
"""What may stand around a number; alone it is a missing one."""


class CsvCursor(PiecewiseCursor):
    """One CSV file, as a `Cursor` of the columns in `types`.

    `policy` says what to do with a row that cannot be parsed: "error", "skip", or "blank" for a row of nulls.
    """

    def __init__(
        self,
        file: DataFile,
        format: CsvFormat,
        types: Mapping[str, Any],
        place: Position,
        bad_rows: BadRows,
        policy: str = "error",
        label: str | None = None,
    ) -> None:
        self._path, self._format, self._types = file.path, format, dict(types)
        self._bad_rows, self._policy, self._label = bad_rows, policy, label
        self._blocks = CsvBlocks(file, format, int(place.get("offset", 0)))
        self._next_row = int(place.get("offset_row", 0))
        self._begin_block()

    def _begin_block(self) -> None:
        """The next block becomes the current one."""
        self._taken = 0
        self._offset, self._row = self._blocks.offset, self._next_row

    def _next_piece(self) -> Any | None:
        self._begin_block()
        block = self._blocks.next()
        return None if block is None else self._parse(block)

    def skip(self, rows: int) -> int:
        left = rows
        while left:
            if not self.num_left():
                self._begin_block()
                block = self._blocks.next()
                if block is None:
                    break
                if self._policy != "skip" and (count := self._count(block)) <= left:
                    self._next_row += count
                    self._begin_block()
                    left -= count
                    continue
                self._left = self._parse(block)
            left -= len(self.read(left))
        return rows - left

    def place(self) -> Position:
        return {"offset": self._offset, "offset_row": self._row, "skip": self._taken}

    def close(self) -> None:
        self._left = None
        self._blocks.close()

    def _count(self, block: bytes) -> int:
        """The number of rows of a block, without parsing their values."""
        names = self._blocks.names
        table, bad = parse_block(block, names, self._format, {names[0]: pa.binary()})
        return int(table.num_rows) + len(bad)

    def _parse(self, block: bytes) -> Any:
        table, reasons = self._split(block)
        for number in sorted(reasons):
            row = BadRow(self._path, self._row + number, reasons[number])
            if self._policy == "error":
                raise SourceError(str(row))
            self._bad_rows.add(row, parsed=False)
        total = table.num_rows + len(reasons)
        if self._format.quoting and block.count(b"\n") > total + _MANY_LINES:
            self._warn_of_lines(block)
        self._next_row += total
        if reasons and self._policy == "blank":
            indices = np.full(total, -1)
            indices[np.setdiff1d(np.arange(total), np.array(list(reasons)) - 1)] = np.arange(table.num_rows)
            table = table.take(pa.array(indices, mask=indices < 0))
        return table

    def _warn_of_lines(self, block: bytes) -> None:
        """Warn of a field of whose lines most look like rows, swallowed because of a quote that nothing closes."""
        row, separator = self._row + 1, self._format.separator.encode()
        for number, text in enumerate(block.split(b'"')):
            lines = text.count(b"\n")
            if number % 2 == 0:
                row += lines
            elif lines > _MANY_LINES and text.count(separator) >= (lines - 1) * (len(self._blocks.names) - 1):
                warnings.warn(
                    f"row {row} of {self._path} has a field of {lines + 1:,} lines: {NOT_CLOSED}", stacklevel=2
                )
                return

    def _split(self, block: bytes) -> tuple[Any, dict[int, str]]:
        """The rows that can be parsed, and why the others cannot, by their number in the block, from 1."""
        with suppress(pa.ArrowInvalid):
            table, bad = parse_block(block, self._blocks.names, self._format, self._types)
            return _without_missing(table, self._types, self._format), {row.number: wrong_fields(row) for row in bad}
        try:
            raw_types = dict.fromkeys(self._types, pa.binary())
            raw, bad = parse_block(block, self._blocks.names, self._format, raw_types)
        except pa.ArrowInvalid as error:
            raise SourceError(f"{self._path} cannot be parsed after row {self._row}: {error}") from error
        reasons = {row.number: wrong_fields(row) for row in bad}
        numbers = np.setdiff1d(np.arange(1, raw.num_rows + len(bad) + 1), list(reasons))
        table, unreadable = parse_text(raw, self._types, self._format, self._label)
        return table, reasons | {int(numbers[index]): reason for index, reason in unreadable.items()}


def parse_text(
    table: Any, types: Mapping[str, Any], format: CsvFormat, label: str | None = None
) -> tuple[Any, dict[int, str]]:
    """Parse columns of text, or its bytes, as these types; also why rows cannot be and are left out, by index."""
    reasons: dict[int, str] = {}
    columns = {name: table.column(name).combine_chunks() for name in types}
    for name, kind in types.items():
        for index in find_unreadable(columns[name], kind, format):
            rule = f"column {name!r} must be {_type_name(kind, format)}"
            if name == label and kind != pa.string():
                rule = f"label column {name!r} must hold 0 and 1, or the texts that --label-map (label_map) lists"
            reasons.setdefault(index, f"{rule}, got {_excerpt(columns[name][index].as_py())}")
    good = pa.array(np.delete(np.arange(table.num_rows), list(reasons)))
    parsed = [convert(column.take(good), types[name], format) for name, column in columns.items()]
    return _without_missing(pa.table(parsed, names=list(columns)), types, format), reasons


def _without_missing(table: Any, types: Mapping[str, Any], format: CsvFormat) -> Any:
    """The table with null where columns of text hold a missing category."""
    for position, (name, kind) in enumerate(types.items()):
        if kind == pa.string():
            table = table.set_column(position, name, _null_where(table.column(name), format.missing_categories))
    return table


def wrong_fields(row: Any) -> str:
    expected = "1 field is" if row.expected_columns == 1 else f"{row.expected_columns} fields are"
    return f"{expected} expected; there are {row.actual_columns}"


def _excerpt(value: str | bytes) -> str:
    start = value[:40]
    with suppress(UnicodeDecodeError):
        start = start.decode() if isinstance(start, bytes) else start
    return repr(start) + ("…" if len(value) > 40 else "")


def _type_name(kind: Any, format: CsvFormat) -> str:
    types = pa.types
    if types.is_integer(kind):
        return "an integer"
    if types.is_floating(kind):
        return "a number" if format.decimal == "." else "a number with a decimal comma"
    if types.is_timestamp(kind):
        return f"a timestamp {'with' if kind.tz else 'without'} a time zone, from 1678 to 2261"
    return "UTF-8 text" if types.is_string(kind) else f"a {kind}"


def parse_block(
    block: bytes, names: Sequence[str], format: CsvFormat, types: Mapping[str, Any]
) -> tuple[Any, list[Any]]:
    """The rows of a block as a Table of the columns in `types` (if that is empty all columns, of inferred types).

    Rows with the wrong number of fields are left out; they are the second result, as pyarrow's InvalidRow.
    """
    bad: list[Any] = []

    def leave_out(row: Any) -> str:
        bad.append(row)
        return "skip"

    table = pa_csv.read_csv(
        pa.BufferReader(block),
        # In one piece, so that row numbers are those in the block.
        read_options=pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
        parse_options=pa_csv.ParseOptions(
            delimiter=format.separator,
            quote_char='"' if format.quoting else False,
            newlines_in_values=format.quoting,
            invalid_row_handler=leave_out,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict(types),
            include_columns=list(types),
            null_values=list(format.missing),
            strings_can_be_null=False,
            decimal_point=format.decimal,
        ),
    )
    return table, bad


def convert(column: Any, kind: Any, format: CsvFormat) -> Any:
    """Text, or its bytes, as a column of that type, parsed as the CSV reader does."""
    text = pc.cast(column, pa.string())
    if kind == pa.string():
        return text
    text = _null_where(pc.utf8_trim(text, characters=BLANKS), format.missing)
    if format.decimal != "." and pa.types.is_floating(kind):
        text = pc.replace_substring(pc.replace_substring(text, ".", "?"), format.decimal, ".")
    return pc.cast(text, kind)


def _null_where(column: Any, values: Sequence[str]) -> Any:
    found = pc.is_in(column, value_set=pa.array(values, pa.string()))
    return pc.if_else(found, pa.scalar(None, column.type), column) if pc.any(found).as_py() else column


def find_unreadable(column: Any, kind: Any, format: CsvFormat, start: int = 0) -> list[int]:
    """The indices of values that cannot be converted, found by bisection: fast if there are few."""
    try:
        convert(column, kind, format)
        return []
    except (pa.ArrowInvalid, UnicodeDecodeError):
        if len(column) == 1:
            return [start]
    half = len(column) // 2
    left = find_unreadable(column.slice(0, half), kind, format, start)
    return left + find_unreadable(column.slice(half), kind, format, start + half)
