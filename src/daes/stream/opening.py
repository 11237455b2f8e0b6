"""Opens the source of files, by their format, of tables and frames, of readers and of topics."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from daes.stream.arrow import pa
from daes.stream.broker_url import connect, is_broker, parse_url
from daes.stream.csv import SEPARATORS, CsvSource
from daes.stream.csv_text import CsvFormat, refuse_other_format
from daes.stream.cursor import SourceError
from daes.stream.datasets import find_entry
from daes.stream.files import DataFile, find_files
from daes.stream.files_source import FilesSource
from daes.stream.follow import FollowedFiles
from daes.stream.messages import MessageSource
from daes.stream.parquet import SUFFIXES, ParquetSource
from daes.stream.source import ReaderSource, Source, TableSource

_FORMATS = dict.fromkeys(SUFFIXES, "parquet") | dict.fromkeys((*SEPARATORS, ".txt"), "csv")


def open_source(
    what: Any,
    *,
    format: str | None = None,
    follow: bool = False,
    max_wait: float | None = None,
    order: str | None = None,
    key: str | None = None,
    **options: Any,
) -> Source:
    """The source of anything that `Dataset.open` takes, except datasets by name; see there for the arguments."""
    if format not in (None, "parquet", "csv"):
        raise ValueError(f"format must be 'parquet' or 'csv', got {format!r}")
    given = (("max_wait", max_wait), ("order", order), ("key", key))
    live: dict[str, Any] = {name: value for name, value in given if value is not None}
    if is_broker(what):
        for name, value in {"format": format, "follow": follow, "order": order, **options}.items():
            if value:
                raise TypeError(f"{name} is for files, got {value!r} and the topic {what}")
        return MessageSource(connect(what), **live)
    if follow:
        if key is not None:
            raise TypeError(f"key is for messages of a topic, got {key!r} and the files {what}")
        return _follow(what, format, options, live)
    if live:
        raise TypeError(f"{', '.join(live)} is for streams without an end, got {what!r} without follow")
    if _is_path(what) or (isinstance(what, Sequence) and all(map(_is_path, what))):
        return _source_of(*_files(what, format), options)
    for name, value in {"format": format, **options}.items():
        if value is not None:
            raise TypeError(f"{name} is for files, got {value!r} and a {type(what).__name__}")
    if _is_reader(what):
        return ReaderSource(what)
    if _is_source(what):
        source: Source = what
        return source
    return TableSource(what)


def refuse_file_options(options: Mapping[str, Any], what: str) -> None:
    """Raise an error for an option that says how to read files, if the rows are something else."""
    of_files = {"format", "follow", "order", "max_wait", *(field.name for field in fields(CsvFormat))}
    for name, value in options.items():
        if name in of_files:
            raise TypeError(f"{name} is for files, got {value!r} and {what}")


def reads_csv(what: str | Path | DataFile, format: str | None = None) -> bool:
    """Whether a path or name stands for CSV files, by their file names or by `format`.

    >>> reads_csv("flights"), reads_csv("nats://localhost/ADS")
    (False, False)
    """
    if find_entry(what) is not None or is_broker(what):
        return False
    return _files(what, format)[1] == "csv"


def name_of(what: Any) -> str:
    """A short name: the last part of a path, or the kind of object.

    >>> name_of("logs/clicks.parquet"), name_of(["day_1.csv", "day_2.csv"])
    ('clicks.parquet', 'day_1.csv')
    """
    if _is_source(what):
        return type(what).__name__
    if _is_reader(what):
        return "reader"
    first = what[0] if isinstance(what, list | tuple) else what
    if is_broker(first):
        return parse_url(first)[2]
    if isinstance(first, DataFile):
        return first.name
    return Path(first).name or str(first) if _is_path(first) else "table"


def absolute(what: str | Path) -> str:
    """A path, or a dataset by name with its path, that is valid in every working directory.

    >>> absolute("adstream:500"), absolute("s3://bucket/clicks.parquet"), absolute("/data/day_*.csv")
    ('adstream:500', 's3://bucket/clicks.parquet', '/data/day_*.csv')
    """
    text = str(what)
    entry = find_entry(what)
    if entry is not None:
        name, colon, path = text.partition(":")
        return f"{name}:{absolute(path)}" if colon and entry.argument == "path" else text
    return text if "://" in text or text == "-" else str(Path(text).expanduser().absolute())


def _files(what: Any, format: str | None) -> tuple[list[DataFile], str]:
    """The files and their format; if there are several and none is given, only files whose names tell their format."""
    files = find_files(what)
    if format is None and len(files) > 1:
        files = [file for file in files if file.suffix in _FORMATS] or files
    return files, format or _format(files)


def _is_path(what: Any) -> bool:
    return isinstance(what, str | Path | DataFile)


def _is_reader(what: Any) -> bool:
    """Whether it is a RecordBatchReader, or a function that should make one."""
    return isinstance(what, pa.RecordBatchReader) or (callable(what) and not _is_source(what))


def _is_source(what: Any) -> bool:
    return all(hasattr(type(what), method) for method in ("iter_batches", "position", "seek"))


def _follow(where: Any, format: str | None, options: dict[str, Any], live: dict[str, Any]) -> Source:
    """The source of files that keep arriving."""

    def make(file: DataFile) -> FilesSource:
        known = format or _format([file])
        return _source_of([file], known, options if known == "csv" else {})

    accepts = (lambda file: True) if format else (lambda file: file.suffix in _FORMATS)
    return FollowedFiles(where, make, accepts=accepts, **live)


def _source_of(files: Sequence[DataFile], format: str, options: dict[str, Any]) -> FilesSource:
    if format == "csv":
        return CsvSource(files, **options)
    if options:
        raise TypeError(f"options of CSV files: {', '.join(options)}; {files[0].path} is a Parquet file")
    return ParquetSource(files)


def _format(files: Sequence[DataFile]) -> str:
    formats = {_FORMATS.get(file.suffix) or _by_content(file): file for file in files}
    if len(formats) > 1:
        one, other = sorted(formats, key=str)[:2]
        raise SourceError(f"files must be of one format, got {formats[one].path} and {formats[other].path}")
    (format,) = formats
    return format


def _by_content(file: DataFile) -> str:
    try:
        with file.filesystem.open_input_stream(file.path) as stream:
            start = bytes(stream.read(8))
    except (OSError, ValueError) as error:
        raise SourceError(f"{file.path} cannot be read: {error}") from error
    if start.startswith(b"PAR1"):
        return "parquet"
    refuse_other_format(file.path, start)
    reason = f"the extension of {file.path} does not tell its format ({', '.join(_FORMATS)} do)"
    raise SourceError(f"{reason}; name it with --format (format= in Python)")
