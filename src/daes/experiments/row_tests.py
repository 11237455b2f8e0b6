"""Is one model better than another on these rows: tests whose chance is that of the rows, not of the seeds.

- DeLong's test of two AUCs on the same rows, by midranks, O(n log n).
- A bootstrap over blocks of consecutive rows, which keeps what neighbouring rows have in common: bursts, hours, drift.

Several seeds of one method count by their mean: the mean of the seeds' AUCs is a statistic of the rows like each one.
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
    """By how much one model differs from another in a measure, and whether that may be the chance of the rows.

    Args:
        difference: the first less the second.
        low, high: the interval of the difference that holds 95 % of the bootstrap's replicates.
        bootstrap: two-tailed p of the block bootstrap.
        delong: two-tailed p of DeLong's test; None for a measure that is not AUC.
    """

    difference: float
    low: float
    high: float
    bootstrap: float
    delong: float | None = None

    @property
    def p_value(self) -> float:
        """The larger of both: a difference counts as one where both tests say so."""
        return self.bootstrap if self.delong is None else max(self.bootstrap, self.delong)


@dataclass(frozen=True)
class RowStatistics:
    """What the tests need of a model on n rows, K blocks of them.

    **Shape.** `placements` (n,): of a click the part of the non-clicks that it scores above, of a non-click the part of
    the clicks that score above it, ties counting one half. `wins` (K, K): the weight of the pairs of a click in block b
    and a non-click in block c in which the click scores higher. `clicks`, `others`, `losses` (K,): weights of the rows
    of either class, and summed losses. `labels`, `weights` (n,).
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
        """The mean over the seeds; all have a score for every row."""
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

    @property
    def auc(self) -> float:
        """The mean AUC of the seeds; NaN with one class."""
        pairs = self.clicks.sum() * self.others.sum()
        return float(self.wins.sum() / pairs) if pairs else float("nan")

    @property
    def logloss(self) -> float:
        """The mean LogLoss of the seeds."""
        return float(self.losses.sum() / self.weights.sum())


def compare_rows(first: RowStatistics, second: RowStatistics, measure: str, seed: int = 0) -> RowTest | None:
    """Test two models on the same rows; None where the measure is not defined on them, or they are fewer than blocks.

    Args:
        first, second: the models' statistics, of the same rows and blocks.
        measure: "auc" or "logloss".
        seed: of the bootstrap's draws, the same for all comparisons.
    """
    if not np.array_equal(first.labels, second.labels):
        raise ValueError("both models must be judged on the same rows; their labels differ")
    if first.labels.size < first.losses.size:  # a block without rows says nothing and would count as one that does
        return None
    draws = _draws(first.losses.size, seed)
    if measure == "auc":
        pairs = first.clicks.sum() * first.others.sum()
        if not pairs:
            return None
        gap = first.wins - second.wins
        weight = (draws @ first.clicks) * (draws @ first.others)
        replicates = ((draws @ gap) * draws).sum(1)[weight > 0] / weight[weight > 0]
        return _test(float(gap.sum() / pairs), replicates, delong_test(first, second))
    if not first.weights.sum():
        return None
    loss = first.losses - second.losses
    total = draws @ (first.clicks + first.others)
    replicates = (draws @ loss)[total > 0] / total[total > 0]
    return _test(float(loss.sum() / first.weights.sum()), replicates, None)


def delong_test(first: RowStatistics, second: RowStatistics) -> float:
    """Two-tailed p of DeLong's test of two AUCs on the same rows.

        AUC₁ − AUC₂ = mean of d over the clicks,   d = V₁ − V₂ the difference of placements
        Var = var(d of the clicks) / m + var(d of the non-clicks) / n

    With weights the means are weighted, and Var is Σw²(d − mean)² / (Σw)² of either class. p is 1 where two models
    order all pairs alike, and where a class has one row only, whose variance nobody knows.
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
    """The weight of the won pairs of each pair of blocks; the smaller class is looked up among the larger one."""
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
def _draws(blocks: int, seed: int) -> Floats:
    """How often each replicate has each block, (replicates, K)."""
    drawn = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), REPLICATES)
    return drawn.astype(np.float64)


def _test(difference: float, replicates: Floats, delong: float | None) -> RowTest:
    low, high = np.quantile(replicates, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]).tolist()
    return RowTest(difference, low, high, bootstrap_p(difference, low, high), delong)


def bootstrap_p(difference: float, low: float, high: float) -> float:
    """Two-tailed p of a difference whose replicates have 95 % between low and high, by Student's law.

    The width of the interval gives the standard error, and the number of blocks, less one, the degrees of freedom. To
    count replicates beyond 0 instead would end at 2 / 10,000, which a correction for a few hundred comparisons always
    lifts above 5 %.

    >>> round(bootstrap_p(0.02, 0.0, 0.04), 3), bootstrap_p(0.02, 0.018, 0.022) < 1e-20, bootstrap_p(0.0, 0.0, 0.0)
    (0.054, True, 1.0)
    """
    stats = require("scipy.stats")
    error = (high - low) / (2 * stats.norm.ppf((1 + INTERVAL) / 2))
    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stats.t.sf(abs(difference) / error, BLOCKS - 1))
