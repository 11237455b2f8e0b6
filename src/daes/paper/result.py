"""A result as a small JSON file: what was found, on what, how, with which versions, by which command."""

import json
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np

import daes
from daes.experiments.fingerprint import code_fingerprint
from daes.paper.data import without_folders
from daes.paper.experiment import Experiment, ExperimentSettings, Findings
from daes.storage.durable import write_text

FORMAT = "daes.paper"
DIGITS = 6
"""Significant digits that a number keeps in a result."""


@dataclass(frozen=True)
class ExperimentResult:
    """One experiment on one data set.

    `results` is what the experiment found; `settings` holds what was asked for; `seconds` is the wall time of the run,
    of all runs together where it was resumed.
    """

    experiment: str
    data: dict[str, Any] | None
    settings: dict[str, Any]
    command: str
    versions: dict[str, str]
    seconds: float
    results: Findings

    @property
    def stem(self) -> str:
        """Its file's name without the ending, as `overall.criteo.stream`, or `overall.criteo.stream.tuned.rows5000`."""
        parts = [
            self.experiment,
            None if self.data is None else self.data["name"],
            self.settings.get("protocol"),
            "default-recipe" if self.settings.get("recipe") == "default" else None,
            "tuned" if self.settings.get("tune") else None,
            None if self._limit is None else f"rows{self._limit}",
        ]
        return ".".join(part for part in parts if part)

    @property
    def _limit(self) -> int | None:
        """The rows that were asked for, of any data by --rows, of simulated ones also by `adstream:ROWS`."""
        data = self.data or {}
        size = data["source"].partition(":")[2] if data.get("simulated") else ""
        limits = [self.settings.get("rows"), int(size) if size else None]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def failures(self) -> list[str]:
        """What failed while it was made, in sentences; the rest of it holds."""
        return list(self.results.get("failures", ()))

    @property
    def title(self) -> str:
        """What the data are called."""
        return str(self.results.get("where", "Simulated values") if self.data is None else self.data["title"])

    @property
    def where(self) -> str:
        """The data in words, with their number."""
        rows = (self.data or {}).get("rows")
        return self.title + (f", {rows:,} rows" if rows else "")

    def save(self, folder: Path) -> Path:
        """Write `STEM.json` into the folder, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.stem}.json"
        write_text(path, self._text())
        return path

    def as_saved(self) -> Self:
        """What `load` would read from the file: what is described and drawn is what the file says."""
        return self._from(json.loads(self._text()), self.stem)

    def _text(self) -> str:
        return _dump({"format": FORMAT, **plain(asdict(self))})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; an error says what is wrong with the file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not whole, valid JSON: {error}") from error
        return cls._from(content, str(path))

    @classmethod
    def _from(cls, content: Any, path: str) -> Self:
        names = [field.name for field in fields(cls)]
        if not isinstance(content, dict) or content.get("format") != FORMAT or not set(names) <= content.keys():
            raise ValueError(f"{path} must be a result of `daes paper`; it is none")
        return cls(**{name: content[name] for name in names})


def is_result(path: Path) -> bool:
    """Whether a file is a result of `daes paper`, or a broken one, and not other JSON that lies beside them."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return True
    return isinstance(content, dict) and content.get("format") == FORMAT


def settings_of(experiment: Experiment, settings: ExperimentSettings) -> dict[str, Any]:
    """The settings that matter to the experiment, as plain values."""
    chosen: dict[str, Any] = plain({name: getattr(settings, name) for name in experiment.uses})
    return chosen


def command_of(experiment: Experiment, settings: ExperimentSettings, data: str | None) -> str:
    """The command that makes such a result; the folders of this machine are left out.

    >>> from daes.paper import EXPERIMENTS
    >>> command_of(EXPERIMENTS["estimation"], ExperimentSettings(seeds=3), "criteo:/data/train.txt")
    'daes paper estimation --data criteo:train.txt --seeds 3'
    """
    words = ["daes", "paper", experiment.name]
    if data is not None:
        words += ["--data", without_folders(data)]
    given, usual = settings_of(experiment, settings), settings_of(experiment, ExperimentSettings())
    for name, value in given.items():
        if value == usual[name]:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(",".join(value) if isinstance(value, list) else str(value))
    return shlex.join(words)


def versions() -> dict[str, str]:
    """Of daes, Python and the packages that numbers depend on; `code` is a hash of daes' sources."""
    found = {"daes": daes.__version__, "code": code_fingerprint("paper"), "python": platform.python_version()}
    for name in ("numpy", "torch", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def plain(content: Any) -> Any:
    """Plain values as strict JSON has them: `DIGITS` significant digits, null for NaN and infinities, lists for arrays.

    >>> plain({"kl": np.float64(0.123456789), "auc": float("nan"), "sizes": np.array([1, 2])})
    {'kl': 0.123457, 'auc': None, 'sizes': [1, 2]}
    """
    if isinstance(content, np.ndarray):
        return plain(content.tolist())
    if isinstance(content, np.generic):
        return plain(content.item())
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}") if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [plain(value) for value in content]
    return content


def _dump(content: Mapping[str, Any]) -> str:
    """JSON that is both small and fit for a diff: a line for each entry of the top, and of the results."""
    lines = []
    for name, value in content.items():
        if name == "results" and value:
            inner = ",\n".join(f"  {json.dumps(key)}: {_compact(part)}" for key, part in value.items())
            lines.append(f'"results": {{\n{inner}\n}}')
        else:
            lines.append(f"{json.dumps(name)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(", ", ": "))
