"""A result as a small JSON file: the findings with their data, settings, versions and command."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from daes.experiments.fingerprint import code_fingerprint
from daes.paper.data import without_folders
from daes.paper.experiment import Experiment, ExperimentSettings, Findings
from daes.storage.durable import write_text
from daes.storage.run_folder import plain
from daes.training.environment import environment

FORMAT = "daes.paper"


class NotAResultError(ValueError):
    """A file holds other JSON than a result of `daes paper`."""


@dataclass(frozen=True)
class ExperimentResult:
    """One experiment on one data set.

    `results` are the findings of the experiment; `seconds` is the wall time of the run, in total where it was resumed.
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
        """Name of its file without the ending, such as `overall.criteo.stream.tuned.rows5000`."""
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
        """The number of rows asked for, by --rows or, for simulated data, by `adstream:ROWS`."""
        data = self.data or {}
        size = data["source"].partition(":")[2] if data.get("simulated") else ""
        limits = [self.settings.get("rows"), int(size) if size else None]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def failures(self) -> list[str]:
        """What failed during the run, in sentences; the other findings are valid."""
        return list(self.results.get("failures", ()))

    @property
    def title(self) -> str:
        """Title of the data."""
        return str(self.results.get("where", "Simulated values") if self.data is None else self.data["title"])

    @property
    def where(self) -> str:
        """The data in words, with the number of rows."""
        rows = (self.data or {}).get("rows")
        return self.title + (f", {rows:,} rows" if rows else "")

    def save(self, folder: Path) -> Path:
        """Write `STEM.json` into the folder, completely or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.stem}.json"
        write_text(path, _dump({"format": FORMAT, **plain(asdict(self))}))
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; an error says what is wrong with the file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not whole, valid JSON: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise NotAResultError(f"{path} must be a result of `daes paper`, but is not")
        try:
            return cls(**{field.name: content[field.name] for field in fields(cls)})
        except KeyError as error:
            raise ValueError(f"{path} is an incomplete result of `daes paper`: it has no {error}") from error


def settings_of(experiment: Experiment, settings: ExperimentSettings) -> dict[str, Any]:
    """The settings that the experiment uses, as plain values."""
    chosen: dict[str, Any] = plain({name: getattr(settings, name) for name in experiment.uses})
    return chosen


def command_of(experiment: Experiment, settings: ExperimentSettings, data: str | None) -> str:
    """The command that produces such a result, without the folders of this machine.

    >>> from daes.paper import EXPERIMENTS
    >>> command_of(EXPERIMENTS["estimation"], ExperimentSettings(seeds=3), "criteo:/data/train.txt")
    'daes paper estimation --data criteo:train.txt --seeds 3'
    """
    words = ["daes", "paper", experiment.name]
    if data is not None:
        words += ["--data", without_folders(data)]
    defaults = settings_of(experiment, ExperimentSettings())
    for name, value in settings_of(experiment, settings).items():
        if value == defaults[name]:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(",".join(value) if isinstance(value, list) else str(value))
    return shlex.join(words)


def versions() -> dict[str, str]:
    """Versions of daes, Python and the packages that affect numbers; `code` is a hash of daes' sources."""
    made_with = environment()
    packages = {name: made_with["packages"].get(name) for name in ("numpy", "torch", "scipy")}
    found = {"daes": made_with["daes"], "code": code_fingerprint("paper"), "python": made_with["python"], **packages}
    return {name: version for name, version in found.items() if version is not None}


def _dump(content: Mapping[str, Any]) -> str:
    """JSON that is small and easy to compare: a line per entry of the top level and of the results."""
    lines = []
    for name, value in content.items():
        if name == "results" and value:
            inner = ",\n".join(f"  {json.dumps(key)}: {_compact(part)}" for key, part in value.items())
            lines.append(f'"results": {{\n{inner}\n}}')
        else:
            lines.append(f"{json.dumps(name)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)
