"""Statistical tests: t-tests between seeds, ranks, Holm's correction, Friedman's test over streams."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.context import correct_p_values
from daes.extras import require

Floats = NDArray[np.float64]
LEVEL = 0.05
"""The p-value below which a difference is called significant."""


def t_test(first: ArrayLike, second: ArrayLike) -> float:
    """The p-value of the paper's t-test of two lists of results, one result per seed, by scipy.

    It is two-tailed and unpaired, with one variance for both. For results that do not vary at all, where scipy returns
    NaN, p is 1 if the means are equal and 0 if not.

    >>> round(t_test([0.7892, 0.7894, 0.7893], [0.7887, 0.7889, 0.7888]), 4)
    0.0036
    """
    a, b = _check_results("first", first), _check_results("second", second)
    if np.ptp(a) == np.ptp(b) == 0:
        return float(a[0] == b[0])
    return float(require("scipy.stats").ttest_ind(a, b).pvalue)


def average_rank(results: ArrayLike, *, higher_is_better: bool, ties: Literal["mean", "order"] = "mean") -> Floats:
    """The mean over columns of each method's rank in the column, 1 being the best.

    A column is a data set and a backbone. Methods without a result (NaN) share the last rank of their column.

    **Shape.** (methods, columns) → (methods,).

    Args:
        results: the score of each method in each column.
        higher_is_better: whether the scores are such as AUC, not LogLoss.
        ties: `mean` gives equal results the mean of their ranks; `order` ranks the one listed first higher.

    >>> average_rank([[0.79, 0.86], [0.78, 0.86], [0.77, 0.85]], higher_is_better=True)
    array([1.25, 1.75, 3.  ])
    """
    # NOTE[DIFF]: the paper's table ranks by the AUC columns alone and breaks ties by the order of its rows (this
    # reproduces all 45 of its ranks); here ties share their ranks by default, because the order of rows is arbitrary.
    table = np.asarray(results, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"results must be a table of methods × columns, got shape {table.shape}")
    if ties not in ("mean", "order"):
        raise ValueError(f"ties must be 'mean' or 'order', got {ties!r}")
    cost = -table if higher_is_better else table
    cost = np.where(np.isnan(cost), np.inf, cost)
    method = "average" if ties == "mean" else "ordinal"
    ranks: Floats = require("scipy.stats").rankdata(cost, method=method, axis=0).mean(axis=1)
    return ranks


def holm(p_values: ArrayLike) -> Floats:
    """Holm's correction of p-values for the number of hypotheses that were tested together.

    The k-th smallest of n is multiplied by n − k + 1, and none may be below a smaller one. Rejecting what is then below
    a level rejects a true hypothesis at all with no more than that probability.

    **Shape.** (n,) → (n,).

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p_values must be a list of numbers from 0 to 1, got {p.tolist()}")
    return correct_p_values(p, "holm")


@dataclass(frozen=True)
class Friedman:
    """The result of Friedman's test: do methods differ over blocks (streams)?

    `ranks` are the methods' mean ranks, 1 being the best; two methods differ at the 5 % level (Nemenyi) if their ranks
    are more than `critical_difference` apart.
    """

    statistic: float
    p_value: float
    ranks: tuple[float, ...]
    critical_difference: float


def friedman(results: ArrayLike) -> Friedman | None:
    """Friedman's test of methods over blocks, by scipy, with Nemenyi's critical difference of mean ranks.

    A block is a stream: results on one stream are not independent, those on different streams are. Several results of a
    method on one stream (backbones, seeds) enter as their mean. None with fewer than three methods or two blocks.

    **Shape.** `results` (methods, blocks), finite; higher is better.

    >>> found = friedman([[0.7, 0.8, 0.9, 0.6], [0.6, 0.7, 0.8, 0.5], [0.5, 0.6, 0.7, 0.4]])
    >>> found.ranks, round(found.statistic, 3), round(found.p_value, 4)
    ((1.0, 2.0, 3.0), 8.0, 0.0183)
    """
    table = np.asarray(results, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError(f"results must be a finite table of methods × blocks, got shape {table.shape}")
    methods, blocks = table.shape
    if methods < 3 or blocks < 2:
        return None
    stats = require("scipy.stats")
    if (np.ptp(table, axis=0) == 0).all():
        statistic, p_value = 0.0, 1.0
    else:
        found = stats.friedmanchisquare(*table)
        statistic, p_value = float(found.statistic), float(found.pvalue)
    ranks = average_rank(table, higher_is_better=True)
    quantile = float(stats.studentized_range.ppf(1 - LEVEL, methods, np.inf)) / 2**0.5
    distance = quantile * (methods * (methods + 1) / (6 * blocks)) ** 0.5
    return Friedman(statistic, p_value, tuple(ranks.tolist()), distance)


def _check_results(name: str, results: ArrayLike) -> Floats:
    array = np.asarray(results, dtype=np.float64)
    if array.ndim != 1 or array.size < 2:
        raise ValueError(f"{name} must be a list of two results or more, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; {np.count_nonzero(~np.isfinite(array))} results are not")
    return array
