"""Training: one step, one pass over a stream, the paper's offline protocol, and runs in folders.

The names are loaded when they are first used: the configuration alone does not need torch.
"""

from typing import TYPE_CHECKING

from daes.lazy import lazy_names

if TYPE_CHECKING:
    from daes.training.config import TrainConfig
    from daes.training.importance import ColumnImportance, Importance, RecentRows, feature_importance
    from daes.training.monitor import Monitor
    from daes.training.offline import OfflineConfig, OfflineResult, train_offline
    from daes.training.run import RunExistsError, TrainedRun, train_run
    from daes.training.scoring import evaluate, load_trained, predict
    from daes.training.step import BadBatch, TrainingError, TrainingStep
    from daes.training.trainer import BatchCallback, RecordCallback, StreamTrainer, TrainResult

__all__ = [
    "BadBatch",
    "BatchCallback",
    "ColumnImportance",
    "Importance",
    "Monitor",
    "OfflineConfig",
    "OfflineResult",
    "RecentRows",
    "RecordCallback",
    "RunExistsError",
    "StreamTrainer",
    "TrainConfig",
    "TrainResult",
    "TrainedRun",
    "TrainingError",
    "TrainingStep",
    "evaluate",
    "feature_importance",
    "load_trained",
    "predict",
    "train_offline",
    "train_run",
]

_HOMES = {
    "daes.training.config": ("TrainConfig",),
    "daes.training.importance": ("ColumnImportance", "Importance", "RecentRows", "feature_importance"),
    "daes.training.monitor": ("Monitor",),
    "daes.training.offline": ("OfflineConfig", "OfflineResult", "train_offline"),
    "daes.training.run": ("RunExistsError", "TrainedRun", "train_run"),
    "daes.training.scoring": ("evaluate", "load_trained", "predict"),
    "daes.training.step": ("BadBatch", "TrainingError", "TrainingStep"),
    "daes.training.trainer": ("BatchCallback", "RecordCallback", "StreamTrainer", "TrainResult"),
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
