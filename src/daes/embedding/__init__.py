"""Number → vector: DAES and every method it is compared with, and tables for categories."""

from daes.embedding.base import Context, MethodInfo, NotFittedError, NumericalEmbedding
from daes.embedding.categorical import CategoricalEmbedding, suggest_sizes
from daes.embedding.daes import DAES
from daes.embedding.ple import PLE
from daes.embedding.registry import METHODS, PRESETS, build_embedding

__all__ = [
    "DAES",
    "METHODS",
    "PLE",
    "PRESETS",
    "CategoricalEmbedding",
    "Context",
    "MethodInfo",
    "NotFittedError",
    "NumericalEmbedding",
    "build_embedding",
    "suggest_sizes",
]
