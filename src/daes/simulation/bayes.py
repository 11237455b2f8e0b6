"""The best that any model can score: AUC and LogLoss of the true probabilities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BayesMetrics:
    """Scores of the true click probabilities against the labels that the stream drew.

    Compare a model on the same rows with these. NaN where undefined: an AUC without both classes, both without rows.
    """

    auc: float
    logloss: float


def bayes_metrics(probability: NDArray[np.float64], label: NDArray[np.float32]) -> BayesMetrics:
    """Score true probabilities. **Shape**: both (n,).

    >>> bayes_metrics(np.array([0.2, 0.8]), np.array([0, 1], dtype=np.float32)).auc
    1.0
    """
    if not len(probability):
        return BayesMetrics(auc=float("nan"), logloss=float("nan"))
    _, group = np.unique(probability, return_inverse=True)
    clicks, others = (np.bincount(group, weights=weights) for weights in (label, 1 - label))
    below = np.cumsum(others) - others  # non-clicks of a lower probability; those of the same count half
    pairs = float(clicks.sum() * others.sum())
    loss = -np.log(np.where(label > 0, probability, 1 - probability))
    return BayesMetrics(
        auc=float(clicks @ (below + others / 2)) / pairs if pairs > 0 else float("nan"), logloss=float(loss.mean())
    )
