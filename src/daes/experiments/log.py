"""The result log: results by key, each appended to a file as soon as it is known, with arrays in files beside it."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import daes
from daes.extras import require
from daes.storage.durable import write_bytes
from daes.storage.lock import WriterLock
from daes.storage.run_folder import strict

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

    A result is a JSON object, optionally with named arrays; one with an `error` does not count as done. To be used as a
    context manager.
    """

    def __init__(self, folder: Path | None) -> None:
        self.results: dict[str, dict[str, Any]] = {}
        self._path = None if folder is None else folder / RESULTS
        self._arrays: dict[str, Arrays] = {}

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(self._path.with_name(LOCK))
            self._lock.acquire()
            if self._path.is_file():
                with self._path.open("rb+") as file:  # remove the incomplete line of a writer that was killed
                    file.truncate(file.read().rfind(b"\n") + 1)
                self.results = read_log(self._path)
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

    def _array_file(self, key: str) -> Path:
        assert self._path is not None
        return self._path.parent / ARRAYS / f"{key}.safetensors"


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
