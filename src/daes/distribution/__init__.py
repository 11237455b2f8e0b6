"""What a feature's values look like: estimators of a stream's distribution, drift, and choice of context."""

from daes.distribution.bank import EstimatorBank, ReservoirBank
from daes.distribution.base import DistributionEstimator
from daes.distribution.jump import JumpReservoir
from daes.distribution.reservoir import Reservoir
from daes.distribution.state import load_state, save_state

__all__ = [
    "DistributionEstimator",
    "EstimatorBank",
    "JumpReservoir",
    "Reservoir",
    "ReservoirBank",
    "load_state",
    "save_state",
]
