"""CSV and TSV files, plain or compressed, read block by block.

pyarrow's own CSV reader neither resumes at a byte offset nor names the row that it cannot parse; this one does both. A
block is a number of whole rows of text. pyarrow parses it; if that fails, the block is parsed once more row by row to
find the bad rows, so that a clean file costs nothing extra. Every block starts at a known byte: seeking in a plain file
reads nothing, in a compressed file it decompresses only.
"""

from collections.abc import Mapping
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

from daes.stream.arrow import pa
from daes.stream.bad_rows import BadRow, BadRows
from daes.stream.csv_rows import CsvCursor, parse_block, parse_text, wrong_fields
from daes.stream.csv_text import CsvBlocks, CsvFormat
from daes.stream.cursor import Cursor, Position, SourceError
from daes.stream.files import DataFile, Where
from daes.stream.files_source import FilesSource
from daes.stream.schema import Schema

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".psv": "|"}


class CsvSource(FilesSource):
    """Rows of CSV or TSV files, in the order of the files; plain, .gz, .zst, .bz2 or .lz4.

    Args:
        where, shard: see `FilesSource`.
        schema: how to read the columns in `iter_tables`; `iter_batches` has a schema of its own.
        separator: one character; by default a tab for .tsv and .tab, a bar for .psv, otherwise a comma.
        header: whether the first row has the names of the columns. A column without a name is called `unnamed_3` by its
            position, and without a header `column_3`.
        column_names: the names, where the files have no header.
        decimal: "." or ",", before the fraction of a number.
        quoting: whether "…" encloses a field, in which separators, doubled quotes and line ends may stand. A quote
            inside an unquoted field is not part of that convention: use False where quotes are ordinary characters.
        missing: text that means a missing number.
        missing_categories: text that means a missing category.
        bad_rows: a row with the wrong number of fields, a number that is none, or text that is not UTF-8: "error" stops
            with the file and the row; "skip" leaves the row out, and counts it in `bad_rows`.

    Numerical columns are parsed as float64, categorical ones stay text ("007" stays "007"). The label may also be
    true/false; the time an integer, a date or a timestamp. Without a schema the first block decides: numbers become
    float64, the rest as pyarrow infers it. Empty lines do not count, nor does a first line `sep=;`, as Excel has it.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "clicks.csv")
    ...     _ = path.write_text("click,price,city\\n1,0.5,007\\n0,NA,\\n")
    ...     source = CsvSource(path, schema=Schema("click", ("price",), ("city",)))
    ...     next(source.iter_tables(["price", "city"], batch_size=8)).to_pydict()
    {'price': [0.5, None], 'city': ['007', None]}
    """

    _suffixes = (*SEPARATORS, ".txt")
    _file_start: ClassVar[Position] = {"offset": 0, "offset_row": 0, "skip": 0}

    def __init__(
        self,
        where: Where,
        *,
        schema: Schema | None = None,
        separator: str | None = None,
        bad_rows: str = "error",
        shard: tuple[int, int] | None = None,
        **format: Any,
    ) -> None:
        super().__init__(where, shard=shard, bad_rows=bad_rows)
        separator = SEPARATORS.get(self._files[0].suffix, ",") if separator is None else separator
        self.format = CsvFormat(separator, **format)
        self.schema = schema
        self._as_text = False

    def _row_at(self, place: Position) -> tuple[str, int]:
        path, nth = super()._row_at(place)
        return path, self.bad_rows.number(path, int(place["offset_row"]), nth)

    def as_text(self) -> "CsvSource":
        """The same rows from the start, all columns text as it stands in the files: nothing is parsed or missing.

        Where bad rows are skipped, a row that cannot be cut into fields is a row of nulls in its place.
        """
        text = copy(self)
        text.format = replace(self.format, missing_categories=())
        text.bad_rows = BadRows()
        text._as_text = True
        text.seek({"row": 0})
        return text

    def parse(self, text: Any, schema: Schema) -> tuple[Any, dict[int, str]]:
        """A Table of text with the schema's columns parsed; rows that cannot be are left out, with index and reason."""
        types = {name: self._type(role, self.arrow_schema.field(name).type) for name, role in schema.roles.items()}
        return parse_text(text, types, self.format)

    def _type(self, role: str | None, inferred: Any) -> Any:
        return column_type("categorical" if role == "label" and self._label_map else role, inferred)

    def _file_schema(self, file: DataFile) -> Any:
        if file is self._files[0] and self._schema is None:
            return infer_types(file, self.format)
        with closing(CsvBlocks(file, self.format)) as blocks:
            names = blocks.names
        known = {column.name: column.type for column in self.arrow_schema}
        return pa.schema([(name, known.get(name, pa.string())) for name in names])

    def _file_cursor(
        self, file: DataFile, types: Mapping[str, Any], roles: Mapping[str, str], place: Position, rows_at_once: int
    ) -> Cursor:
        if self._as_text:
            parsed = dict.fromkeys(types, pa.string())
        else:
            roles = self.schema.roles if not roles and self.schema is not None else roles
            parsed = {name: self._type(roles.get(name), inferred) for name, inferred in types.items()}
        policy = "error" if not self.skips else "blank" if self._as_text else "skip"
        return CsvCursor(file, self.format, parsed, place, self.bad_rows, policy)


def column_type(role: str | None, inferred: Any) -> Any:
    """The Arrow type a column of text is parsed as, given its role and what its first rows look like."""
    types = pa.types
    if role == "categorical":
        return pa.string()
    if role in ("numerical", "weight", "label"):
        return inferred if types.is_boolean(inferred) else pa.float64()
    if role == "time":
        return pa.int64() if types.is_null(inferred) else inferred
    if types.is_integer(inferred):
        return pa.float64()
    return pa.string() if types.is_null(inferred) else inferred


def infer_types(file: DataFile, format: CsvFormat) -> Any:
    """The columns of a file as a pyarrow Schema, by its first block of rows."""
    with closing(CsvBlocks(file, format)) as blocks:
        block = blocks.next()
        if block is None:
            return pa.schema([(name, pa.null()) for name in blocks.names])
        table, bad = parse_block(block, blocks.names, format, {})
        if len(blocks.names) == 1:
            _check_separator(file.path, blocks.names[0], block, format.separator)
        if bad and not table.num_rows:
            raise SourceError(str(BadRow(file.path, 1, wrong_fields(bad[0]))))
    # What is not UTF-8 looks like binary data; here it is text with bad rows.
    return pa.schema([(field.name, pa.string() if field.type == pa.binary() else field.type) for field in table.schema])


def _check_separator(path: str, name: str, block: bytes, separator: str) -> None:
    """An error for a file of one column whose name and first row have what separates fields in other files."""
    row = block.partition(b"\n")[0].decode(errors="replace")
    for other in ";\t|,":
        if other != separator and other in name and other in row:
            raise SourceError(
                f"{path} has one column, {name[:80]!r}, with {separator!r} as the separator: is it {other!r}? "
                "(--separator)"
            )
