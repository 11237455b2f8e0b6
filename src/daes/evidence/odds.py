"""Log odds from counts, and where to cut a column of numbers."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.distribution.base import inverted_cdf

NO_CUT = float(np.finfo(np.float32).max)
"""Stands for no cut point: no value lies above it."""


def log_odds(views: Tensor, clicks: Tensor, prior: Tensor, strength: float) -> Tensor:
    """The log odds of a cell relative to those of its prior, shrunk to it.

        z = log((c + a·p) / (n − c + a·(1 − p))) − log(p / (1 − p))

    with n views, c clicks, prior probability p and strength a: 0 for a cell never seen.

    >>> log_odds(torch.tensor([0.0, 1000.0]), torch.tensor([0.0, 500.0]), torch.tensor(0.2), 20.0)
    tensor([0.0000, 1.3628])
    """
    clicked = clicks + strength * prior
    passed = (views - clicks) + strength * (1 - prior)
    return torch.log(clicked) - torch.log(passed) - torch.logit(prior)


def confidence(views: Tensor) -> Tensor:
    """Confidence of a count: log(1 + n)/4 − 1, which is −1 for an id never seen and about 2 after 160,000 views."""
    return torch.log1p(views) / 4 - 1


def cut_points(values: NDArray[np.float32], bins: int) -> NDArray[np.float32]:
    """At most bins − 1 ascending cut points of finite values, padded with the largest number: their i/bins quantiles.

    A bin ends at its cut point, inclusively. A value that fills several quantiles gets a bin of its own, by a second
    cut just below it.

    >>> cut_points(np.array([0, 0, 0, 1, 2, 3], np.float32), 4)
    array([-1.e-45,  0.e+00,  2.e+00], dtype=float32)
    """
    cuts = np.full(bins - 1, NO_CUT, dtype=np.float32)
    if values.size:
        quantiles = inverted_cdf(np.sort(values), np.arange(1, bins) / bins)
        distinct, times = np.unique(quantiles, return_counts=True)
        repeated = distinct[(times > 1) & (distinct > -NO_CUT)]  # nothing lies below the smallest number
        below = np.nextafter(repeated, np.float32(-np.inf), dtype=np.float32)
        found = np.unique(np.concatenate([distinct, below]))
        cuts[: found.size] = found
    return cuts
