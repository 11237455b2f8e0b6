"""The folder of a run: where each file is; docs/run-folder.md describes the contents."""

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from daes.storage.durable import clear_leftovers, write_text

FORMAT = "daes.run"
VERSION = 1

_FILES = ("config.json", "metrics.json", "history.json", "monitor.json", "report.html")
_FOLDERS = ("checkpoints", "model")


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

    @property
    def model(self) -> Path:
        """The trained model, as `CTRModel.save_pretrained` writes it."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """The folder of the `CheckpointStore`."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.path / "report.html"

    @property
    def exists(self) -> bool:
        """Whether there is anything at the path."""
        return self.path.is_file() or (self.path.is_dir() and any(self.path.iterdir()))

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "config.json").is_file()

    def read(self, name: str) -> dict[str, Any]:
        """The content of `config`, `metrics`, `history` or `monitor`; an error says what is wrong with the file."""
        path = self.path / f"{name}.json"
        if not path.is_file():
            raise FileNotFoundError(f"no run in {self.path}: it has no {path.name}")
        return read_json(path)

    def read_config(self) -> dict[str, Any]:
        """The configuration; an error if this version cannot read it."""
        config = self.read("config")
        if config.get("format") != FORMAT or config.get("version") != VERSION:
            raise ValueError(
                f'{self.path / "config.json"} must have "format": "{FORMAT}" and "version": {VERSION}, '
                f"got {config.get('format')!r} and {config.get('version')!r}"
            )
        return config

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `config`, `metrics`, `history` or `monitor`."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / f"{name}.json", content, indent=None if name in ("history", "monitor") else 2)

    def clear(self) -> None:
        """Remove what a run has written, and nothing else; a folder without a run is an error."""
        clear_leftovers(self.path, _FILES.__contains__)
        if not self.exists:
            return
        if not self.is_run:
            raise ValueError(f"{self.path} holds something other than a run and is not overwritten")
        for folder in _FOLDERS:
            if (self.path / folder).is_dir():
                shutil.rmtree(self.path / folder)
        for file in _FILES:
            (self.path / file).unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write strict JSON (NaN and infinities become null) durably: the file has the old content or the new one."""
    write_text(path, json.dumps(strict(content), allow_nan=False, ensure_ascii=False, indent=indent) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not whole, valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def strict(content: Any) -> Any:
    """Plain values as strict JSON represents them: null for NaN and infinities, lists for tuples.

    >>> strict({"auc": math.nan, "widths": (128, 32)})
    {'auc': None, 'widths': [128, 32]}
    """
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: strict(value) for key, value in content.items()}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [strict(value) for value in content]
    return content
