"""A simulated ad stream whose true click probabilities are known."""

from daes.simulation.drift import LawDrift
from daes.simulation.features import Features
from daes.simulation.source import AdStream
from daes.simulation.truth import BayesMetrics, Signal, Truth

__all__ = ["AdStream", "BayesMetrics", "Features", "LawDrift", "Signal", "Truth"]
