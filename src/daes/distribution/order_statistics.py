"""Order statistics: DAE's estimate of quantiles, the mean over batches of each batch's quantiles."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from daes.distribution.base import DistributionEstimator, Floats, State, check_levels, inverted_cdf
from daes.distribution.piecewise import cdf_between, quantile_between


class OrderStatistics(DistributionEstimator):
    """The mean over batches of each batch's quantiles (`OS` in the paper; the estimator of DAE).

        q_α = (1/t) · Σ_i inf{x : F_i(x) ≥ α}        F_i the empirical CDF of batch i = 1…t

    Every batch has the same weight, whatever its size; a batch without a finite value is ignored. Between two kept
    levels the quantile is interpolated linearly, outside the kept levels it is that of the nearest one; `cdf` is the
    right-continuous inverse.

    Accurate for large batches of i.i.d. values, biased under drift: a stream that moves linearly from U[a, a+(b−a)/t]
    to U[b−(b−a)/t, b] in t batches gives E[q_α] − Q_α = (t−1)(1−2α)(b−a)/(2t), so the estimated distribution is too
    narrow. The extreme levels estimate the mean smallest and largest value of a batch; those of the stream are
    `minimum` and `maximum`.

    Args:
        levels: the kept levels, increasing in [0, 1]; 101 equally spaced ones by default.

    >>> estimator = OrderStatistics(levels=[0.0, 0.5, 1.0])
    >>> estimator.update([1.0, 2.0, 3.0])
    >>> estimator.update([3.0, 6.0, float("nan"), 9.0])
    >>> estimator.batches, estimator.count, estimator.skipped
    (2, 6, 1)
    >>> estimator.quantile([0.0, 0.5, 0.75, 1.0])
    array([2., 4., 5., 6.])
    >>> estimator.cdf([1.0, 3.0, 4.0, 6.0])
    array([0.  , 0.25, 0.5 , 1.  ])
    """

    _settings: ClassVar[tuple[str, ...]] = ("levels",)
    _statistics: ClassVar[tuple[str, ...]] = (*DistributionEstimator._statistics, "batches")

    def __init__(self, levels: ArrayLike | None = None) -> None:
        super().__init__()
        kept = check_levels(np.arange(101) / 100 if levels is None else levels).copy()
        if kept.ndim != 1 or not kept.size:
            raise ValueError(f"levels must be one-dimensional and not empty, got shape {kept.shape}")
        if not (np.diff(kept) > 0).all():
            raise ValueError(f"levels must be increasing, got {kept.tolist()}")
        kept.setflags(write=False)
        self.levels = kept
        self.batches = 0
        self._means = np.zeros(kept.size)

    def _absorb(self, values: Floats) -> None:
        self._blend(inverted_cdf(np.sort(values), self.levels), 1)

    def _merge(self, other: Self) -> None:
        self._blend(other._means, other.batches)

    def _blend(self, means: Floats, batches: int) -> None:
        self.batches += batches
        share = batches / self.batches
        # The difference of two products does not overflow and keeps the mean of a constant. Rounding may swap two
        # nearly equal means.
        self._means = np.maximum.accumulate(self._means + (share * means - share * self._means))

    def _quantile(self, levels: Floats) -> Floats:
        return quantile_between(self._means, self.levels, levels)

    def _cdf(self, values: Floats) -> Floats:
        return cdf_between(self._means, self.levels, values)

    def _state(self) -> State:
        return {"means": self._means.copy()}

    def _load(self, state: Mapping[str, Any]) -> None:
        means = np.array(state["means"], dtype=np.float64)
        batches = int(state["batches"])
        if means.shape != self.levels.shape or not np.isfinite(means).all() or (means[1:] < means[:-1]).any():
            raise ValueError(f"state's means must be {self.levels.size} finite, nondecreasing values, got {means}")
        if not int(state["count"] > 0) <= batches <= state["count"]:
            raise ValueError(f"state's batches must be consistent with count={state['count']}, got {batches}")
        self._means = means
