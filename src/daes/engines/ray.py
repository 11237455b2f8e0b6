"""Ray: work on parts as tasks, and summaries of Ray Datasets."""

import os
import pickle
import secrets
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np

from daes.distribution.summary import TableSummary
from daes.engines.base import EngineError, attempt, merge_good, result_of
from daes.engines.table import merge_summaries
from daes.experiments.workers import Task, WorkerExit
from daes.extras import require
from daes.stream.arrow import pa
from daes.stream.batch import numbers_from_table
from daes.stream.schema import column_kind

P = TypeVar("P")
T = TypeVar("T")

LEAST_CPUS = 3
"""The least number of CPUs that Ray is told: with fewer, the controller of Ray Train has none beside two workers."""


def start_ray(**options: Any) -> Any:
    """The `ray` package, connected to the cluster at RAY_ADDRESS if that is set, else to one on this machine."""
    ray = require("ray")
    if not ray.is_initialized():
        if os.environ.get("RAY_ADDRESS"):
            options.pop("num_cpus", None)  # the cluster decides
        else:
            options = {"num_cpus": max(LEAST_CPUS, os.cpu_count() or 1), "include_dashboard": False, **options}
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    return ray


@contextmanager
def quiet_ray() -> Iterator[None]:
    """A context in which Ray's messages go to standard error and its deprecation warnings are ignored."""
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class RayEngine:
    """Tasks on a Ray cluster. daes must be installed on its machines."""

    def __init__(self) -> None:
        self.ray = start_ray()

    @quiet_ray()
    def map_merge(self, work: Callable[[P], T], parts: Sequence[P], merge: Callable[[T, T], T]) -> T:
        run, join = self.ray.remote(attempt), self.ray.remote(_merge_copies)
        work, merge = self.ray.put(work), self.ray.put(merge)
        results = [run.remote(work, part) for part in parts]
        try:
            while len(results) > 1:
                pairs = [results[start : start + 2] for start in range(0, len(results), 2)]
                results = [join.remote(merge, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
            result: T = result_of(self.ray.get(results[0]))
        except self.ray.exceptions.RayError as error:
            raise EngineError(f"Ray could not do the work: {str(error).strip().splitlines()[-1]}") from error
        return result


class RayTasks:
    """Independent tasks on a Ray cluster, in place of `daes.experiments.workers.run_tasks`.

    A task whose process is lost is repeated, at most three times. Notes of tasks are not sent, and the numbers of
    processes and threads are those of Ray.

    Args:
        at_once: maximum number of tasks in progress; None for as many as Ray has CPUs for.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self.at_once = at_once

    def __call__(
        self, task: Task, shared: Any, items: Iterable[Any], *, enough: Callable[[], bool] = lambda: False, **_: Any
    ) -> Iterator[tuple[Any, Any]]:
        ray = start_ray()
        run, shared = ray.remote(_run_task), ray.put(shared)
        waiting = deque(items)
        working: dict[Any, Any] = {}
        with quiet_ray():
            while waiting or working:
                if enough():
                    waiting.clear()
                while waiting and (self.at_once is None or len(working) < self.at_once):
                    item = waiting.popleft()
                    working[run.remote(task, shared, item)] = item
                for done in ray.wait(list(working), timeout=1.0)[0] if working else ():
                    yield working.pop(done), _result(ray, done)


def summarize_dataset(dataset: Any, columns: Sequence[str] | None = None, *, size: int = 100_000) -> TableSummary:
    """The distributions of the numerical columns of a `ray.data.Dataset` in one pass.

    Blocks have no numbers to seed reservoirs with, so every call draws another sample.

    Args:
        dataset: the Ray Dataset.
        columns: names of columns of numbers; by default all of them.
        size: number of values in each column's reservoir.
    """
    schema = dataset.schema()
    if schema is None:
        raise ValueError("dataset must have a schema to summarize, got an empty dataset")
    if columns is None:
        types = zip(schema.names, schema.types, strict=True)
        columns = [name for name, of in types if column_kind(of) == "numerical" or pa.types.is_boolean(of)]
    names = tuple(columns)
    if not names:
        raise ValueError(f"dataset must have a column of numbers, got {', '.join(schema.names)}")

    def summarize(block: Any) -> dict[str, Any]:
        summary = TableSummary(names, size=size, part=secrets.randbits(128))
        summary.update(numbers_from_table(block, names))
        return {"summary": np.array([pickle.dumps(summary)], dtype=object)}

    merged: TableSummary | None = None
    summaries = dataset.select_columns(list(names)).map_batches(summarize, batch_size=None, batch_format="pyarrow")
    for row in summaries.iter_rows():
        found = pickle.loads(row["summary"])
        merged = found if merged is None else merge_summaries(merged, found)
    if merged is None:
        raise ValueError("dataset must have at least one block, got none")
    return merged


def _run_task(task: Task, shared: Any, item: Any) -> Any:
    import torch

    torch.set_num_threads(1)  # a task has one CPU
    return task(shared, item, lambda message: None)


def _result(ray: Any, done: Any) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        return WorkerExit(None, f"Ray could not do it: {str(error).strip().splitlines()[-1]}")


def _merge_copies(merge: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    return merge_good(merge, deepcopy(first), second)  # arrays from Ray's object store are read-only
