"""What every metric can do: take in rows, merge across processes, save its state and resume exactly.

All metrics take the same rows, `update(logits, labels, weights=None)`: logits, because a probability near 0 or 1 has
lost the digits that LogLoss needs. Probabilities from elsewhere go through `logit` first.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
State = dict[str, Any]
"""A metric's state: NumPy arrays and plain values, never a pickle."""


@dataclass(frozen=True)
class Rows:
    """Checked rows, and what several metrics need of them, computed at most once.

    **Shape.** All arrays are (B,).
    """

    logits: Floats
    labels: NDArray[np.bool_]
    weights: Floats

    def __len__(self) -> int:
        return self.logits.size

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
    """The arguments as `Rows`, or an error that says what is wrong with them.

    Logits may be ±inf (a certain prediction), never NaN. Labels are 0 or 1. Weights are finite and not negative.
    """
    z = check_column("logits", logits)
    y = check_column("labels", labels)
    w = np.ones(z.size) if weights is None else check_column("weights", weights)
    for name, column in (("labels", y), ("weights", w)):
        if column.size != z.size:
            raise ValueError(f"{name} must be as many as logits, got {column.size} {name}, {z.size} logits")
    refuse("logits must not be NaN", z, np.isnan(z))
    clicked = y == 1
    refuse("labels must be 0 or 1", y, ~(clicked | (y == 0)))
    if weights is not None:
        refuse("weights must be finite and not negative", w, ~((w >= 0) & (w < np.inf)))
    return Rows(z, clicked, w)


def check_column(name: str, values: ArrayLike) -> Floats:
    """The values as a 1-D float64 array."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size and array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    return np.asarray(array, dtype=np.float64)


def refuse(rule: str, values: Floats, bad: NDArray[np.bool_]) -> None:
    """Raise if any value is bad, saying how many and which is the first."""
    count = int(np.count_nonzero(bad))
    if count:
        row = int(bad.argmax())
        raise ValueError(f"{rule}; {count} of {values.size} break this, the first is {values[row]} in row {row}")


def check_count(name: str, value: int) -> int:
    """The value as a whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value <= 0:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def check_keys(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The state must have exactly the expected entries."""
    missing, surplus = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
    if missing or surplus:
        raise ValueError(f"state is of another kind or version: it lacks {missing} and has {surplus} besides")


def logit(probabilities: ArrayLike) -> Floats:
    """log(p / (1 − p)), the inverse of the sigmoid; 0 and 1 give −inf and inf.

    >>> logit([0.0, 0.5, 1.0])
    array([-inf,   0.,  inf])
    """
    p = check_column("probabilities", probabilities)
    refuse("probabilities must lie in [0, 1]", p, ~((p >= 0) & (p <= 1)))
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)


def logit_bin(logits: Floats, bins: int, limit: float) -> NDArray[np.intp]:
    """The bin of each logit: `bins` of equal width over ±`limit`, the outer two taking what lies beyond.

    >>> logit_bin(np.array([-np.inf, -1.0, -0.1, 0.0, 9.0]), bins=4, limit=2.0)
    array([0, 1, 1, 2, 3])
    """
    # Every step is monotone in floating point too, so that a higher bin never holds a lower logit.
    position = (np.clip(logits, -limit, limit) + limit) * (bins / (2 * limit))
    return np.minimum(position, bins - 1).astype(np.intp)


def ratio(numerator: float, denominator: float) -> float:
    """The quotient, NaN where there is nothing to divide by."""
    return numerator / denominator if denominator > 0 else float("nan")


def no_weight(weight: float, count: int) -> str | None:
    """Why a mean over the rows is undefined, if it is."""
    return None if weight > 0 else f"no weight in {count} rows"


def one_class(clicks: float, others: float, count: int) -> str | None:
    """Why a comparison of the two classes is undefined, if it is."""
    if clicks > 0 and others > 0:
        return None
    missing = "click" if others > 0 else "non-click"
    return no_weight(clicks + others, count) or f"labels of one class only in {count} rows: no {missing}"


class Metric(ABC):
    """A number about all rows seen, or about the last of them.

    The base class owns checks, counting, merging and state; a subclass owns its formula: `absorb`, `compute`.
    """

    _settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.count = 0
        """How many rows were seen."""

    def update(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Take in the next rows, each array of shape (B,). A bad row is an error, and then none is taken in."""
        self.absorb(check_rows(logits, labels, weights))

    @abstractmethod
    def absorb(self, rows: Rows) -> None:
        """Take in rows already checked."""

    @abstractmethod
    def compute(self) -> float:
        """The metric now; NaN where it is not defined, and then `undefined` says why."""

    @property
    @abstractmethod
    def undefined(self) -> str | None:
        """Why `compute` gives NaN, None where it does not."""

    def merge(self, other: Self) -> None:
        """Take in a metric of other rows, so that this one stands for both."""
        if type(other) is not type(self):
            raise TypeError(f"other must be a {type(self).__name__} to merge, got {type(other).__name__}")
        if other is self:
            raise ValueError("other must have seen other rows; it is this very metric")
        self._merge(other)
        self.count += other.count

    def state_dict(self) -> State:
        """Everything needed to go on bit for bit."""
        settings = {name: getattr(self, name) for name in self._settings}
        return {"kind": type(self).__name__, **settings, "count": self.count, **self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that a metric of the same settings saved."""
        expected = self.state_dict()
        check_keys(state, expected)
        for name in ("kind", *self._settings):
            if state[name] != expected[name]:
                raise ValueError(f"state has {name}={state[name]!r}; this metric has {expected[name]!r}")
        self._load(state)
        self.count = int(state["count"])

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Take in the rows of a metric of the same kind; `count` is looked after."""

    @abstractmethod
    def _state(self) -> State:
        """The subclass's own part of the state, as copies."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Restore the subclass's own part of the state."""


class SumMetric(Metric):
    """A metric computed from weighted sums over the rows.

    `totals` is the whole state, and merging is adding: across processes an all-reduce of it does the same.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.totals: Floats = np.zeros(shape)

    def absorb(self, rows: Rows) -> None:
        self._add(rows)
        self.count += len(rows)

    @abstractmethod
    def _add(self, rows: Rows) -> None:
        """Add the rows' sums to `totals`."""

    def _merge(self, other: Self) -> None:
        for name in self._settings:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"other must have the same {name} to merge; {theirs!r} is not {mine!r}")
        self.totals += other.totals

    def _state(self) -> State:
        return {"totals": self.totals.copy()}

    def _load(self, state: Mapping[str, Any]) -> None:
        totals = np.array(state["totals"], dtype=np.float64)
        if totals.shape != self.totals.shape:
            raise ValueError(f"state has totals of shape {totals.shape}, got expected {self.totals.shape}")
        self.totals = totals
