"""Click-through-rate models that learn from a stream and know the distribution of its numerical features.

The main names are here, and loaded when they are first used: `import daes` by itself imports nothing heavy.

>>> import daes
>>> daes.Schema(label="click", numerical=("price",), categorical=("city",)).columns
('click', 'price', 'city')
"""

import logging
from typing import TYPE_CHECKING

from daes.lazy import lazy_names

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

_HOMES = {
    "daes.backbone": ("BACKBONES", "build_backbone"),
    "daes.classifier": ("StreamingClassifier",),
    "daes.distribution": ("ESTIMATORS", "JumpReservoir", "rank_context_fields"),
    "daes.embedding": ("DAES", "METHODS", "CategoricalEmbedding", "build_embedding"),
    "daes.model": ("CTRModel",),
    "daes.storage.checkpoint": ("CheckpointStore",),
    "daes.stream": ("DATASETS", "Batch", "Dataset", "Schema", "batch_from_table", "infer_schema"),
    "daes.training": ("StreamTrainer", "TrainConfig"),
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
