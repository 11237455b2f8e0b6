"""Is one method better than another over several seeds, and how do methods rank over many columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.extras import require

Floats = NDArray[np.float64]
Kind = Literal["student", "welch", "paired"]


@dataclass(frozen=True)
class TTest:
    """The result of a two-tailed t-test.

    `difference` is mean(first) − mean(second); `p_value` is the probability of one at least as large in size, were the
    true means equal.
    """

    kind: Kind
    difference: float
    statistic: float
    degrees_of_freedom: float
    p_value: float

    def significant(self, level: float = 0.05) -> bool:
        """Whether the means differ at this level."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
        return self.p_value < level


def t_test(first: ArrayLike, second: ArrayLike, kind: Kind = "student") -> TTest:
    """Two-tailed t-test of two lists of results, one result a seed.

    - `student`, the paper's: unpaired, one variance for both; n₁ + n₂ − 2 degrees of freedom.
    - `welch`: unpaired, a variance for each; Welch–Satterthwaite degrees of freedom.
    - `paired`: of the differences seed by seed, where one seed means the same data order for both; n − 1.

    Results that do not vary at all leave no doubt: p is 1 where the means are equal and 0 where they are not.

    >>> result = t_test([0.7892, 0.7894, 0.7893, 0.7891, 0.7895], [0.7877, 0.7879, 0.7876, 0.7878, 0.7880])
    >>> round(result.difference, 5), result.degrees_of_freedom, result.significant(0.01)
    (0.0015, 8.0, True)
    """
    a, b = _check_results("first", first), _check_results("second", second)
    if kind == "paired":
        if a.size != b.size:
            raise ValueError(f"a paired test needs as many results on both sides, got {a.size} and {b.size}")
        difference, variance = _mean_and_variance(a - b)
        error = sqrt(variance / a.size)
        freedom = a.size - 1.0
    elif kind in ("student", "welch"):
        (mean_a, variance_a), (mean_b, variance_b) = _mean_and_variance(a), _mean_and_variance(b)
        difference = mean_a - mean_b
        freedom = a.size + b.size - 2.0
        if kind == "student":
            pooled = ((a.size - 1) * variance_a + (b.size - 1) * variance_b) / freedom
            error = sqrt(pooled * (1 / a.size + 1 / b.size))
        else:
            part_a, part_b = variance_a / a.size, variance_b / b.size
            error = sqrt(part_a + part_b)
            if error > 0:
                share_a, share_b = part_a / (part_a + part_b), part_b / (part_a + part_b)
                freedom = 1 / (share_a**2 / (a.size - 1) + share_b**2 / (b.size - 1))
    else:
        raise ValueError(f"kind must be 'student', 'welch' or 'paired', got {kind!r}")
    if error > 0:
        statistic = difference / error
    else:
        statistic = 0.0 if difference == 0 else float(np.copysign(inf, difference))
    p_value = 2 * float(require("scipy.special").stdtr(freedom, -abs(statistic)))
    return TTest(kind, difference, statistic, freedom, p_value)


def against_best(
    results: Mapping[str, ArrayLike],
    method: str,
    *,
    higher_is_better: bool,
    baselines: Sequence[str] | None = None,
    kind: Kind = "student",
) -> tuple[str, TTest]:
    """The best baseline by mean result (default: of all other methods), and the test of `method` against it.

    >>> name, result = against_best(
    ...     {"efd": [0.7858, 0.7859], "ple": [0.7877, 0.7878], "daes": [0.7892, 0.7893]}, "daes", higher_is_better=True
    ... )
    >>> name, round(result.difference, 4)
    ('ple', 0.0015)
    """
    names = [name for name in results if name != method] if baselines is None else list(baselines)
    if unknown := [name for name in (method, *names) if name not in results]:
        raise ValueError(f"no results of {', '.join(unknown)}; there are some of {', '.join(results)}")
    if not names:
        raise ValueError(f"{method} needs a baseline to be tested against; there is none")
    means = [_mean_and_variance(_check_results(name, results[name]))[0] for name in names]
    best = names[int(np.argmax(means) if higher_is_better else np.argmin(means))]
    return best, t_test(results[method], results[best], kind)


def average_rank(
    results: ArrayLike, *, higher_is_better: bool | Sequence[bool], ties: Literal["mean", "order"] = "mean"
) -> Floats:
    """The mean over columns of each method's rank in the column, 1 being the best.

    A column is one measure on one data set and backbone; AUC is better when higher, LogLoss when lower. A method
    without a result (NaN) ranks last in its column, sharing that place with others of its kind.

    **Shape.** (methods, columns) → (methods,).

    Args:
        results: what each method reached in each column.
        higher_is_better: for all columns, or one a column.
        ties: `mean` gives equal results the mean of the places they take up; `order` ranks the one listed first higher.

    >>> average_rank([[0.79, 0.46], [0.78, 0.46], [0.77, 0.47]], higher_is_better=[True, False])
    array([1.25, 1.75, 3.  ])
    """
    # NOTE[DIFF]: the paper's table ranks by the AUC columns alone and breaks ties by the order of its rows (found: this
    # reproduces all 45 of its ranks); here ties share their places by default, because the order of rows means nothing.
    table = np.asarray(results, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"results must be a table of methods × columns, got shape {table.shape}")
    if ties not in ("mean", "order"):
        raise ValueError(f"ties must be 'mean' or 'order', got {ties!r}")
    higher = np.asarray(higher_is_better, dtype=np.bool_)
    if higher.shape not in ((), (table.shape[1],)):
        raise ValueError(f"higher_is_better must be one or {table.shape[1]} of a kind, got shape {higher.shape}")
    badness = np.where(higher, -table, table)
    badness = np.where(np.isnan(badness), np.inf, badness)
    better = badness[None, :, :] < badness[:, None, :]
    equal = badness[None, :, :] == badness[:, None, :]
    if ties == "mean":
        shared = (equal.sum(axis=1) - 1) / 2
    else:
        earlier = np.tri(len(table), k=-1, dtype=np.bool_)
        shared = (equal & earlier[:, :, None]).sum(axis=1)
    ranks: Floats = np.mean(1.0 + better.sum(axis=1) + shared, axis=1)
    return ranks


def _check_results(name: str, results: ArrayLike) -> Floats:
    array = np.asarray(results, dtype=np.float64)
    if array.ndim != 1 or array.size < 2:
        raise ValueError(f"{name} must be a list of two results or more, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; {np.count_nonzero(~np.isfinite(array))} results are not")
    return array


def _mean_and_variance(values: Floats) -> tuple[float, float]:
    # Taken from the first value on, so that equal results have a variance of exactly 0.
    shifted = values - values[0]
    return float(values[0] + shifted.mean()), float(shifted.var(ddof=1))
