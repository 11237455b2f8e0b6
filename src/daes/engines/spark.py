"""Spark: work on parts as RDDs, and summaries of DataFrames."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from daes.distribution.summary import TableSummary
from daes.engines.base import EngineError, attempt, merge_good, result_of
from daes.engines.table import merge_summaries
from daes.extras import require
from daes.stream.batch import numbers_from_table

P = TypeVar("P")
T = TypeVar("T")


class SparkEngine:
    """Spark's executors.

    Args:
        session: a SparkSession; by default the active one, or one from Spark's own configuration: `local[*]` if
            neither `spark-defaults.conf` nor PYSPARK_SUBMIT_ARGS names a master. Executors must have daes installed.
    """

    def __init__(self, session: Any = None) -> None:
        self.session = session or _start()
        context = self.session.sparkContext
        if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable  # Spark would take the first python3 in the PATH

    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        count, in_order = len(parts), partial(_merge_in_order, merge)
        results = self.session.sparkContext.parallelize(list(enumerate(parts)), count).mapValues(partial(attempt, work))
        while count > 1:
            count = (count + 1) // 2
            results = results.map(_with_neighbour).reduceByKey(in_order, count).mapValues(itemgetter(1))
        ((_, result),) = results.collect()
        found: T = result_of(result)
        return found


def _start() -> Any:
    builder = require("pyspark.sql").SparkSession.builder
    try:
        return builder.appName("daes").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except require("pyspark.errors").PySparkRuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(f"Spark could not be started (it needs Java 17 or later): {reason}") from error


def _with_neighbour(numbered: tuple[int, object]) -> tuple[int, tuple[int, object]]:
    """A numbered result, keyed by the number of its pair."""
    return numbered[0] // 2, numbered


def _merge_in_order(merge: Callable[[Any, Any], Any], one: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
    """The two results of a pair merged, the one with the lower number first."""
    first, second = sorted((one, other), key=itemgetter(0))
    return first[0], merge_good(merge, first[1], second[1])


def summarize_frame(
    frame: Any, columns: Sequence[str] | None = None, *, size: int = 100_000, seed: int = 0
) -> TableSummary:
    """The distributions of the numerical columns of a pyspark DataFrame in one pass.

    The same partitions and seed give the same summary, bit for bit.

    Args:
        frame: the DataFrame.
        columns: names of columns of numbers; by default all of them.
        size: number of values in each column's reservoir.
        seed: seed of the random numbers.
    """
    types = require("pyspark.sql.types")
    numbers = (types.NumericType, types.BooleanType)
    if columns is None:
        columns = [field.name for field in frame.schema.fields if isinstance(field.dataType, numbers)]
    names = tuple(columns)
    if not names:
        raise ValueError(f"frame must have a column of numbers, got {', '.join(frame.columns)}")

    def summarize(batches: Iterator[Any]) -> Iterator[Any]:
        number = require("pyspark").TaskContext.get().partitionId()
        summary = TableSummary(names, size=size, seed=seed, part=number)
        for batch in batches:
            summary.update(numbers_from_table(batch, names))
        yield require("pyarrow").RecordBatch.from_pydict({"summary": [pickle.dumps(summary)]})

    rows = frame.select(*names).mapInArrow(summarize, "summary binary").rdd
    summaries = rows.map(lambda row: pickle.loads(row.summary))
    depth = max(2, summaries.getNumPartitions().bit_length() // 2)  # so that few summaries are merged at a time
    merged: TableSummary = summaries.treeReduce(merge_summaries, depth)
    return merged
