"""`open`: one word for whatever rows come from."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daes.extras import require
from daes.stream.csv import SEPARATORS, CsvSource
from daes.stream.cursor import SourceError
from daes.stream.datasets import DATASETS
from daes.stream.files import DataFile, find_files
from daes.stream.parquet import SUFFIXES, ParquetSource
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema
from daes.stream.source import ReaderSource, Stream, TableSource

_FORMATS = dict.fromkeys(SUFFIXES, "parquet") | dict.fromkeys((*SEPARATORS, ".txt"), "csv")


def open(
    what: Any,
    *,
    schema: Schema | None = None,
    format: str | None = None,
    shard: tuple[int, int] | None = None,
    prefetch: int = 0,
    **options: Any,
) -> Stream:
    """Open a stream of rows.

    Args:
        what: a dataset by name (`flights`) or with its path (`criteo:PATH`, `automl:PATH`; see `DATASETS`); a path, a
            glob, a directory or a URL of Parquet or CSV files, or a sequence of these (see
            `daes.stream.files.find_files`); a pyarrow Table, RecordBatch or RecordBatchReader; a pandas or polars
            frame; or a source. A file that is called as a dataset is `./flights`.
        schema: what the columns mean, if it is known; wins over the dataset's own.
        format: "parquet" or "csv", where the ending of the file names does not tell.
        shard: `(rank, world)`: this reader gets the batches i with i % world == rank.
        prefetch: how many batches a thread reads ahead; 0 for no thread.
        options: for CSV files those of `CsvSource` (`separator`, `column_names`, `quoting`, `missing`,
            `missing_categories`, `bad_rows`), for a dataset those of its own.

    Returns:
        A `Stream`: `source`, `schema` (None where it is neither given nor known; see `infer_schema`), `name`, `notes`.

    >>> import pyarrow as pa
    >>> stream = open(pa.table({"click": [0, 1], "price": [0.5, 2.0]}))
    >>> stream.name, stream.schema, stream.source.num_rows
    ('table', None, 2)
    """
    stream = _open(what, schema, format, shard, options)
    if schema is not None:
        stream = Stream(stream.source, schema, stream.name, stream.notes)
    if prefetch:
        stream = Stream(Prefetch(stream.source, prefetch), stream.schema, stream.name, stream.notes)
    return stream


def _open(
    what: Any, schema: Schema | None, format: str | None, shard: tuple[int, int] | None, options: dict[str, Any]
) -> Stream:
    if isinstance(what, str):
        name, colon, path = what.partition(":")
        if name in DATASETS and not path.startswith("//"):
            return _open_dataset(name, path if colon else None, shard, options)
        # Two letters at least, so that a drive of Windows is none.
        unknown = re.fullmatch(r"[a-z][a-z0-9_]+:(?!//).*", what)
        if unknown and not Path(what).exists():
            usages = ", ".join(info.usage for info in DATASETS.values())
            raise ValueError(f"there is no dataset {name!r}; there are: {usages}")
    if isinstance(what, str | Path) or (isinstance(what, Sequence) and all(isinstance(p, str | Path) for p in what)):
        try:
            return _open_files(what, schema, format, shard, options)
        except FileNotFoundError as error:
            if isinstance(what, str) and what.isidentifier():
                usages = ", ".join(info.usage for info in DATASETS.values())
                raise FileNotFoundError(f"{error}, and no dataset of that name; there are: {usages}") from error
            raise
    for key, value in (("format", format), *options.items()):
        if value is not None:
            raise TypeError(f"{key} is for files, got {value!r} and what is a {type(what).__name__}")
    if isinstance(what, require("pyarrow").RecordBatchReader):
        return Stream(ReaderSource(what, shard=shard), None, "reader")
    if all(hasattr(type(what), method) for method in ("iter_batches", "position", "seek")):
        if shard is not None:
            raise TypeError(f"a source has its own shard, got {shard!r}")
        return Stream(what, None, type(what).__name__)
    return Stream(TableSource(what, shard=shard), None, "table")


def _open_dataset(name: str, path: str | None, shard: tuple[int, int] | None, options: dict[str, Any]) -> Stream:
    info = DATASETS[name]
    if info.needs_path and not path:
        raise ValueError(f"{name} needs the path of its files, as in {info.usage}")
    if path is not None and info.sized:
        if not path.replace("_", "").isdigit():
            raise ValueError(f"{name} takes a number of rows, as in {name}:200000, got {name}:{path}")
        return info.open(int(path), shard=shard, **options)
    if path is not None and not info.needs_path:
        raise ValueError(f"{name} takes no path, got {name}:{path}")
    return info.open(path, shard=shard, **options) if info.needs_path else info.open(shard=shard, **options)


def _open_files(
    where: Any, schema: Schema | None, format: str | None, shard: tuple[int, int] | None, options: dict[str, Any]
) -> Stream:
    if format not in (None, "parquet", "csv"):
        raise ValueError(f"format must be 'parquet' or 'csv', got {format!r}")
    files = find_files(where)
    if format is None:
        several = len(files) > 1
        files = [file for file in files if not several or file.suffix in _FORMATS] or files
        format = _format(files)
    name = Path(str(where if isinstance(where, str | Path) else where[0])).name or str(where)
    if format == "csv":
        return Stream(CsvSource(files, schema=schema, shard=shard, **options), None, name)
    if options:
        raise TypeError(f"{', '.join(options)} are options of CSV files; {files[0].path} is a Parquet file")
    return Stream(ParquetSource(files, shard=shard), None, name)


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
            start = bytes(stream.read(4))
    except (OSError, ValueError) as error:
        raise SourceError(f"{file.path} cannot be read: {error}") from error
    if start == b"PAR1":
        return "parquet"
    endings = ", ".join(_FORMATS)
    raise SourceError(f"the format of {file.path} is not known by its ending ({endings}); name it with format=")
