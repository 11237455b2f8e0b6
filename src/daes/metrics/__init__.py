"""Metrics of a stream: AUC, LogLoss, Brier score, normalized entropy, calibration; each merges and resumes exactly."""

from daes.metrics.auc import AUC, WindowAUC, exact_auc
from daes.metrics.base import Metric, Rows, SumMetric, logit, sigmoid
from daes.metrics.stream import BrierScore, Calibration, LogLoss, NormalizedEntropy, Reliability, StreamMetrics

__all__ = [
    "AUC",
    "BrierScore",
    "Calibration",
    "LogLoss",
    "Metric",
    "NormalizedEntropy",
    "Reliability",
    "Rows",
    "StreamMetrics",
    "SumMetric",
    "WindowAUC",
    "exact_auc",
    "logit",
    "sigmoid",
]
