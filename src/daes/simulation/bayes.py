"""The best that any model can score: AUC and LogLoss of the true probabilities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BayesMetrics:
    """Scores of the true click probabilities.

    Args:
        num_rows: rows scored.
        click_rate: clicks over rows.
        auc, logloss: against the labels that the stream drew. Compare a model on the same rows with these.
        expected_auc, expected_logloss: over all labels that could have been drawn, hence free of label noise: the
            probability that a click ranks above a non-click, and the mean entropy in nats.

    NaN where undefined: an AUC without both classes, anything without rows.
    """

    num_rows: int
    click_rate: float
    auc: float
    logloss: float
    expected_auc: float
    expected_logloss: float


def bayes_metrics(probability: NDArray[np.float64], label: NDArray[np.float32]) -> BayesMetrics:
    """Score true probabilities.

    E[AUC] is Σ_{i≠j} p_i (1 − p_j) [p_i > p_j] / Σ_{i≠j} p_i (1 − p_j), ties counting half: the expected number of
    pairs in the right order over the expected number of pairs.

    **Shape**: both (n,).

    >>> bayes_metrics(np.array([0.2, 0.8]), np.array([0, 1], dtype=np.float32)).auc
    1.0
    """
    if not len(probability):
        return BayesMetrics(0, *[float("nan")] * 5)
    _, group = np.unique(probability, return_inverse=True)
    clicks, others, expected_clicks, expected_others = (
        np.bincount(group, weights=weights).astype(np.float64)
        for weights in (label, 1 - label, probability, 1 - probability)
    )
    # Pairs of a row with itself do not count; they are ties, which count half.
    itself = float(np.sum(probability * (1 - probability)))
    clicked = label > 0
    loss = -np.log(np.where(clicked, probability, 1 - probability))
    entropy = -(probability * np.log(probability) + (1 - probability) * np.log1p(-probability))
    return BayesMetrics(
        num_rows=len(probability),
        click_rate=float(label.mean(dtype=np.float64)),
        auc=_auc(clicks, others),
        logloss=float(loss.mean()),
        expected_auc=_auc(expected_clicks, expected_others, itself),
        expected_logloss=float(entropy.mean()),
    )


def _auc(clicks: NDArray[np.float64], others: NDArray[np.float64], itself: float = 0.0) -> float:
    """AUC of groups in ascending order of their score, less the pairs of rows with themselves."""
    below = np.cumsum(others) - others
    pairs = float(clicks.sum() * others.sum()) - itself
    return (float(clicks @ (below + others / 2)) - itself / 2) / pairs if pairs > 0 else float("nan")
