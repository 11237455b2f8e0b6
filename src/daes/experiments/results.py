"""Results of trials in a file, one line each, as soon as they are there."""

import json
import os
from pathlib import Path
from typing import Self

from daes.experiments.trial import TrialResult
from daes.storage.lock import WriterLock

RESULTS = "results.jsonl"


class Results:
    """Results by key, in memory and, given a folder, in its results.jsonl; one writer at a time."""

    def __init__(self, folder: Path | None) -> None:
        self.results: dict[str, TrialResult] = {}
        self._folder = folder
        self._lock: WriterLock | None = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(self._folder / "lock")
            self._lock.acquire()
            path = self._folder / RESULTS
            if path.is_file():
                self.results = read_results(path)
                _end_line(path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def __contains__(self, key: str) -> bool:
        """Whether there is a result that is no error."""
        return key in self.results and self.results[key].error is None

    def add(self, result: TrialResult) -> None:
        """Keep a result, durably if there is a folder."""
        self.results[result.key] = result
        if self._folder is None:
            return
        line = json.dumps(result.to_dict(), allow_nan=False) + "\n"
        with (self._folder / RESULTS).open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def read_results(path: Path) -> dict[str, TrialResult]:
    """The results in a file, by key; the last line with a key counts. A line that was cut short is left out."""
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            result = TrialResult.from_dict(json.loads(line))
        except (ValueError, TypeError, KeyError):
            continue
        found[result.key] = result
    return found


def _end_line(path: Path) -> None:
    """A writer that was killed may have left half a line; the next one must not be glued to it."""
    with path.open("rb+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
