"""Number → vector: DAES and every method it is compared with, and tables for categories.

Modules of this package that register a method are found automatically.
"""

from daes.embedding.base import Context, NotFittedError, NumericalEmbedding
from daes.embedding.categorical import CategoricalEmbedding, suggest_sizes
from daes.embedding.daes import DAES
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.divided import DividedEmbedding
from daes.embedding.knots import FeatureKnots
from daes.embedding.ple import PLE
from daes.embedding.registry import METHODS, MethodEntry, build_embedding, register_method
from daes.registry import Reference, import_modules

import_modules(__name__, __path__)

__all__ = [
    "DAES",
    "METHODS",
    "PLE",
    "CategoricalEmbedding",
    "Context",
    "DividedEmbedding",
    "FeatureDistributions",
    "FeatureKnots",
    "MethodEntry",
    "NotFittedError",
    "NumericalEmbedding",
    "Reference",
    "build_embedding",
    "register_method",
    "suggest_sizes",
]
