"""Rows to be scored, each with a row of the output: columns to copy unchanged, and what a model reads."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.bad_rows import BadRow, BadRows
from daes.stream.batch import Batch, batch_from_table
from daes.stream.csv import CsvSource
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema, no_such_column


def aligned_rows(
    data: Dataset, schema: Schema, keep: Sequence[str], batch_size: int, bad_rows: BadRows
) -> Iterator[tuple[Any, Batch, NDArray[np.bool_]]]:
    """All rows of the data in order, `batch_size` at a time.

    Yields a pyarrow Table of the columns to copy (for a CSV file their unparsed text), a Batch of the rows that can be
    read, and a mask of these among all rows, (rows,) bool. If bad rows are skipped, they are added to `bad_rows`.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "clicks.csv")
    ...     _ = path.write_text("id,price\\n007,0.5\\n008,x\\n")
    ...     schema = Schema(None, ("price",), ())
    ...     data = Dataset.open(path, schema=schema, bad_rows="skip")
    ...     ((kept, batch, good),) = aligned_rows(data, schema, ["id"], 8, BadRows())
    ...     kept.to_pydict(), batch.numerical.tolist(), good.tolist()
    ({'id': ['007', '008']}, [[0.5]], [True, False])
    """
    names = list(dict.fromkeys([*schema.columns, *keep]))
    available = data.arrow_schema.names
    if missing := [name for name in names if name not in available]:
        raise ValueError(no_such_column(missing, available))
    csv = data.source if isinstance(data.source, CsvSource) else None
    rows = data.with_source(csv.as_text()) if csv else data
    start = 0
    for table in rows.from_start(prefetch=2).iter_tables(names, batch_size):
        good = np.ones(table.num_rows, dtype=bool)
        read = table
        if csv is not None:
            read, reasons = _parsed(csv, table, schema)
            good[list(reasons)] = False
            for row in (BadRow(data.name, start + index + 1, reasons[index]) for index in sorted(reasons)):
                if row.reason and not csv.skips:
                    raise SourceError(str(row))
                if row.reason:
                    bad_rows.add(row)
        try:
            batch = batch_from_table(read, schema)
        except (ValueError, TypeError) as error:
            raise type(error)(f"rows {start + 1} to {start + table.num_rows} of {data.name}: {error}") from error
        yield table.select(list(keep)), batch, good
        start += table.num_rows
    if isinstance(rows.source, CsvSource):
        for row in rows.source.bad_rows.first:
            bad_rows.add(row)


def _parsed(source: CsvSource, text: Any, schema: Schema) -> tuple[Any, dict[int, str]]:
    """The rows that can be parsed, and why others cannot; "" for rows of nulls, which the source has noted."""
    blank = np.flatnonzero(text.column(0).is_null().to_numpy())
    if not len(blank):
        return source.parse(text, schema)
    whole = np.setdiff1d(np.arange(text.num_rows), blank)
    parsed, reasons = source.parse(text.take(whole), schema)
    return parsed, {int(whole[index]): reason for index, reason in reasons.items()} | dict.fromkeys(blank.tolist(), "")
