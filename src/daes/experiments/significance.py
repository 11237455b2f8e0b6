"""Statistical tests: t-tests between seeds, ranks, Holm's correction, Friedman's test over streams."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import copysign, inf
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.context import correct_p_values
from daes.extras import require

Floats = NDArray[np.float64]
Kind = Literal["student", "welch", "paired"]
LEVEL = 0.05
"""The p-value below which a difference is called significant."""


@dataclass(frozen=True)
class TTest:
    """The result of a two-tailed t-test.

    `difference` is mean(first) − mean(second); `p_value` is the probability of one at least as large in absolute value
    if the true means were equal.
    """

    kind: Kind
    difference: float
    statistic: float
    degrees_of_freedom: float
    p_value: float

    def significant(self, level: float = LEVEL) -> bool:
        """Whether the means differ at this level."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
        return self.p_value < level


def t_test(first: ArrayLike, second: ArrayLike, kind: Kind = "student") -> TTest:
    """Two-tailed t-test of two lists of results, one result per seed, by scipy.

    - `student`, the paper's: unpaired, one variance for both; n₁ + n₂ − 2 degrees of freedom.
    - `welch`: unpaired, a variance for each; Welch–Satterthwaite degrees of freedom.
    - `paired`: of the differences seed by seed, where a seed means the same data order for both; n − 1.

    For results that do not vary at all, where scipy returns NaN, p is 1 if the means are equal and 0 if not.

    >>> result = t_test([0.7892, 0.7894, 0.7893, 0.7891, 0.7895], [0.7877, 0.7879, 0.7876, 0.7878, 0.7880])
    >>> round(result.difference, 5), result.degrees_of_freedom, result.significant(0.01)
    (0.0015, 8.0, True)
    """
    if kind not in ("student", "welch", "paired"):
        raise ValueError(f"kind must be 'student', 'welch' or 'paired', got {kind!r}")
    a, b = _check_results("first", first), _check_results("second", second)
    if kind == "paired" and a.size != b.size:
        raise ValueError(f"a paired test needs as many results on both sides, got {a.size} and {b.size}")
    difference = float(a.mean() - b.mean())
    constant = np.ptp(a - b) == 0 if kind == "paired" else np.ptp(a) == np.ptp(b) == 0
    if constant:
        gap = float(a[0] - b[0])
        freedom = a.size - 1 if kind == "paired" else a.size + b.size - 2
        return TTest(kind, gap, copysign(inf, gap) if gap else 0.0, float(freedom), 0.0 if gap else 1.0)
    stats = require("scipy.stats")
    found = stats.ttest_rel(a, b) if kind == "paired" else stats.ttest_ind(a, b, equal_var=kind == "student")
    return TTest(kind, difference, float(found.statistic), float(found.df), float(found.pvalue))


def average_rank(
    results: ArrayLike, *, higher_is_better: bool | Sequence[bool], ties: Literal["mean", "order"] = "mean"
) -> Floats:
    """The mean over columns of each method's rank in the column, 1 being the best.

    A column is one measure on one data set and backbone; a higher AUC is better, and so is a lower LogLoss. Methods
    without a result (NaN) share the last rank of their column.

    **Shape.** (methods, columns) → (methods,).

    Args:
        results: the score of each method in each column.
        higher_is_better: one value for all columns, or one per column.
        ties: `mean` gives equal results the mean of their ranks; `order` ranks the one listed first higher.

    >>> average_rank([[0.79, 0.46], [0.78, 0.46], [0.77, 0.47]], higher_is_better=[True, False])
    array([1.25, 1.75, 3.  ])
    """
    # NOTE[DIFF]: the paper's table ranks by the AUC columns alone and breaks ties by the order of its rows (this
    # reproduces all 45 of its ranks); here ties share their ranks by default, because the order of rows is arbitrary.
    table = np.asarray(results, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"results must be a table of methods × columns, got shape {table.shape}")
    if ties not in ("mean", "order"):
        raise ValueError(f"ties must be 'mean' or 'order', got {ties!r}")
    higher = np.asarray(higher_is_better, dtype=np.bool_)
    if higher.shape not in ((), (table.shape[1],)):
        raise ValueError(f"higher_is_better must be one value or {table.shape[1]}, got shape {higher.shape}")
    cost = np.where(higher, -table, table)
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
    blocks: int
    critical_difference: float


def friedman(results: ArrayLike, *, higher_is_better: bool = True) -> Friedman | None:
    """Friedman's test of methods over blocks, by scipy, with Nemenyi's critical difference of mean ranks.

    A block is a stream: results on one stream are not independent, those on different streams are. Several results of a
    method on one stream (backbones, seeds) enter as their mean. None with fewer than three methods or two blocks.

    **Shape.** `results` (methods, blocks), finite.

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
    ranks = average_rank(table, higher_is_better=higher_is_better)
    quantile = float(stats.studentized_range.ppf(1 - LEVEL, methods, np.inf)) / 2**0.5
    distance = quantile * (methods * (methods + 1) / (6 * blocks)) ** 0.5
    return Friedman(statistic, p_value, tuple(ranks.tolist()), blocks, distance)


def _check_results(name: str, results: ArrayLike) -> Floats:
    array = np.asarray(results, dtype=np.float64)
    if array.ndim != 1 or array.size < 2:
        raise ValueError(f"{name} must be a list of two results or more, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; {np.count_nonzero(~np.isfinite(array))} results are not")
    return array
