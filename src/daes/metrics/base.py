"""The interface of every metric: update with rows, merge across processes, save the state and resume exactly.

All metrics are updated with the same rows, `update(logits, labels, weights=None)`. They take logits, because a
probability near 0 or 1 has lost the digits that LogLoss needs; `logit` converts probabilities.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import Floats, Mergeable, State, check_values


@dataclass(frozen=True)
class Rows:
    """Checked rows, with the quantities that several metrics share, each computed at most once.

    **Shape.** All arrays are (B,).
    """

    logits: Floats
    labels: NDArray[np.bool_]
    weights: Floats

    def __len__(self) -> int:
        return self.logits.size

    def __getitem__(self, rows: slice) -> "Rows":
        found = Rows(self.logits[rows], self.labels[rows], self.weights[rows])
        vars(found).update(predictions=self.predictions[rows], losses=self.losses[rows])
        return found

    @cached_property
    def predictions(self) -> Floats:
        """sigmoid(logit)."""
        return np.where(self.logits >= 0, 1.0, self._decay) / (1.0 + self._decay)

    @cached_property
    def losses(self) -> Floats:
        """−log of the probability given to the true label: log(1 + exp(−z)) for a click, log(1 + exp(z)) otherwise."""
        against = np.where(self.labels, -self.logits, self.logits)
        return np.log1p(self._decay) + np.maximum(against, 0.0)

    @cached_property
    def _decay(self) -> Floats:
        # exp(−|z|) never overflows, and both the sigmoid and the loss are simple in it.
        return np.exp(-np.abs(self.logits))


def check_rows(logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Rows:
    """The arguments as `Rows`; an error names the first bad value.

    Logits may be ±inf (a certain prediction) but not NaN. Labels are 0 or 1. Weights are finite and not negative.
    """
    z = check_values(logits, "logits")
    y = check_values(labels, "labels")
    w = np.ones(z.size) if weights is None else check_values(weights, "weights")
    for name, column in (("labels", y), ("weights", w)):
        if column.size != z.size:
            raise ValueError(f"{name} must have one value per logit, got {column.size} for {z.size} logits")
    check_none("logits must not be NaN", z, np.isnan(z))
    clicked = y == 1
    check_none("labels must be 0 or 1", y, ~(clicked | (y == 0)))
    if weights is not None:
        check_none("weights must be finite and not negative", w, ~((w >= 0) & (w < np.inf)))
    return Rows(z, clicked, w)


def check_none(rule: str, values: Floats, bad: NDArray[np.bool_]) -> None:
    """Raise an error if any value is bad, with the number of bad values and the first one."""
    count = int(np.count_nonzero(bad))
    if count:
        row = int(bad.argmax())
        raise ValueError(
            f"{rule}, got {count} of {values.size} that break this, the first is {values[row]} in row {row}"
        )


def sigmoid(logits: ArrayLike) -> Floats:
    """The probabilities of logits, whatever their size.

    >>> sigmoid([-1e6, 0.0, 1e6])
    array([0. , 0.5, 1. ])
    """
    z = np.asarray(logits, dtype=np.float64)
    decay = np.exp(-np.abs(z))
    probabilities: Floats = np.where(z >= 0, 1.0, decay) / (1.0 + decay)
    return probabilities


def logit(probabilities: ArrayLike) -> Floats:
    """log(p / (1 − p)), the inverse of the sigmoid; 0 and 1 give −inf and inf.

    >>> logit([0.0, 0.5, 1.0])
    array([-inf,   0.,  inf])
    """
    p = check_values(probabilities, "probabilities")
    check_none("probabilities must lie in [0, 1]", p, ~((p >= 0) & (p <= 1)))
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)


def logit_bin(logits: Floats, bins: int, limit: float) -> NDArray[np.intp]:
    """The bin of each logit: `bins` of equal width over ±`limit`; the outer two also take the logits beyond.

    >>> logit_bin(np.array([-np.inf, -1.0, -0.1, 0.0, 9.0]), bins=4, limit=2.0)
    array([0, 1, 1, 2, 3])
    """
    # Every operation is monotone in floating point too, so a higher bin never holds a lower logit.
    position = (np.clip(logits, -limit, limit) + limit) * (bins / (2 * limit))
    return np.minimum(position, bins - 1).astype(np.intp)


def sum_product(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Σ first·second, (n,) each.

    Not by `@`: the threads of BLAS wait busily for its next call, which costs a training run one core, and its rounding
    depends on their number.
    """
    return float((first * second).sum())


def ratio(numerator: float, denominator: float) -> float:
    """The quotient, NaN if the denominator is not positive."""
    return numerator / denominator if denominator > 0 else float("nan")


def no_weight(weight: float, count: int) -> str | None:
    """Why a mean over the rows is undefined; None if it is defined."""
    return None if weight > 0 else f"no weight in {count} rows"


def one_class(clicks: float, others: float, count: int) -> str | None:
    """Why a comparison of the two classes is undefined; None if it is defined."""
    if clicks > 0 and others > 0:
        return None
    missing = "click" if others > 0 else "non-click"
    return no_weight(clicks + others, count) or f"labels of one class only in {count} rows: no {missing}"


class Metric(Mergeable):
    """A number computed from all rows seen, or from the most recent ones.

    The base class implements checks, counting, merging and state; a subclass implements its formula in `_add` and
    `compute`.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of rows seen."""

    def update(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add the next rows, each array of shape (B,). A bad row is an error, and then no row is added."""
        self.absorb(check_rows(logits, labels, weights))

    def absorb(self, rows: Rows) -> None:
        """Add rows that are checked already."""
        self._add(rows)
        self.count += len(rows)

    @abstractmethod
    def _add(self, rows: Rows) -> None:
        """Add the rows; `count` does not include them yet."""

    @abstractmethod
    def compute(self) -> float:
        """The current value; NaN if it is not defined, and then `undefined` says why."""

    @property
    @abstractmethod
    def undefined(self) -> str | None:
        """Why `compute` returns NaN; None if it is defined."""

    def merge(self, other: Self) -> None:
        """Add the rows of another metric, as if this one had seen them too."""
        self._check_other(other)
        self._merge(other)
        self.count += other.count


class SumMetric(Metric):
    """A metric computed from weighted sums over the rows, to which a subclass adds in `_add`.

    `totals` is the whole state, and merging adds it; across processes, an all-reduce of it is the same.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.totals: Floats = np.zeros(shape)

    def _merge(self, other: Self) -> None:
        self.totals += other.totals

    def _state(self) -> State:
        return {"totals": self.totals.copy()}

    def _load(self, state: Mapping[str, Any]) -> None:
        totals = np.array(state["totals"], dtype=np.float64)
        if totals.shape != self.totals.shape:
            raise ValueError(f"state must have totals of shape {self.totals.shape}, got {totals.shape}")
        self.totals = totals
