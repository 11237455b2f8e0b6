"""Estimators of the distribution of a stream, drift statistics, and the choice of context fields."""

from collections.abc import Callable
from functools import partial

from daes.distribution.bank import EstimatorBank
from daes.distribution.base import DistributionEstimator
from daes.distribution.context import ContextRanking, rank_context_fields, smallest_cardinality
from daes.distribution.drift import kl_divergence, ks_statistic, psi
from daes.distribution.gk import GKSketch
from daes.distribution.jump import JumpReservoir
from daes.distribution.order_statistics import OrderStatistics
from daes.distribution.reservoir import Reservoir
from daes.distribution.sketches import KLLSketch, TDigestSketch
from daes.distribution.stream_drift import DriftProfile, drift_profile

ESTIMATORS: dict[str, Callable[..., DistributionEstimator]] = {
    "reservoir": Reservoir,
    "jump": JumpReservoir,
    "jump-paper": partial(JumpReservoir, skip="paper"),
    "order-statistics": OrderStatistics,
    "kll": KLLSketch,
    "tdigest": TDigestSketch,
    "gk": GKSketch,
}
"""All estimators by name."""

__all__ = [
    "ESTIMATORS",
    "ContextRanking",
    "DistributionEstimator",
    "DriftProfile",
    "EstimatorBank",
    "GKSketch",
    "JumpReservoir",
    "KLLSketch",
    "OrderStatistics",
    "Reservoir",
    "TDigestSketch",
    "drift_profile",
    "kl_divergence",
    "ks_statistic",
    "psi",
    "rank_context_fields",
    "smallest_cardinality",
]
