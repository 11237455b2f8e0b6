"""Is one model better than another on these rows? Tests in which the rows are random, not the seeds.

- DeLong's test of two AUCs on the same rows, by midranks, O(n log n).
- A bootstrap over blocks of consecutive rows, which keeps what neighbouring rows have in common: bursts, hours, drift.

Several seeds of a method are tested by their mean: the mean of their AUCs is a statistic of the rows, as each AUC is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.experiments.predictions import Predictions
from daes.extras import require
from daes.metrics.base import check_rows

Floats = NDArray[np.float64]
BLOCKS = 64
"""Blocks of consecutive rows that the bootstrap draws from."""
REPLICATES = 9_999
INTERVAL = 0.95
"""The share of replicates in the interval of a difference."""


@dataclass(frozen=True)
class RowTest:
    """By how much one model differs from another in a measure, and whether that may be chance.

    Args:
        difference: the first minus the second.
        low, high: interval of the difference that contains 95 % of the bootstrap's replicates.
        bootstrap: two-tailed p-value of the block bootstrap.
        delong: two-tailed p-value of DeLong's test; None for a measure other than AUC.
    """

    difference: float
    low: float
    high: float
    bootstrap: float
    delong: float | None = None

    @property
    def p_value(self) -> float:
        """The larger of both: a difference is significant only if both tests say so."""
        return self.bootstrap if self.delong is None else max(self.bootstrap, self.delong)


@dataclass(frozen=True)
class RowStatistics:
    """What the tests need to know of a model on n rows in K blocks.

    **Shape.** `placements` (n,): for a click the share of the non-clicks with a lower score, for a non-click the share
    of the clicks with a higher score, ties counting one half. `wins` (K, K): the weight of the pairs of a click in
    block b and a non-click in block c in which the click scores higher. `clicks`, `others`, `losses` (K,): total weight
    of each class, and summed losses. `labels`, `weights` (n,).
    """

    labels: NDArray[np.bool_]
    weights: Floats
    placements: Floats
    wins: Floats
    clicks: Floats
    others: Floats
    losses: Floats

    @classmethod
    def of(cls, seeds: Sequence[Predictions], blocks: int = BLOCKS) -> "RowStatistics":
        """The mean over the seeds; each must have a score for every row."""
        labels, first_weights = seeds[0].labels, seeds[0].weights
        weights = np.ones(labels.size) if first_weights is None else first_weights.astype(np.float64)
        block = np.arange(labels.size) * blocks // max(labels.size, 1)
        placements, wins, losses = np.zeros(labels.size), np.zeros((blocks, blocks)), np.zeros(blocks)
        for one in seeds:
            logits = one.logits.astype(np.float64)
            placements += _placements(logits, labels, weights) / len(seeds)
            wins += _wins(logits, labels, weights, block, blocks) / len(seeds)
            loss = check_rows(logits, labels).losses * weights
            losses += np.bincount(block, loss, blocks) / len(seeds)
        return cls(
            labels,
            weights,
            placements,
            wins,
            np.bincount(block, weights * labels, blocks).astype(np.float64),
            np.bincount(block, weights * ~labels, blocks).astype(np.float64),
            losses,
        )


def compare_rows(first: RowStatistics, second: RowStatistics, measure: str) -> RowTest | None:
    """Test two models on the same rows; None where the measure is undefined on them, or there are fewer than blocks.

    Args:
        first, second: statistics of the models, on the same rows and blocks.
        measure: "auc" or "logloss".
    """
    if not np.array_equal(first.labels, second.labels):
        raise ValueError("both models must be evaluated on the same rows; their labels differ")
    if first.labels.size < first.losses.size:  # an empty block holds no information but would count as a block
        return None
    draws = _draws(first.losses.size)
    if measure == "auc":
        gap = first.wins - second.wins
        total = first.clicks.sum() * first.others.sum()
        gaps, totals = ((draws @ gap) * draws).sum(1), (draws @ first.clicks) * (draws @ first.others)
    else:
        gap = first.losses - second.losses
        total = first.weights.sum()
        gaps, totals = draws @ gap, draws @ (first.clicks + first.others)
    if not total:
        return None
    difference = float(gap.sum() / total)
    replicates = gaps[totals > 0] / totals[totals > 0]
    low, high = np.quantile(replicates, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]).tolist()
    delong = delong_test(first, second) if measure == "auc" else None
    return RowTest(difference, low, high, bootstrap_p(difference, low, high), delong)


def delong_test(first: RowStatistics, second: RowStatistics) -> float:
    """Two-tailed p-value of DeLong's test of two AUCs on the same rows.

        AUC₁ − AUC₂ = mean of d over the clicks,   d = V₁ − V₂ the difference of placements
        Var = var(d of the clicks) / m + var(d of the non-clicks) / n

    With weights the means are weighted, and each class contributes Σw²(d − mean)² / (Σw)² to Var. p is 1 where both
    models order all pairs alike, and where a class has a single row, whose variance is unknown.
    """
    gap = first.placements - second.placements
    difference, variance = 0.0, 0.0
    for members in (first.labels, ~first.labels):
        weights, gaps = first.weights[members], gap[members]
        total = weights.sum()
        difference = float(weights @ gaps / total)
        size = np.count_nonzero(weights)
        if size < 2:
            return 1.0
        variance += float((weights**2) @ (gaps - difference) ** 2) / total**2 * size / (size - 1)
    if variance <= 0:
        return 1.0 if abs(difference) < 1e-15 else 0.0
    return float(2 * require("scipy.stats").norm.sf(abs(difference) / sqrt(variance)))


def _placements(logits: Floats, labels: NDArray[np.bool_], weights: Floats) -> Floats:
    placed = np.zeros(labels.size)
    for mine, sign in ((labels, 1.0), (~labels, -1.0)):
        share = _weight_below(sign * logits[mine], sign * logits[~mine], weights[~mine])
        placed[mine] = share / max(float(weights[~mine].sum()), np.finfo(float).tiny)
    return placed


def _wins(logits: Floats, labels: NDArray[np.bool_], weights: Floats, block: NDArray[Any], blocks: int) -> Floats:
    """The weight of the won pairs of each pair of blocks; the smaller class is searched for in the larger one."""
    if np.count_nonzero(labels) > labels.size / 2:
        return _wins(-logits, ~labels, weights, block, blocks).T
    order = np.argsort(logits[labels])
    clicks, weight, place = logits[labels][order], weights[labels][order], block[labels][order]
    found = np.zeros((blocks, blocks))
    # Blocks are consecutive rows: the non-clicks of one are a slice of all non-clicks.
    ends = np.searchsorted(block[~labels], np.arange(blocks + 1))
    others, other_weights = logits[~labels], weights[~labels]
    for column in range(blocks):
        rows = slice(ends[column], ends[column + 1])
        below = _weight_below(clicks, others[rows], other_weights[rows])
        found[:, column] = np.bincount(place, below * weight, blocks)
    return found


def _weight_below(values: Floats, others: Floats, weights: Floats) -> Floats:
    """The weight of the others below each value, and half of those that are equal to it."""
    order = np.argsort(others)
    ordered, total = others[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    below: Floats = (total[np.searchsorted(ordered, values)] + total[np.searchsorted(ordered, values, "right")]) / 2
    return below


@cache
def _draws(blocks: int) -> Floats:
    """How often each replicate contains each block, (replicates, K); the same for all comparisons."""
    drawn = np.random.default_rng(0).multinomial(blocks, np.full(blocks, 1 / blocks), REPLICATES)
    return drawn.astype(np.float64)


def bootstrap_p(difference: float, low: float, high: float) -> float:
    """Two-tailed p-value, by Student's t, of a difference with 95 % of its replicates between low and high.

    The width of the interval gives the standard error, the number of blocks minus one the degrees of freedom. Counting
    the replicates beyond 0 instead could not give less than 2 / 10,000, which a correction for a few hundred
    comparisons always lifts above 5 %.

    >>> round(bootstrap_p(0.02, 0.0, 0.04), 3), bootstrap_p(0.02, 0.018, 0.022) < 1e-20, bootstrap_p(0.0, 0.0, 0.0)
    (0.054, True, 1.0)
    """
    stats = require("scipy.stats")
    error = (high - low) / (2 * stats.norm.ppf((1 + INTERVAL) / 2))
    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stats.t.sf(abs(difference) / error, BLOCKS - 1))
