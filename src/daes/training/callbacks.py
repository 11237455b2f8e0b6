"""Callbacks that send the metrics of a run, as they are recorded, to TensorBoard, MLflow or Weights & Biases.

Each class is a `RecordCallback` of `StreamTrainer` and `train_run`. Python's logging needs no callback: the logger
"daes.training" logs every record as INFO and every skipped batch as WARNING.
"""

from dataclasses import asdict
from math import isfinite
from os import PathLike
from typing import TYPE_CHECKING, Any

from daes.choices import check_choice
from daes.extras import require

if TYPE_CHECKING:
    from daes.training.trainer import StreamTrainer

Record = dict[str, float]


class TensorBoard:
    """Writes every record to a folder for `tensorboard --logdir FOLDER` (extra `tensorboard`).

    A run that is resumed with the same folder replaces what was written after its checkpoint.
    """

    def __init__(self, folder: str | PathLike[str] = "tensorboard") -> None:
        self.folder = folder
        require("tensorboard")
        self._writer: Any = None

    def __call__(self, trainer: "StreamTrainer", record: Record) -> None:
        step = int(record["rows"])
        if self._writer is None:
            make = require("torch.utils.tensorboard").SummaryWriter
            self._writer = make(str(self.folder), purge_step=step)
        for name, value in measures(record).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


class MLflow:
    """Logs every record to the active MLflow run, or to a new one (extra `mlflow`).

    Args:
        experiment: the experiment of a new run; None for MLflow's default.
    """

    def __init__(self, experiment: str | None = None) -> None:
        self._mlflow = require("mlflow")
        if experiment is not None:
            self._mlflow.set_experiment(experiment)
        self._described = False

    def __call__(self, trainer: "StreamTrainer", record: Record) -> None:
        if not self._described:
            self._mlflow.log_params(settings(trainer))
            self._described = True
        self._mlflow.log_metrics(measures(record), step=int(record["rows"]))


class WandB:
    """Logs every record to the active run of Weights & Biases, or to a new one (extra `wandb`).

    Args:
        project: the project of a new run; None for the default of the environment.
    """

    def __init__(self, project: str | None = None) -> None:
        wandb = require("wandb")
        self._run = wandb.run or wandb.init(project=project)
        self._described = False

    def __call__(self, trainer: "StreamTrainer", record: Record) -> None:
        if not self._described:
            self._run.config.update(settings(trainer))
            self._described = True
        self._run.log(measures(record), step=int(record["rows"]))


CALLBACKS: dict[str, type[TensorBoard | MLflow | WandB]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}
"""Name → class; each takes one argument: the folder, the experiment, the project."""


def make_callback(described: str) -> TensorBoard | MLflow | WandB:
    """A callback from `name` or `name:argument`, as given on the command line.

    >>> make_callback("neptune")
    Traceback (most recent call last):
    ValueError: a tracker must be one of tensorboard, mlflow, wandb, got 'neptune'
    """
    name, _, argument = described.partition(":")
    check_choice("a tracker", name, CALLBACKS)
    return CALLBACKS[name](argument) if argument else CALLBACKS[name]()


def measures(record: Record) -> Record:
    """The defined values of a record, with the speed in place of rows and seconds.

    >>> measures({"auc": 0.7, "ece": float("nan"), "rows": 3000.0, "seconds": 2.0})
    {'auc': 0.7, 'rows_per_second': 1500.0}
    """
    found = {name: value for name, value in record.items() if name not in ("rows", "seconds") and isfinite(value)}
    if record["seconds"] > 0:
        found["rows_per_second"] = record["rows"] / record["seconds"]
    return found


def settings(trainer: "StreamTrainer") -> dict[str, Any]:
    """The configuration of a run as a flat dict."""
    model = trainer.model.config
    return {**{name: model[name] for name in ("embedding", "backbone", "dim")}, **asdict(trainer.config)}
