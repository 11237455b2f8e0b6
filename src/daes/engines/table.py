"""Statistics of a whole table in one pass; its parts are read by the processes of an engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from daes.distribution.base import check_positive
from daes.distribution.summary import TableSummary
from daes.engines.base import Engine, LocalEngine
from daes.stream.batch import Batch, numbers_from_table
from daes.stream.dataset import Dataset
from daes.stream.files_source import FilesSource
from daes.stream.schema import Schema

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Part:
    """A range of rows of a dataset, which a process opens and reads itself.

    Args:
        number: the number of the part, from 0.
        data: the dataset.
        start: the first row.
        stop: the row after the last one; None for the end.
    """

    number: int
    data: Dataset
    start: int = 0
    stop: int | None = None

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        return self._open().iter_tables(columns, ROWS_AT_ONCE) if self.start != self.stop else iter(())

    def batches(self, schema: Schema) -> Iterator[Batch]:
        return self._open().iter_batches(schema, ROWS_AT_ONCE) if self.start != self.stop else iter(())

    def _open(self) -> Dataset:
        """The dataset at the part's first row, ending after the last one."""
        rows = self.data.head(self.stop)
        rows.seek({"row": self.start})
        return rows


def table_parts(data: Dataset, count: int) -> list[Part]:
    """Cut a dataset into parts that can be read independently: about `count` ranges of rows, or one part per file.

    There are ranges of rows if the number of rows is known, as for Parquet files, where a reader skips the row groups
    before its first row. A CSV file is one part, since one must read it to find out where a row starts.

    >>> import pyarrow as pa
    >>> data = Dataset.open(pa.table({"price": [1.0, 2.0, 3.0]}), needs_label=False)
    >>> [(part.start, part.stop) for part in table_parts(data, 2)]
    [(0, 1), (1, 3)]
    """
    check_positive(count=count)
    rows = data.num_rows
    if rows is not None:
        cuts = np.linspace(0, rows, min(count, max(rows, 1)) + 1).astype(np.int64).tolist()
        return [Part(number, data, *cut) for number, cut in enumerate(pairwise(cuts))]
    paths = data.source.paths if isinstance(data.source, FilesSource) else ()
    if len(paths) < 2 or data.limit is not None:
        return [Part(0, data, 0, data.limit)]
    return [Part(number, Dataset.open(path, schema=data.schema, **data.options)) for number, path in enumerate(paths)]


def _summarize(columns: tuple[str, ...], size: int, seed: int, part: Part) -> TableSummary:
    summary = TableSummary(columns, size=size, seed=seed, part=part.number)
    for table in part.tables(columns):
        summary.update(numbers_from_table(table, columns))
    return summary


def merge_summaries(first: TableSummary, second: TableSummary) -> TableSummary:
    """The first summary with the second merged into it."""
    first.merge(second)
    return first


def summarize_table(
    data: Dataset,
    columns: Sequence[str] | None = None,
    *,
    engine: Engine | None = None,
    parts: int = 1,
    size: int = 100_000,
    seed: int = 0,
) -> TableSummary:
    """The distributions of the numerical columns of a dataset in one pass.

    The same dataset, number of parts and seed give the same summary on every engine, bit for bit.

    Args:
        data: the dataset. With several machines its files must have the same path or URL on all of them.
        columns: names of columns of numbers; by default those of the schema.
        engine: the engine that reads; by default this process.
        parts: number of parts of the table, see `table_parts`.
        size: number of values in each column's reservoir.
        seed: seed of the random numbers.

    >>> import pyarrow as pa
    >>> data = Dataset.open(pa.table({"price": [1.0, 2.0, None, 4.0]}), needs_label=False)
    >>> summary = summarize_table(data, parts=2)
    >>> summary.rows, summary.quantile([0.5]).tolist()
    (4, [[2.0]])
    """
    names = data.schema.numerical if columns is None else tuple(columns)
    if not names:
        raise ValueError(f"{data.name} must have a column of numbers to summarize, got none")
    work = partial(_summarize, names, size, seed)
    return (engine or LocalEngine()).map_merge(work, table_parts(data, parts), merge_summaries)
