"""The models in a folder that training writes to: which is the newest, and how to read it."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from daes.storage.run_folder import RunFolder, read_json
from daes.storage.saved_model import CONFIG
from daes.stream.schema import Schema
from daes.training.parent import read_schema


@dataclass(frozen=True)
class ModelVersion:
    """A model in a folder, known without reading it.

    Args:
        path: the file of a checkpoint, or the folder of a saved model.
        step: the step of a checkpoint; None for a saved model.
        modified: when it was written, in nanoseconds since 1970.
    """

    path: Path
    step: int | None
    modified: int

    @property
    def name(self) -> str:
        """The name of the version in answers and logs."""
        return "model" if self.step is None else f"step {self.step}"

    @property
    def written(self) -> datetime:
        """When it was written, UTC."""
        return datetime.fromtimestamp(self.modified / 1e9, UTC)


@dataclass(frozen=True)
class LoadedModel:
    """A model in eval mode, as it was saved.

    Args:
        model: the model.
        version: where it was read from.
        rows: the number of rows it has learned from; None if the folder does not say.
        sample: values of its numerical features (N, q) that the run has kept because the model itself keeps none.
        missing: `missing` and `missing_categories` of `CsvSource`, if the run was told them.
    """

    model: CTRModel
    version: ModelVersion
    rows: int | None = None
    sample: NDArray[np.float64] | None = None
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)


class ModelFolder:
    """A folder of `daes train`, while it trains and afterwards, or of `CTRModel.save_pretrained`. It is only read.

    A run has checkpoints while it trains and a saved model at the end. A resumed run has checkpoints of later steps
    than its saved model's; times of files say nothing in a copy of a run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        if not self.path.is_dir():
            raise FileNotFoundError(f"no run and no saved model: there is no folder {self.path}")
        self._run = RunFolder(self.path)
        self._store = CheckpointStore(self._run.checkpoints)

    def schema(self) -> Schema:
        """The columns, which are known before there is a model."""
        config = read_json(self.path / CONFIG) if (self.path / CONFIG).is_file() else {}
        if not isinstance(config.get("schema"), dict):
            raise FileNotFoundError(f"no run and no saved model in {self.path}: it has no {CONFIG} with a schema")
        return read_schema(config)

    def newest(self) -> ModelVersion | None:
        """The model of the latest step; None while there is none."""
        if not self._run.is_run:
            return _saved(self.path)
        saved, steps = _saved(self._run.model), self._store.steps()
        if steps and (saved is None or steps[-1] > self._run.saved_step()):
            return self._checkpoint(steps[-1])
        return saved

    def load(self, version: ModelVersion) -> LoadedModel:
        """Read a model, or raise an error."""
        if version.step is None:
            model = CTRModel.from_pretrained(version.path)
            return LoadedModel(model, version, self._rows(), self._quantiles(model), self._missing())
        checkpoint = self._store.load(version.step)
        assert checkpoint is not None
        model = CTRModel(self.schema(), **self._run.read_config("model")["model"])
        with checkpoint.in_use():
            model.load_state_dict(checkpoint.state["step"]["model"])
            sample = _monitored(checkpoint.state["extra"].get("monitor"))
            return LoadedModel(model.eval(), version, checkpoint.state["rows"], sample, self._missing())

    def load_newest(self) -> LoadedModel:
        """The newest model that can be read: if a checkpoint is damaged, the one before, with a warning."""
        version = self.newest()
        if version is None:
            raise FileNotFoundError(f"{self.path} has neither a checkpoint nor a saved model yet")
        while True:
            try:
                return self.load(version)
            except CheckpointError as error:
                older = [step for step in self._store.steps() if step < (version.step or 0)]
                before = self._checkpoint(older[-1]) if older else _saved(self._run.model)
                if before is None:
                    raise
                warnings.warn(f"{error}; {before.name} is used", CheckpointWarning, stacklevel=2)
                version = before

    def _checkpoint(self, step: int) -> ModelVersion | None:
        path = self._store.path(step)
        return _version(path, path, step)

    def _missing(self) -> dict[str, Sequence[str]]:
        options = self._run.data_options()
        return {name: options[name] for name in ("missing", "missing_categories") if name in options}

    def _rows(self) -> int | None:
        try:
            rows: Any = self._run.read("metrics").get("rows")
        except (OSError, ValueError):
            return None
        return rows if isinstance(rows, int) else None

    def _quantiles(self, model: CTRModel) -> NDArray[np.float64] | None:
        """The quantiles in monitor.json, for a model that keeps no distributions itself."""
        if model.numerical is None or model.numerical.distributions is not None:
            return None
        try:
            features = self._run.read("monitor")["quantiles"]["features"]
            columns = [features[name][-1] for name in model.schema.numerical]
            return np.array(columns, dtype=np.float64).T
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None


def _monitored(state: Any) -> NDArray[np.float64] | None:
    """The sample of feature values that a checkpoint's monitor keeps if the model keeps none."""
    values = None if state is None else state["values"]
    if values is None:
        return None
    slots, filled = np.asarray(values["slots"], dtype=np.float64)[:, :-1].T, np.asarray(values["count"])
    return np.where(np.arange(len(slots))[:, None] < filled, slots, np.nan)


def _saved(folder: Path) -> ModelVersion | None:
    return _version(folder / CONFIG, folder, None)


def _version(file: Path, path: Path, step: int | None) -> ModelVersion | None:
    try:
        return ModelVersion(path, step, file.stat().st_mtime_ns)
    except OSError:  # a writer has just removed it
        return None
