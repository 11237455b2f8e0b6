"""The base class of all estimators of a feature's distribution, and checks of their arguments."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
State = dict[str, Any]
"""An estimator's state: NumPy arrays and plain values (int, float, str, None), never a pickle."""


class Mergeable(ABC):
    """Base of estimators and metrics: saving, loading, and checks that only what fits is loaded or merged.

    A subclass implements `_merge`, `_state` and `_load`. It names in `_settings` the attributes that must be equal for
    a merge or a load, and in `_statistics` other attributes that belong to the state.
    """

    _settings: ClassVar[tuple[str, ...]] = ()
    _statistics: ClassVar[tuple[str, ...]] = ("count",)

    def state_dict(self) -> State:
        """Everything needed to continue bit for bit."""
        values = {name: getattr(self, name) for name in (*self._settings, *self._statistics)}
        return {"kind": type(self).__name__, **values, **self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an object with the same settings."""
        expected = self.state_dict()
        missing = sorted(expected.keys() - state.keys())
        if missing:
            raise ValueError(f"state is incomplete or of another version: {', '.join(missing)} missing")
        for name in ("kind", *self._settings):
            if not np.array_equal(state[name], expected[name]):
                raise ValueError(f"state must have {name}={_brief(expected[name])}, got {_brief(state[name])}")
        self._load(state)  # first: a state that it rejects changes nothing
        for name in self._statistics:
            setattr(self, name, type(expected[name])(state[name]))

    def _check_other(self, other: Self) -> None:
        """Raise unless `other` can be merged into this object."""
        if type(other) is not type(self):
            raise TypeError(f"other must be a {type(self).__name__} to merge, got {type(other).__name__}")
        if other is self:
            raise ValueError(f"other must have seen other values, got this {type(self).__name__} itself")
        for name in self._settings:
            mine, theirs = getattr(self, name), getattr(other, name)
            if not np.array_equal(mine, theirs):
                raise ValueError(f"other must have {name}={_brief(mine)} to merge, got {_brief(theirs)}")

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Add an object with the same settings; the statistics do not include it yet."""

    @abstractmethod
    def _state(self) -> State:
        """The subclass's part of the state, as copies."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Restore the subclass's part of the state."""


class DistributionEstimator(Mergeable):
    """Estimates the distribution of one feature at any point of an unbounded stream, in bounded memory.

    **Shape.** `update` takes a 1-D array of any length; `quantile` and `cdf` take an array of any shape and return one
    of the same shape. NaN and ±inf are skipped and counted in `skipped`, not in `count`, the number of finite values.
    `minimum` and `maximum` are those of the stream, NaN before the first value.

    The base class checks arguments, skips and counts. A subclass implements the algorithm, `_absorb`, `_quantile` and
    `_cdf`, and what `Mergeable` requires.

    >>> from daes.distribution import JumpReservoir
    >>> estimator: DistributionEstimator = JumpReservoir(size=1000)
    >>> estimator.update(np.arange(100.0))
    >>> estimator.count, estimator.minimum, estimator.maximum
    (100, 0.0, 99.0)
    >>> estimator.quantile([0.25, 0.5])
    array([24., 49.])
    >>> estimator.cdf([9.0, 49.0])
    array([0.1, 0.5])
    """

    _statistics: ClassVar[tuple[str, ...]] = ("count", "skipped", "minimum", "maximum")

    def __init__(self) -> None:
        self.count = 0
        self.skipped = 0
        self.minimum = float("nan")
        self.maximum = float("nan")

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the state."""
        return sum(value.nbytes for value in self.state_dict().values() if isinstance(value, np.ndarray))

    def update(self, values: ArrayLike) -> None:
        """Observe the next values of the stream."""
        batch = check_values(values)
        if not batch.size:
            return
        # Both reductions propagate NaN and ±inf, so they give the range and show whether all values are finite.
        low, high = float(np.minimum.reduce(batch)), float(np.maximum.reduce(batch))
        if not (isfinite(low) and isfinite(high)):
            finite = batch[np.isfinite(batch)]
            self.skipped += batch.size - finite.size
            if not finite.size:
                return
            batch, low, high = finite, float(finite.min()), float(finite.max())
        self._absorb(batch)
        self.advance(batch.size, low, high)

    def advance(self, seen: int, low: float, high: float) -> None:
        """Count `seen` more finite values, with minimum `low` and maximum `high`."""
        self.count += seen
        # Before the first value both are NaN, and every comparison with NaN is false.
        if not self.minimum <= low:
            self.minimum = low
        if not self.maximum >= high:
            self.maximum = high

    def quantile(self, levels: ArrayLike) -> Floats:
        """Estimate quantiles, the inverted CDF: inf{x : F(x) ≥ level}. NaN before the first value."""
        wanted = check_levels(levels)
        if not self.count:
            return np.full(wanted.shape, np.nan)
        return self._quantile(wanted)

    def cdf(self, values: ArrayLike) -> Floats:
        """Estimate F(x), the fraction of the stream that is ≤ x. NaN before the first value."""
        points = np.asarray(values, dtype=np.float64)
        if not self.count:
            return np.full(points.shape, np.nan)
        return np.where(np.isnan(points), np.nan, self._cdf(points))

    def merge(self, other: Self) -> None:
        """Add an estimator of a disjoint stream: this one then estimates the union of both."""
        self._check_other(other)
        if other.count:
            self._merge(other)
            self.advance(other.count, other.minimum, other.maximum)
        self.skipped += other.skipped

    @abstractmethod
    def _absorb(self, values: Floats) -> None:
        """Add finite values, at least one; `count` does not include them yet."""

    @abstractmethod
    def _quantile(self, levels: Floats) -> Floats:
        """Quantiles at valid levels; at least one value was seen."""

    @abstractmethod
    def _cdf(self, values: Floats) -> Floats:
        """The CDF at any points, ±inf included; the result at NaN is ignored. At least one value was seen."""


def check_values(values: ArrayLike, name: str = "values") -> Floats:
    """The values as a 1-D float64 array; raises if they are not numeric or not 1-D. `name` is for the error."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size and array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    return array.astype(np.float64, copy=False)


def check_levels(levels: ArrayLike) -> Floats:
    """The quantile levels as a float64 array; raises if one lies outside [0, 1]."""
    array = np.asarray(levels, dtype=np.float64)
    outside = array[~((array >= 0) & (array <= 1))]
    if outside.size:
        raise ValueError(f"levels must lie in [0, 1], got {outside.flat[0]}")
    return array


def check_positive(**arguments: int) -> None:
    """Raise unless each argument is a positive integer."""
    _check_integers(1, "positive", arguments)


def check_non_negative(**arguments: int) -> None:
    """Raise unless each argument is a non-negative integer."""
    _check_integers(0, "non-negative", arguments)


def _check_integers(least: int, kind: str, arguments: Mapping[str, int]) -> None:
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a {kind} integer, got {value!r}")


def inverted_cdf(ordered: Floats, levels: Floats) -> Floats:
    """inf{x : F(x) ≥ level} of a sorted, non-empty sample, which is one of its values.

    >>> inverted_cdf(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.25, 0.26, 1.0]))
    array([1., 1., 2., 4.])
    """
    picked: Floats = ordered[rank_of(levels, ordered.size).astype(np.int64) - 1]
    return picked


def rank_of(levels: Any, size: Any) -> Any:
    """The least rank r ≥ 1 with r/size ≥ level, for NumPy arrays and for torch tensors alike.

    >>> rank_of(np.array([0.0, 0.07, 1.0]), 100)
    array([  1.,   7., 100.])
    """
    rank = -(-levels * size // 1)  # rounded up
    # level·size may round just past a whole number (0.07·100); the definition asks whether rank/size reaches the level.
    rank = rank - ((rank - 1) / size >= levels) * 1
    return rank + (rank < 1) * 1


def just_below(values: Floats) -> Floats:
    """The largest floats below the values."""
    with np.errstate(over="ignore"):  # −inf below the lowest float
        return np.nextafter(values, -np.inf)


def _brief(value: Any) -> str:
    """A value for an error message, at most 80 characters."""
    text = np.array2string(value, threshold=8) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
