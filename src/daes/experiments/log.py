"""The result log: results by key, each appended to a file as soon as it is known, with arrays in files beside it.

It runs the tasks whose results it lacks, in this process or in several, until a deadline.
"""

import hashlib
import json
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import daes
from daes.experiments.workers import RunTasks, Task, WorkerExit, run_tasks
from daes.extras import require
from daes.storage.durable import write_bytes
from daes.storage.lock import WriterLock
from daes.storage.run_folder import RunFolder, strict

RESULTS = "results.jsonl"
ARRAYS = "predictions"
"""The folder beside the results with a safetensors file per result that has arrays."""
Arrays = dict[str, NDArray[Any]]
LOCK = "lock"


def result_key(settings: Any, data: str, code: str) -> str:
    """The key of a result: a hash of its settings and of the fingerprints of data and code.

    >>> result_key({"seed": 0}, "data", "code") == result_key({"seed": 1}, "data", "code")
    False
    """
    text = json.dumps([strict(settings), data, daes.__version__, code], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ResultLog:
    """Results by key, in memory and, given a folder, as lines of its results.jsonl; one writer at a time.

    A result is a JSON object, optionally with named arrays; one with an `error` does not count as done, and one whose
    file of arrays is damaged is not there. To be used as a context manager.
    """

    def __init__(self, folder: Path | None) -> None:
        self.results: dict[str, dict[str, Any]] = {}
        self._path = None if folder is None else folder / RESULTS
        self._arrays: dict[str, Arrays] = {}

    def __enter__(self) -> Self:
        if self._path is not None:
            if RunFolder(self._path.parent).is_run:
                raise ValueError(f"{self._path.parent} holds a training run: results need a folder of their own")
            folder = self._path.parent
            if found := next((path for path in (folder, *folder.parents) if path.is_file()), None):
                raise NotADirectoryError(f"results are kept in a folder; {found} is a file")
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(self._path.with_name(LOCK))
            self._lock.acquire()
            if self._path.is_file():
                with self._path.open("rb+") as file:  # remove the incomplete line of a writer that was killed
                    file.truncate(file.read().rfind(b"\n") + 1)
                self.results = read_log(self._path)
                self._leave_out_damaged()
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self._lock.release()

    def __contains__(self, key: str) -> bool:
        """Whether there is a result without an error."""
        return key in self.results and self.results[key].get("error") is None

    def add(self, key: str, content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Store a result and its arrays, durably if there is a folder."""
        result = self.results[key] = strict({**content, "key": key})
        if self._path is None:
            if arrays is not None:
                self._arrays[key] = dict(arrays)
            return
        if arrays is not None:  # written before the line, which marks the result as complete
            self._array_file(key).parent.mkdir(exist_ok=True)
            contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            write_bytes(self._array_file(key), require("safetensors.numpy").save(contiguous))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def arrays(self, key: str) -> Arrays | None:
        """The arrays of a result, read from their file if there is a folder; None where it has none."""
        if self._path is None:
            return self._arrays.get(key)
        path = self._array_file(key)
        if not path.is_file():
            return None
        found: Arrays = require("safetensors.numpy").load(path.read_bytes())
        return found

    def run_missing(
        self,
        task: Task,
        items: Mapping[str, Any],
        *,
        shared: Any = None,
        describe: Callable[[Any], Mapping[str, Any]],
        jobs: int = 1,
        threads: int = 1,
        on_note: Callable[[Any, Any], None] = lambda item, message: None,
        deadline: float | None = None,
        run: RunTasks | None = None,
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Pairs of an item and its result, as they are finished and logged, for the items whose key is not in the log.

        Args:
            task: `task(shared, item, note)` returns a result as plain values, except for its `predictions` (arrays by
                name). If it raises, the result is `error` (a sentence) and `traceback`, and the other items are still
                run.
            items: the items by key.
            shared: passed to every call.
            describe: further fields of an item's line in the log.
            jobs, threads: as for `run_tasks`.
            on_note: called with an item and a message of its task.
            deadline: the value of `time.monotonic` after which no further item is started.
            run: what runs the tasks instead of processes on this machine.
        """
        missing = {key: item for key, item in items.items() if key not in self}
        for (key, item), outcome in (run or run_tasks)(
            partial(_attempt, task),
            shared,
            missing.items(),
            jobs=min(jobs, len(missing)),
            threads=threads,
            on_note=lambda pair, message: on_note(pair[1], message),
            enough=partial(is_past, deadline),
        ):
            result: dict[str, Any] = {"error": str(outcome)} if isinstance(outcome, WorkerExit) else outcome
            arrays = result.pop(ARRAYS, None)
            self.add(key, {**describe(item), **result}, arrays)
            yield item, self.results[key]

    def _leave_out_damaged(self) -> None:
        """Leave out the results whose file of arrays is not whole, with a warning: they are computed again."""
        for key in list(self.results):
            path = self._array_file(key)
            if path.is_file():
                safetensors = require("safetensors")
                try:
                    with safetensors.safe_open(path, "np"):  # reads the header, and compares the size with it
                        pass
                except safetensors.SafetensorError as error:
                    warnings.warn(f"{path} is damaged ({error}): its result is computed again", stacklevel=3)
                    del self.results[key]

    def _array_file(self, key: str) -> Path:
        assert self._path is not None
        return self._path.parent / ARRAYS / f"{key}.safetensors"


def is_past(deadline: float | None) -> bool:
    """Whether `time.monotonic` has reached the deadline."""
    return deadline is not None and time.monotonic() >= deadline


def _attempt(task: Task, shared: Any, pair: tuple[str, Any], note: Callable[[Any], None]) -> Any:
    try:
        return task(shared, pair[1], note)
    except Exception as error:
        sentence = " ".join(str(error).split()) or "no message"
        return {"error": f"{type(error).__name__}: {sentence}", "traceback": traceback.format_exc()}


def read_log(path: Path) -> dict[str, dict[str, Any]]:
    """The results in a file by key; the last line with a key counts, and an incomplete line is skipped."""
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            content = json.loads(line)
            found[content["key"]] = content
        except (ValueError, TypeError, KeyError):
            continue
    return found
