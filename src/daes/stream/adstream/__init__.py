"""A simulated ad stream whose true click probabilities are known."""

from daes.stream.adstream.bayes import BayesMetrics
from daes.stream.adstream.drift import Drift
from daes.stream.adstream.features import Features
from daes.stream.adstream.source import AdStream
from daes.stream.adstream.truth import Signal, Truth

__all__ = ["AdStream", "BayesMetrics", "Drift", "Features", "Signal", "Truth"]
