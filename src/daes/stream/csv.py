"""CSV and TSV files, plain or compressed, read block by block.

pyarrow's own CSV reader neither resumes at a byte offset nor names the row that it cannot parse; this one does both. A
block consists of whole rows of text. pyarrow parses it; only if that fails is the block parsed again to find the bad
rows, so that a clean file costs nothing extra. Every block starts at a known byte: seeking reads nothing in a plain
file and only decompresses in a compressed one.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

from daes.stream.arrow import pa, pc
from daes.stream.bad_rows import BadRow, BadRows
from daes.stream.csv_rows import BLANKS, CsvCursor, convert, find_unreadable, parse_block, parse_text, wrong_fields
from daes.stream.csv_text import CsvBlocks, CsvFormat
from daes.stream.cursor import Cursor, Position, SourceError
from daes.stream.files import DataFile, Where
from daes.stream.files_source import FilesSource
from daes.stream.schema import Schema

_HEADER = 1 << 16
_FIRST = 100
_HEXADECIMAL = re.compile(rb"0[xX][0-9a-fA-F]")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".psv": "|"}


class CsvSource(FilesSource):
    """Rows of CSV or TSV files, in the order of the files; plain, .gz, .zst, .bz2 or .lz4.

    Args:
        where: see `FilesSource`.
        separator: one character; by default a tab for .tsv and .tab, a bar for .psv, otherwise a comma.
        header: whether the first row has the names of the columns. A column without a name is called by its position:
            `unnamed_3`, or `column_3` without a header.
        column_names: the names, if the files have no header. A first row of nothing but such names is a header all the
            same, with the names of this file's columns.
        decimal: "." or ",", the decimal separator of numbers.
        quoting: whether "…" encloses a field, which may then contain separators, doubled quotes and line ends. If
            quotes are ordinary characters, also inside unquoted fields, use False.
        missing: texts that mean a missing number, also with spaces around them.
        missing_categories: texts that mean a missing category.

    Numerical columns are parsed as float64, categorical ones stay text ("007" stays "007"). The label may also be
    true/false; the time an integer, a date or a timestamp. Without a schema the first block decides: numbers become
    float64, other columns get the type that pyarrow infers. Empty lines and Excel's first line `sep=;` are skipped.
    A row is bad (see `configure`) if it has the wrong number of fields, text where a number is expected, or text that
    is not UTF-8.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "clicks.csv")
    ...     _ = path.write_text("click,price,city\\n1,0.5,007\\n0,NA,\\n")
    ...     source = CsvSource(path)
    ...     source.schema = Schema("click", ("price",), ("city",))
    ...     next(source.iter_tables(["price", "city"], batch_size=8)).to_pydict()
    {'price': [0.5, None], 'city': ['007', None]}
    """

    _suffixes = (*SEPARATORS, ".txt")
    _file_start: ClassVar[Position] = {"offset": 0, "offset_row": 0, "skip": 0}

    def __init__(self, where: Where, *, separator: str | None = None, **format: Any) -> None:
        super().__init__(where)
        separator = SEPARATORS.get(self._files[0].suffix, ",") if separator is None else separator
        self.format = CsvFormat(separator, **format)
        self._as_text = False

    def as_text(self) -> "CsvSource":
        """The same rows from the start, with all columns as the text in the files: nothing is parsed or missing.

        If bad rows are skipped, a row that cannot be split into fields becomes a row of nulls.
        """
        text = copy(self)
        text.format = replace(self.format, missing_categories=())
        text.bad_rows = BadRows()
        text._ends = []
        text._as_text = True
        text.seek({"row": 0})
        return text

    def parse(self, text: Any, schema: Schema) -> tuple[Any, dict[int, str]]:
        """Parse the schema's columns in a Table of text; also why rows cannot be parsed and are left out, by index."""
        roles = self._roles(schema)
        types = {name: column_type(role, self.arrow_schema.field(name).type) for name, role in roles.items()}
        return parse_text(text, types, self.format)

    def _first_schema(self) -> Any:
        for file in self._files:  # a file of a header, or of rows that are left out, tells no types
            found = infer_types(file, self.format, skips=self.skips)
            if any(not pa.types.is_null(column.type) for column in found):
                return found
        return infer_types(self._files[0], self.format)

    def _file_schema(self, file: DataFile) -> Any:
        with closing(CsvBlocks(file, self.format, first_read=_HEADER)) as blocks:
            names = blocks.names
        known = {column.name: column.type for column in self.arrow_schema}
        return pa.schema([(name, known.get(name, pa.string())) for name in names])

    def _roles(self, schema: Schema | None) -> dict[str, str]:
        return dict.fromkeys(self.arrow_schema.names, "categorical") if self._as_text else super()._roles(schema)

    def _file_cursor(
        self, file: DataFile, types: Mapping[str, Any], schema: Schema | None, place: Position, rows_at_once: int
    ) -> Cursor:
        roles = self._roles(schema)
        parsed = {name: column_type(roles.get(name), inferred) for name, inferred in types.items()}
        for name, kind in parsed.items():
            if roles.get(name) == "time" and (kind == pa.string() or pa.types.is_floating(kind)):
                parsed[name] = time_type(self._files, name, self.format) or kind
        policy = "error" if not self.skips else "blank" if self._as_text else "skip"
        label = None if schema is None else schema.label
        return CsvCursor(file, self.format, parsed, place, self.bad_rows, policy, label)


def column_type(role: str | None, inferred: Any) -> Any:
    """The Arrow type that a column of text is parsed as, given its role and the type of its first rows."""
    types = pa.types
    if role == "categorical":
        return pa.string()
    if role in ("numerical", "weight", "label"):
        return inferred if types.is_boolean(inferred) else pa.float64()
    if role == "time":
        if types.is_date(inferred) or types.is_timestamp(inferred):  # later times may have a fraction of a second
            return pa.timestamp("ns", getattr(inferred, "tz", None))
        return pa.int64() if types.is_null(inferred) else inferred
    if types.is_integer(inferred):
        return pa.float64()
    return pa.string() if types.is_null(inferred) else inferred


def infer_types(file: DataFile, format: CsvFormat, *, skips: bool = False) -> Any:
    """The columns of a file as a pyarrow Schema, inferred from its first block of rows.

    That none of them has the right number of fields is an error, unless bad rows are skipped.
    """
    with closing(CsvBlocks(file, format)) as blocks:
        block = blocks.next()
        if block is None:
            return pa.schema([(name, pa.null()) for name in blocks.names])
        table, bad = parse_block(block, blocks.names, format, {})
        if len(blocks.names) == 1:
            _check_separator(file.path, blocks.names[0], block, format.separator)
        if bad and not table.num_rows and not skips:
            raise SourceError(str(BadRow(file.path, 1, wrong_fields(bad[0]))))
        text = _hexadecimal(block, blocks.names, format, table.schema)
    # pyarrow takes text that is not UTF-8 for binary data; here it is text with bad rows. A time of day is a category.
    text |= {field.name for field in table.schema if field.type == pa.binary() or pa.types.is_time(field.type)}
    columns = zip(table.column_names, table.columns, strict=True)
    return pa.schema([(name, pa.string() if name in text else _type(column, format)) for name, column in columns])


def _type(column: Any, format: CsvFormat) -> Any:
    """The type of a column; pyarrow infers text if values that are missing have spaces around them."""
    if column.type == pa.string() and pc.any(pc.not_equal(column, pc.utf8_trim(column, characters=BLANKS))).as_py():
        for kind in (pa.float64(), pa.bool_(), *_timestamps()):
            with suppress(pa.ArrowInvalid):
                convert(column[:_FIRST], kind, format)  # every text of a column that is refused takes time
                values = convert(column, kind, format)
                return pa.null() if values.null_count == len(values) else kind
    return column.type


def _timestamps() -> tuple[Any, Any]:
    return pa.timestamp("ns"), pa.timestamp("ns", "UTC")


def time_type(files: Sequence[DataFile], name: str, format: CsvFormat) -> Any:
    """The type of times of which some cannot be read, by which most of the first can be; None if none of them can."""
    for file in files:
        with closing(CsvBlocks(file, format)) as blocks:
            if block := blocks.next():
                cells = parse_block(block, blocks.names, format, {name: pa.binary()})[0].column(name).to_pylist()
                break
    stripped = (cell.decode(errors="replace").strip(BLANKS) for cell in cells)
    texts = pa.array(islice((text for text in stripped if text not in format.missing), _FIRST), pa.string())
    bad = {kind: len(find_unreadable(texts, kind, format)) for kind in (pa.int64(), *_timestamps())}
    kind = min(bad, key=lambda kind: bad[kind])
    return kind if bad[kind] < len(texts) else None


def _hexadecimal(block: bytes, names: Sequence[str], format: CsvFormat, inferred: Any) -> set[str]:
    """The columns of integers of which some are hexadecimal: pyarrow infers these, but does not read them as floats."""
    integers = [field.name for field in inferred if pa.types.is_integer(field.type)]
    if not integers or not _HEXADECIMAL.search(block):
        return set()
    table, _ = parse_block(block, names, format, dict.fromkeys(integers, pa.string()))
    return {name for name in integers if pc.any(pc.match_substring_regex(table.column(name), "0[xX]")).as_py()}


def _check_separator(path: str, name: str, block: bytes, separator: str) -> None:
    """Raise an error if the name and the first row of a file's only column contain another likely separator."""
    row = block.partition(b"\n")[0].decode(errors="replace")
    for other in ";\t|,":
        if other != separator and other in name and other in row:
            raise SourceError(
                f"{path} has one column, {name[:80]!r}, with {separator!r} as the separator: is it {other!r}? "
                "(--separator)"
            )
