"""Spark: work on parts by RDDs, and the summary of a DataFrame that is there already."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from daes.distribution.summary import TableSummary
from daes.engines.base import Attempt, EngineError, MergeGood, result_of
from daes.engines.table import merge_summaries
from daes.extras import require
from daes.stream.batch import numbers_from_table

P = TypeVar("P")
T = TypeVar("T")


class SparkEngine:
    """Spark's executors.

    Args:
        session: a SparkSession; by default the active one, or one made by Spark's own configuration: `local[*]` if
            neither `spark-defaults.conf` nor PYSPARK_SUBMIT_ARGS names a master. daes must be installed on executors.
    """

    def __init__(self, session: Any = None) -> None:
        self.session = session or _start()
        context = self.session.sparkContext
        if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable  # Spark would take the first python3 of the PATH

    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        attempt, merge_good = Attempt(work), MergeGood(merge)  # type: ignore[arg-type]
        count = len(parts)
        results = self.session.sparkContext.parallelize(list(enumerate(parts)), count).mapValues(attempt)
        while count > 1:
            count = (count + 1) // 2
            results = results.map(_with_neighbour).reduceByKey(_InOrder(merge_good), count).mapValues(itemgetter(1))
        ((_, result),) = results.collect()
        found: Any = result_of(result)
        return found  # type: ignore[no-any-return]


def _start() -> Any:
    builder = require("pyspark.sql").SparkSession.builder
    try:
        return builder.appName("daes").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except require("pyspark.errors").PySparkRuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(f"Spark could not be started (it needs Java 17 or later): {reason}") from error


def _with_neighbour(numbered: tuple[int, object]) -> tuple[int, tuple[int, object]]:
    """A result, keyed by the number of its pair."""
    return numbered[0] // 2, numbered


@dataclass(frozen=True)
class _InOrder:
    """Merges the two results of a pair, the one with the lower number first."""

    merge: Callable[[object, object], object]

    def __call__(self, one: tuple[int, object], other: tuple[int, object]) -> tuple[int, object]:
        first, second = sorted((one, other), key=lambda numbered: numbered[0])
        return first[0], self.merge(first[1], second[1])


def summarize_frame(
    frame: Any, columns: Sequence[str] | None = None, *, size: int = 100_000, seed: int = 0
) -> TableSummary:
    """The distributions of the numerical columns of a pyspark DataFrame in one pass.

    The same partitions and seed give the same summary, bit for bit.

    Args:
        frame: the DataFrame.
        columns: names of columns of numbers; all that hold numbers by default.
        size: slots of each column's reservoir.
        seed: of the random numbers.
    """
    types = require("pyspark.sql.types")
    numbers = (types.NumericType, types.BooleanType)
    names = tuple(
        [field.name for field in frame.schema.fields if isinstance(field.dataType, numbers)]
        if columns is None
        else columns
    )
    if not names:
        raise ValueError(f"frame must have a column of numbers, got {', '.join(frame.columns)}")

    def summarize(batches: Iterator[Any]) -> Iterator[Any]:
        number = require("pyspark").TaskContext.get().partitionId()
        summary = TableSummary(names, size=size, seed=seed, part=number)
        for batch in batches:
            summary.update(numbers_from_table(batch, names))
        yield require("pyarrow").RecordBatch.from_pydict({"summary": [pickle.dumps(summary)]})

    def load(row: Any) -> TableSummary:
        found: TableSummary = pickle.loads(row.summary)
        return found

    summaries = frame.select(*names).mapInArrow(summarize, "summary binary").rdd.map(load)
    merged: TableSummary = summaries.treeReduce(merge_summaries, _depth(summaries.getNumPartitions()))
    return merged


def _depth(parts: int) -> int:
    """Levels of a tree in which few summaries meet at a time."""
    return max(2, parts.bit_length() // 2)
