"""One pass over a stream, scoring before training; the paper's offline protocol; runs in folders."""

from daes.training.config import TrainConfig
from daes.training.data import Data
from daes.training.monitor import Monitor
from daes.training.offline import OfflineConfig, OfflineResult, train_offline
from daes.training.run import Run, train_run
from daes.training.scoring import evaluate, load_trained, predict
from daes.training.step import BadBatch, TrainingError, TrainingStep
from daes.training.trainer import Callback, StreamTrainer, TrainResult

__all__ = [
    "BadBatch",
    "Callback",
    "Data",
    "Monitor",
    "OfflineConfig",
    "OfflineResult",
    "Run",
    "StreamTrainer",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "TrainingStep",
    "evaluate",
    "load_trained",
    "predict",
    "train_offline",
    "train_run",
]
