"""Runs the tasks whose results a log lacks, in this process or in several, until a deadline."""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from daes.experiments.log import ARRAYS, ResultLog
from daes.experiments.workers import RunTasks, Task, WorkerExit, run_tasks

Content = dict[str, Any]


def run_missing(
    task: Task,
    items: Mapping[str, Any],
    log: ResultLog,
    *,
    shared: Any = None,
    describe: Callable[[Any], Mapping[str, Any]],
    jobs: int = 1,
    threads: int = 1,
    on_note: Callable[[Any, Any], None] = lambda item, message: None,
    deadline: float | None = None,
    run: RunTasks | None = None,
) -> Iterator[tuple[Any, Content]]:
    """Pairs of an item and its result, as they are finished and logged, for the items whose key the log lacks.

    Args:
        task: `task(shared, item, note)` returns a result as plain values, except for its `predictions` (arrays by
            name). If it raises, the result is `error` (a sentence) and `traceback`, and the other items are still run.
        items: the items by key.
        log: where results are stored.
        shared: passed to every call.
        describe: further fields of an item's line in the log.
        jobs, threads: as for `run_tasks`.
        on_note: called with an item and a message of its task.
        deadline: the value of `time.monotonic` after which no further item is started.
        run: what runs the tasks instead of processes on this machine.
    """
    missing = {key: item for key, item in items.items() if key not in log}
    for (key, item), outcome in (run or run_tasks)(
        partial(_attempt, task),
        shared,
        missing.items(),
        jobs=min(jobs, len(missing)),
        threads=threads,
        on_note=lambda pair, message: on_note(pair[1], message),
        enough=partial(is_past, deadline),
    ):
        result: Content = {"error": str(outcome)} if isinstance(outcome, WorkerExit) else outcome
        arrays = result.pop(ARRAYS, None)
        log.add(key, {**describe(item), **result}, arrays)
        yield item, log.results[key]


def is_past(deadline: float | None) -> bool:
    """Whether `time.monotonic` has reached the deadline."""
    return deadline is not None and time.monotonic() >= deadline


def _attempt(task: Task, shared: Any, pair: tuple[str, Any], note: Callable[[Any], None]) -> Content:
    try:
        outcome: Content = task(shared, pair[1], note)
    except Exception as error:
        sentence = " ".join(str(error).split()) or "no message"
        return {"error": f"{type(error).__name__}: {sentence}", "traceback": traceback.format_exc()}
    return outcome
