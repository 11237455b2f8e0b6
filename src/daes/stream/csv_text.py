"""The text of a CSV file, block by block: its format, and where its rows end."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daes.stream.cursor import SourceError
from daes.stream.files import DataFile
from daes.stream.schema import UNNAMED

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "\\N")
"""Text that means a missing number by default."""

COMPRESSED = {b"\x1f\x8b": ("gzip", ".gz"), b"\x28\xb5\x2f\xfd": ("zstd", ".zst")}
"""First bytes of compressed files, the kind, and how their names must end."""
_OTHER_FORMATS = {
    b"PAR1\x15": "a Parquet file (--format parquet)",
    b"PK\x03\x04": "a zip archive or an Excel file: unpack or save it as CSV",
    **{start: f"{kind}: its name must end in {ending}" for start, (kind, ending) in COMPRESSED.items()},
    b"\xfd7zXZ": "xz: unpack it",
    b"\xff\xfe": "UTF-16: convert it, as iconv -f UTF-16 -t UTF-8 does",
    b"\xfe\xff": "UTF-16: convert it, as iconv -f UTF-16 -t UTF-8 does",
}
"""First bytes of files that are not UTF-8 text."""
NOT_CLOSED = 'is a " not closed? (--no-quotes, in Python quoting=False, reads it as an ordinary character)'
_SEPARATOR_LINE = re.compile(rb'"?sep=[^\n]"?\r?\n', re.IGNORECASE)
"""A first line that tells Excel the separator; it is skipped."""
_BLOCK = 1 << 22
_LONGEST_ROW = 1 << 26


def refuse_other_format(path: str, start: bytes) -> None:
    """Raise an error if a file that starts like this is known to be no CSV file."""
    for beginning, kind in _OTHER_FORMATS.items():
        if start.startswith(beginning):
            raise SourceError(f"{path} must be UTF-8 text, got {kind}")


@dataclass(frozen=True)
class CsvFormat:
    """How to read the text; see `CsvSource`."""

    separator: str = ","
    header: bool = True
    column_names: Sequence[str] | None = None
    decimal: str = "."
    quoting: bool = True
    missing: Sequence[str] = MISSING
    missing_categories: Sequence[str] = ("",)

    def __post_init__(self) -> None:
        if len(self.separator) != 1 or not self.separator.isascii():
            raise ValueError(f"separator must be one ASCII character, got {self.separator!r}")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}")
        if self.decimal == self.separator and not self.quoting:
            raise ValueError(
                f"decimal must not be the separator where no field is in quotes, got {self.decimal!r} as both"
            )


class CsvBlocks:
    """The text of one file: the names of its columns, then blocks of whole rows from a byte offset on.

    `offset` is the byte, after decompression, at which the next block starts.

    Args:
        first_read: bytes to read for the names of the columns, more if they are longer; None for a block.
    """

    def __init__(self, file: DataFile, format: CsvFormat, offset: int = 0, *, first_read: int | None = None) -> None:
        self._path, self._quoting = file.path, format.quoting
        self._stream = self._open(file)
        self._pending = self._read(first_read or _BLOCK)
        if not self._pending:
            raise SourceError(f"{self._path} is empty")
        refuse_other_format(self._path, self._pending)
        start = 3 if self._pending.startswith(b"\xef\xbb\xbf") else 0
        if line := _SEPARATOR_LINE.match(self._pending, start):
            start = line.end()
        stop = self._first_row_end(start)
        first = self._pending[start:stop]
        if format.column_names is not None:
            self.names = list(format.column_names)
            if header := self._header_of(first, format):
                self.names, start = header, stop
        else:
            fields = self._first_row(first, format)
            if format.header:
                self.names = [name.strip() or f"{UNNAMED}{position}" for position, name in enumerate(fields, 1)]
                start = stop
            else:
                self.names = [f"column_{position}" for position in range(1, len(fields) + 1)]
        self.offset = max(start, offset)
        self._go_to(self.offset, seekable=file.compression is None)

    def close(self) -> None:
        self._stream.close()

    def _open(self, file: DataFile) -> Any:
        try:
            if file.compression is None:
                return file.open()
            return file.filesystem.open_input_stream(file.path, compression=file.compression)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise SourceError(f"{file.path} cannot be read: {error}") from error

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except (OSError, ValueError) as error:
            raise SourceError(f"{self._path} is damaged or cut off: {error}") from error

    def _first_row_end(self, start: int) -> int:
        stop = start
        while True:
            stop = self._pending.find(b"\n", stop) + 1
            if stop and not (self._quoting and self._pending.count(b'"', start, stop) % 2):
                return stop
            if not stop:
                piece = self._read(_BLOCK) if len(self._pending) < _LONGEST_ROW else b""
                if not piece:
                    return len(self._pending)
                self._pending += piece
                stop = start

    def _first_row(self, line: bytes, format: CsvFormat) -> list[str]:
        wanted = "the names of its columns" if format.header else "a row"
        try:
            text = io.StringIO(line.decode(), newline="")
            options: Any = {} if format.quoting else {"quoting": csv.QUOTE_NONE}
            rows = list(csv.reader(text, delimiter=format.separator, **options))
        except UnicodeDecodeError as error:
            raise SourceError(f"{self._path} must be UTF-8 text, got {line[:80]!r}") from error
        except csv.Error as error:
            raise SourceError(f"{self._path} must start with {wanted}, got {error}") from error
        if b"\r" in line.rstrip(b"\r\n") and len(rows) > 1:
            raise SourceError(f"the rows of {self._path} must end in \\n or \\r\\n, got \\r alone: {line[:80]!r}")
        if len(rows) != 1 or not any(rows[0]):
            raise SourceError(f"{self._path} must start with {wanted}, got {line[:80]!r}")
        return rows[0]

    def _header_of(self, line: bytes, format: CsvFormat) -> list[str] | None:
        """The fields of the first row if they are different names of columns, so that it is no row of values."""
        try:
            fields = [name.strip() for name in self._first_row(line, format)]
        except SourceError:
            return None  # an invalid row, which is reported as such
        return fields if len(set(fields)) == len(fields) and set(fields) <= set(format.column_names or ()) else None

    def _go_to(self, offset: int, seekable: bool) -> None:
        if offset <= len(self._pending):
            self._pending = self._pending[offset:]
        elif seekable:
            self._stream.seek(offset)
            self._pending = b""
        else:
            left = offset - len(self._pending)
            while left and (piece := self._read(min(left, _BLOCK))):
                left -= len(piece)
            self._pending = b""

    def next(self) -> bytes | None:
        """The next block of whole rows, or None at the end."""
        while piece := self._read(_BLOCK):
            text = self._pending + piece
            if stop := _last_row_end(text, self._quoting):
                self._pending = text[stop:]
                self.offset += stop
                return text[:stop]
            self._pending = text
            if len(text) > _LONGEST_ROW:
                raise SourceError(f"{self._path} has a row of more than {_LONGEST_ROW >> 20} MiB{self._quote_hint()}")
        text, self._pending = self._pending, b""
        if self._quoting and text.count(b'"') % 2:
            raise SourceError(f"{self._path} ends within quotes{self._quote_hint()}")
        self.offset += len(text)
        return text or None

    def _quote_hint(self) -> str:
        if not self._quoting:
            return ""
        return f" in the rows from byte {self.offset} on: {NOT_CLOSED}"


def _last_row_end(text: bytes, quoting: bool) -> int:
    """The position after the last line end that is not within quotes, 0 if there is none.

    A line end is within quotes if it follows an odd number of them, since a quote within quotes is written twice.
    """
    stop = text.rfind(b"\n") + 1
    if quoting and (quotes := text.count(b'"', 0, stop)):
        while quotes % 2:
            earlier = text.rfind(b"\n", 0, text.rfind(b'"', 0, stop)) + 1
            quotes -= text.count(b'"', earlier, stop)
            stop = earlier
    return stop
