"""The folder of a run: paths and JSON files; docs/run-folder.md describes the contents.

A run that replaces another is trained in the subfolder `replacement` and takes the place of the old run when it is
complete; until then the old run does not change.
"""

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daes.storage.durable import remove_temporary_files, sync_directory, target_of, write_text
from daes.storage.lock import LockHeldError, WriterLock

FORMAT = "daes.run"
VERSION = 1

_FILES = (
    "config.json",
    "metrics.json",
    "history.json",
    "monitor.json",
    "progress.json",
    "importance.json",
    "bad_rows.csv",
    "dead_letters.jsonl",
    "report.html",
)
_FOLDERS = ("checkpoints", "model", "pending")
_LOCK = ("lock", "lock.holder")


class RunFolder:
    """The files of a run of `daes train`.

    >>> import tempfile
    >>> run = RunFolder(Path(tempfile.mkdtemp()) / "run")
    >>> run.exists, run.write("metrics", {"rows": 3, "metrics": {"auc": math.nan}})
    (False, None)
    >>> run.read("metrics")
    {'rows': 3, 'metrics': {'auc': None}}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.model = self.path / "model"
        """The trained model, as `CTRModel.save_pretrained` writes it."""
        self.checkpoints = self.path / "checkpoints"
        """The folder of the `CheckpointStore`."""
        self.bad_rows = self.path / "bad_rows.csv"
        """The rows that were skipped, if any: file, row, reason."""
        self.dead_letters = self.path / "dead_letters.jsonl"
        """The messages of a broker that could not be read, if any, as JSON lines."""
        self.pending = self.path / "pending"
        """Rows that wait for their labels and do not fit in memory; the checkpoints refer to them."""
        self.report = self.path / "report.html"
        """The HTML report."""

    @property
    def replacement(self) -> "RunFolder":
        """The folder of the run that is to replace this one."""
        return RunFolder(self.path / "replacement")

    @property
    def exists(self) -> bool:
        """Whether there is anything at the path, apart from a lock and temporary files of a killed run."""
        if not self.path.is_dir():
            return self.path.exists()
        return any(entry.name not in _LOCK and target_of(entry.name) not in _FILES for entry in self.path.iterdir())

    @property
    def is_run(self) -> bool:
        """Whether a run was started here, according to config.json."""
        path = self.path / "config.json"
        return path.is_file() and read_json(path).get("format") == FORMAT

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, which is created if necessary, against other writers; `LockHeldError` if there is one."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(self.path / _LOCK[0])
        try:
            lock.acquire()
        except LockHeldError as error:
            raise LockHeldError(f"{self.path} is in use: {error}") from None
        try:
            # With the lock held there is no other writer, so these were left by one that was killed.
            remove_temporary_files(self.path, _FILES.__contains__)
            self._finish_replacing()
            yield
        finally:
            lock.release()

    def read(self, name: str) -> dict[str, Any]:
        """Read `config`, `metrics`, `history`, `monitor`, `progress` or `importance`."""
        path = self.path / f"{name}.json"
        if not path.is_file():
            raise FileNotFoundError(f"no run in {self.path}: it has no {path.name}")
        return read_json(path)

    def read_config(self, *parts: str) -> dict[str, Any]:
        """The configuration; an error if this version cannot read it or one of the parts is missing."""
        config = self.read("config")
        if config.get("format") != FORMAT or config.get("version") != VERSION:
            raise ValueError(
                f'{self.path / "config.json"} must have "format": "{FORMAT}" and "version": {VERSION}, '
                f"got {config.get('format')!r} and {config.get('version')!r}"
            )
        for part in parts:
            if not isinstance(config.get(part), dict):
                raise ValueError(
                    f"{self.path / 'config.json'} must have an object called {part!r}, got {config.get(part)!r}"
                )
        return config

    def data_options(self) -> dict[str, Any]:
        """How the run has read its data: options of `Dataset.open`; empty if this is not the folder of a run."""
        if not self.is_run:
            return {}
        options = self.read_config("data")["data"].get("options")
        if not isinstance(options, dict):
            raise ValueError(
                f"{self.path / 'config.json'} must have an object called 'options' in 'data', got {options!r}"
            )
        return options

    def saved_step(self) -> int:
        """The step of the saved model: metrics.json, which is written after the model, has it; 0 without one."""
        try:
            found: Any = self.read("metrics").get("batches")
        except (OSError, ValueError):
            return 0
        return found if isinstance(found, int) else 0

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `config`, `metrics`, `history`, `monitor`, `progress` or `importance`."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(
            self.path / f"{name}.json", content, indent=None if name in ("history", "monitor", "progress") else 2
        )

    def recover(self) -> None:
        """Finish a `replace` in which the process was killed, if there was one."""
        if any(path.is_dir() for path in self._replacing):
            with self.locked():
                pass

    def replace(self) -> None:
        """Replace the run by the finished replacement; files that do not belong to a run are not changed.

        If the process is killed, nothing of either run is lost: `recover` and `locked` finish the replacement.
        """
        self.replacement.path.rename(self._replacing[0])
        self._finish_replacing()

    @property
    def _replacing(self) -> tuple[Path, Path, Path]:
        """Folders that exist only during `replace`: the new run before and while it is moved, and the old run."""
        return self.path / "replacement.complete", self.path / "replacement.moving", self.path / "replaced"

    def _finish_replacing(self) -> None:
        # The folders present determine the next step, so each step can be repeated.
        complete, moving, old = self._replacing
        if complete.is_dir():
            old.mkdir(exist_ok=True)
            _move(self.path, old)
            complete.rename(moving)
        if moving.is_dir():
            _move(moving, self.path)
            sync_directory(self.path)
            shutil.rmtree(moving)
        if old.is_dir():
            shutil.rmtree(old)


def _move(source: Path, target: Path) -> None:
    """Move the files and folders of a run that exist."""
    for name in (*_FILES, *_FOLDERS):
        if (source / name).exists():
            (source / name).rename(target / name)


def write_json(path: Path, content: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write strict JSON (null for NaN and infinities) durably."""
    write_text(path, json.dumps(strict(content), allow_nan=False, ensure_ascii=False, indent=indent) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that contains one JSON object."""
    return parse_json(path.read_bytes(), path)


def parse_json(text: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in the content of a file; `path` is for errors."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not whole, valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def strict(content: Any, digits: int | None = None) -> Any:
    """Plain values as in strict JSON: None for NaN and infinities, lists for tuples and arrays.

    Args:
        digits: significant digits of floats; None for all of them.

    >>> strict({"auc": math.nan, "widths": (128, 32)})
    {'auc': None, 'widths': [128, 32]}
    """
    if hasattr(content, "tolist"):
        return strict(content.tolist(), digits)
    if isinstance(content, float):
        if not math.isfinite(content):
            return None
        return content if digits is None else float(f"{content:.{digits}g}")
    if isinstance(content, Mapping):
        return {str(key): strict(value, digits) for key, value in content.items()}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [strict(value, digits) for value in content]
    return content


def plain(content: Any) -> Any:
    """The same with six significant digits, enough for results and figures.

    >>> import numpy as np
    >>> plain({"kl": np.float64(0.123456789), "auc": float("nan"), "sizes": np.array([1, 2])})
    {'kl': 0.123457, 'auc': None, 'sizes': [1, 2]}
    """
    return strict(content, 6)
