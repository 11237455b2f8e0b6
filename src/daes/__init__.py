"""Click-through-rate models that learn from a stream and know the distribution of its numerical features.

The main names are here, and loaded when they are first used: `import daes` by itself imports nothing heavy.

>>> import daes
>>> daes.Schema(label="click", numerical=("price",), categorical=("city",)).columns
('click', 'price', 'city')
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daes.backbone import BACKBONES, build_backbone
    from daes.classifier import StreamingClassifier
    from daes.distribution import ESTIMATORS, JumpReservoir, rank_context_fields
    from daes.embedding import DAES, METHODS, CategoricalEmbedding, build_embedding
    from daes.model import CTRModel
    from daes.storage.checkpoint import CheckpointStore
    from daes.stream import DATASETS, Batch, Dataset, Schema, batch_from_table, infer_schema
    from daes.training import StreamTrainer, TrainConfig

__version__ = "0.1.0"

logging.getLogger("daes").addHandler(logging.NullHandler())  # what is logged is shown where the program asks for it

_NAMES = {
    "daes.backbone": ("BACKBONES", "build_backbone"),
    "daes.classifier": ("StreamingClassifier",),
    "daes.distribution": ("ESTIMATORS", "JumpReservoir", "rank_context_fields"),
    "daes.embedding": ("DAES", "METHODS", "CategoricalEmbedding", "build_embedding"),
    "daes.model": ("CTRModel",),
    "daes.storage.checkpoint": ("CheckpointStore",),
    "daes.stream": ("DATASETS", "Batch", "Dataset", "Schema", "batch_from_table", "infer_schema"),
    "daes.training": ("StreamTrainer", "TrainConfig"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BACKBONES",
    "DAES",
    "DATASETS",
    "ESTIMATORS",
    "METHODS",
    "Batch",
    "CTRModel",
    "CategoricalEmbedding",
    "CheckpointStore",
    "Dataset",
    "JumpReservoir",
    "Schema",
    "StreamTrainer",
    "StreamingClassifier",
    "TrainConfig",
    "__version__",
    "batch_from_table",
    "build_backbone",
    "build_embedding",
    "infer_schema",
    "rank_context_fields",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'daes' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
