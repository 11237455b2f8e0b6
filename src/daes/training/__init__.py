"""One pass over a stream: scoring before training, metrics, checkpoints, the paper's protocol, comparisons."""

from daes.training.cell import Cell, CellData, CellResult, run_cell
from daes.training.checkpoint import CheckpointStore
from daes.training.compare import CellProgress, compare, run_cells
from daes.training.comparison import Comparison
from daes.training.config import TrainConfig
from daes.training.data import Data
from daes.training.folder import RunFolder
from daes.training.learner import BadBatch, Learner, TrainingError
from daes.training.metrics import StreamMetrics
from daes.training.monitor import Monitor
from daes.training.offline import OfflineConfig, OfflineResult, train_offline
from daes.training.run import Run, train_run
from daes.training.scoring import evaluate, load_trained, predict
from daes.training.significance import average_rank, t_test
from daes.training.trainer import Callback, StreamTrainer, TrainResult

__all__ = [
    "BadBatch",
    "Callback",
    "Cell",
    "CellData",
    "CellProgress",
    "CellResult",
    "CheckpointStore",
    "Comparison",
    "Data",
    "Learner",
    "Monitor",
    "OfflineConfig",
    "OfflineResult",
    "Run",
    "RunFolder",
    "StreamMetrics",
    "StreamTrainer",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "average_rank",
    "compare",
    "evaluate",
    "load_trained",
    "predict",
    "run_cell",
    "run_cells",
    "t_test",
    "train_offline",
    "train_run",
]
