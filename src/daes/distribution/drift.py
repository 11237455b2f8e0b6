"""Distances between two distributions, and the drift of a feature along a stream."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import DistributionEstimator, Floats, check_positive, check_values, inverted_cdf


def psi(
    expected: ArrayLike | DistributionEstimator,
    actual: ArrayLike | DistributionEstimator,
    bins: int = 10,
    *,
    floor: float = 1e-4,
) -> float:
    r"""Population Stability Index of `actual` against `expected`.

    $$ \mathrm{PSI} = \sum_i (a_i - e_i) \ln \frac{a_i}{e_i} $$

    with $e_i$ and $a_i$ the masses of bin i. The bins are cut at the i/`bins` quantiles of `expected` and half-open,
    $(c_i, c_{i+1}]$, the outer two unbounded. Equal cuts (ties) are merged, so there may be fewer bins than requested.
    If the lowest cut is the smallest value of `expected`, values below it have their own bin, as values above the
    largest one always have: otherwise a decrease of a constant would not be seen.

    A bin that is empty on one side only would make the sum infinite. So in bins that are not empty on both sides, a
    mass below `floor` is raised to it, and the masses of that side are rescaled to a total of one.

    Args:
        expected: the reference: a 1-D sample (NaN and ±inf are ignored) or any estimator.
        actual: the distribution compared with it, likewise.
        bins: number of bins of equal expected mass, at least 2.
        floor: smallest mass of a bin that is not empty on both sides.

    Without drift, samples of n and m values still show (bins − 1)(1/n + 1/m) on average.

    >>> round(psi([1, 2, 3, 4], [1, 2, 3, 4]), 6)
    0.0
    >>> round(psi([0, 0, 1, 1], [0, 1, 1, 1], bins=2), 4)  # (0.25 − 0.5)·ln(0.25/0.5) + (0.75 − 0.5)·ln(0.75/0.5)
    0.2747
    """
    reference, other = _read("expected", expected), _read("actual", actual)
    _check_binning(bins, floor)
    cuts = _cuts(reference, bins)
    return _psi(_masses(reference, cuts), _masses(other, cuts), floor)


def kl_divergence(
    true: ArrayLike | DistributionEstimator,
    estimated: ArrayLike | DistributionEstimator,
    bins: int = 100,
    *,
    floor: float = 1e-6,
) -> float:
    r"""Kullback–Leibler divergence of an estimated distribution from the true one, in nats.

    $$ D(P \,\|\, Q) = \sum_i p_i \ln \frac{p_i}{q_i} $$

    over bins cut at the true i/`bins` quantiles, with the rules of `psi` for ties and for empty bins: $q_i$ is raised
    to `floor` where $p_i > 0$, and Q rescaled. So the result is finite, never negative, and 0 for equal masses.

    Args:
        true: the true distribution: a 1-D sample (NaN and ±inf are ignored) or any estimator.
        estimated: the estimate, likewise.
        bins: number of bins of equal true mass, at least 2.
        floor: smallest estimated mass of a bin with true mass.

    >>> kl_divergence(np.arange(1000), np.arange(1000))
    0.0
    >>> round(kl_divergence([0, 0, 0, 1], [0, 0, 1, 1], bins=4), 4)  # 0.75·ln(0.75/0.5) + 0.25·ln(0.25/0.5)
    0.1308
    """
    truth, estimate = _read("true", true), _read("estimated", estimated)
    _check_binning(bins, floor)
    # NOTE[DIFF]: the paper uses 100 intervals; here equal cuts are merged, because a feature of clustered integers
    # (most of its 1 %…99 % quantiles are ties) has fewer distinct intervals.
    cuts = _cuts(truth, bins)
    p = _masses(truth, cuts)
    q = _raised(_masses(estimate, cuts), p > 0, floor)
    # Rounding can make a sum of zero slightly negative.
    return max(float(np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0]))), 0.0)


def ks_statistic(
    a: ArrayLike | DistributionEstimator, b: ArrayLike | DistributionEstimator, *, points: int = 10_000
) -> float:
    r"""Kolmogorov–Smirnov statistic, the largest difference between two CDFs: $\sup_x |F_a(x) - F_b(x)|$.

    Exact if one side is a sample: between two neighbouring values of it that side is constant and the other monotone,
    so the largest difference is at the values themselves or just below them. (`scipy.stats.ks_2samp` does not take
    estimators.)

    Args:
        a: a 1-D sample (NaN and ±inf are ignored) or any estimator.
        b: likewise.
        points: two estimators are compared at the i/`points` quantiles of both, which is at most 1/`points` below the
            supremum, and exact for reservoirs of up to `points` values. Not used otherwise.

    >>> ks_statistic([1, 2, 3, 4], [3, 4, 5, 6])
    0.5
    """
    first, second = _read("a", a), _read("b", b)
    check_positive(points=points)
    probes = _probes(first, second, points)
    return float(np.abs(_cdf(first, probes) - _cdf(second, probes)).max())


@dataclass(frozen=True, eq=False)
class DriftProfile:
    """Drift of one column: entry s of each series compares segment s with segment 0.

    **Shape.** Every series has one entry per segment; `bounds` has one more: segment s is rows bounds[s] to
    bounds[s+1] − 1. A segment without a finite value has NaN in `psi` and `ks`; if segment 0 has none, all entries are
    NaN.
    """

    psi: Floats
    ks: Floats
    missing: Floats
    """Fraction of the segment's values that are missing (NaN) or ±inf."""
    counts: NDArray[np.int64]
    """Finite values of the segment."""
    bounds: NDArray[np.int64]
    bins: int
    """Number of bins with values in segment 0: fewer than requested if values tie."""

    @property
    def segments(self) -> int:
        return self.counts.size

    @property
    def empty(self) -> int:
        """Number of segments without a finite value."""
        return int((self.counts == 0).sum())

    @property
    def psi_by_chance(self) -> Floats:
        """The expected PSI of a column without drift: (bins − 1)(1/n₀ + 1/n_s).

        It is large for short segments: 0.13 with 137 values in each and ten bins.
        """
        return (self.bins - 1) * self._inverse_counts()

    @property
    def ks_by_chance(self) -> Floats:
        """The expected KS of a column without drift: √(π/2)·ln 2·√(1/n₀ + 1/n_s).

        This is the mean of Kolmogorov's distribution, for long segments of a continuous feature; ties make it smaller.
        """
        return float(np.sqrt(np.pi / 2) * np.log(2)) * np.sqrt(self._inverse_counts())

    def _inverse_counts(self) -> Floats:
        inverse = 1.0 / np.where(self.counts > 0, self.counts, np.nan)
        total: Floats = inverse + inverse[0]
        total[0] = 0.0 if self.counts[0] else np.nan
        return total

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.segments} segments, {int(self.counts.sum())} values, {self.empty} segments without any",
                _span("PSI", self.psi, self.psi_by_chance),
                _span("KS", self.ks, self.ks_by_chance),
                _span("missing", self.missing, None),
            ]
        )


def drift_profile(column: ArrayLike, segments: int = 1000, bins: int = 10, *, floor: float = 1e-4) -> DriftProfile:
    """Split a column, in stream order, into segments and compare each with the first.

    Args:
        column: the values, 1-D; NaN is missing.
        segments: number of segments, at least 2, of equal length up to one row.
        bins: as in `psi`.
        floor: as in `psi`.

    >>> profile = drift_profile([1, 2, 3, 4, 1, 2, 3, 4, 3, 4, 5, 6, 1, 2, np.nan, np.nan], segments=4, bins=2)
    >>> profile.ks
    array([0. , 0. , 0.5, 0.5])
    >>> profile.missing
    array([0. , 0. , 0. , 0.5])
    >>> print(profile)
    4 segments, 14 values, 0 segments without any
    PSI      median 2.302, largest 4.604 in segment 2 (by chance 0.5)
    KS       median 0.25, largest 0.5 in segment 2 (by chance 0.6143)
    missing  median 0, largest 0.5 in segment 3
    """
    values = _checked("column", column)
    _check_binning(bins, floor)
    check_positive(segments=segments)
    if segments < 2:
        raise ValueError(f"segments must be at least 2, got {segments!r}")
    if segments > values.size:
        raise ValueError(f"segments must be at most the number of values, {values.size}, got {segments!r}")
    finite = np.isfinite(values)
    if not finite.any():
        raise ValueError(f"column must have a finite value, got none among {values.size}")

    bounds = np.arange(segments + 1) * values.size // segments
    counts = np.add.reduceat(finite, bounds[:-1], dtype=np.int64)
    psi_series, ks_series = np.full(segments, np.nan), np.full(segments, np.nan)
    filled_bins = 0
    if counts[0]:
        reference = _Sample(values[: bounds[1]][finite[: bounds[1]]])
        cuts = _cuts(reference, bins)
        expected = _masses(reference, cuts)
        filled_bins = int((expected > 0).sum())
        probes = _with_left_limits(reference.distinct)
        reference_cdf = reference.cdf(probes)
        for s in np.flatnonzero(counts):
            rows = slice(bounds[s], bounds[s + 1])
            segment = _Sample(values[rows][finite[rows]])
            psi_series[s] = _psi(expected, _masses(segment, cuts), floor)
            ks_series[s] = np.abs(segment.cdf(probes) - reference_cdf).max()
    return DriftProfile(psi_series, ks_series, 1 - counts / np.diff(bounds), counts, bounds, filled_bins)


class _Readable(Protocol):
    """What a sample and an estimator have in common."""

    @property
    def minimum(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    def quantile(self, levels: ArrayLike, /) -> Floats: ...
    def cdf(self, values: ArrayLike, /) -> Floats: ...


class _Sample:
    """The distribution of a sample of at least one value, all finite."""

    def __init__(self, values: Floats) -> None:
        self.ordered = np.sort(values)

    @property
    def minimum(self) -> float:
        return float(self.ordered[0])

    @property
    def maximum(self) -> float:
        return float(self.ordered[-1])

    @property
    def distinct(self) -> Floats:
        first = np.concatenate([[True], self.ordered[1:] > self.ordered[:-1]])
        kept: Floats = self.ordered[first]
        return kept

    def quantile(self, levels: ArrayLike, /) -> Floats:
        return inverted_cdf(self.ordered, np.asarray(levels, dtype=np.float64))

    def cdf(self, values: ArrayLike, /) -> Floats:
        below: Floats = np.searchsorted(self.ordered, values, side="right") / self.ordered.size
        return below


def _read(name: str, given: ArrayLike | DistributionEstimator) -> _Readable:
    if isinstance(given, DistributionEstimator):
        if not given.count:
            raise ValueError(f"{name} must have seen a value, got {type(given).__name__} with count=0")
        return given
    values = _checked(name, given)
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise ValueError(f"{name} must have a finite value, got none among {values.size}")
    return _Sample(finite)


def _checked(name: str, given: ArrayLike) -> Floats:
    try:
        return check_values(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _check_binning(bins: int, floor: float) -> None:
    check_positive(bins=bins)
    if bins < 2:
        raise ValueError(f"bins must be at least 2, got {bins!r}")
    if not 0 < floor < 1 / bins:
        raise ValueError(f"floor must lie in (0, 1/bins), got {floor!r} with {bins=}")


def _cuts(reference: _Readable, bins: int) -> Floats:
    """The distinct inner quantiles, preceded by a cut just below the smallest value if that is one of them."""
    cuts = np.unique(reference.quantile(np.arange(1, bins) / bins))
    if cuts[0] <= reference.minimum:
        cuts = np.concatenate([_just_below(cuts[:1]), cuts])
    return cuts


def _masses(distribution: _Readable, cuts: Floats) -> Floats:
    """The mass of each interval (−∞, c_0], (c_0, c_1], …, (c_k, ∞)."""
    # The CDF of a sketch need not be monotone; a mass is never negative.
    below = np.maximum.accumulate(_cdf(distribution, cuts))
    masses: Floats = np.diff(below, prepend=0.0, append=1.0)
    return masses


def _cdf(distribution: _Readable, points: Floats) -> Floats:
    # The range of a stream is known exactly, even if the CDF of a sketch is inexact at the ends.
    inside = np.clip(distribution.cdf(points), 0.0, 1.0)
    return np.where(points < distribution.minimum, 0.0, np.where(points >= distribution.maximum, 1.0, inside))


def _raised(masses: Floats, filled: NDArray[np.bool_], floor: float) -> Floats:
    """The masses with those below `floor` in the filled bins raised to it, rescaled to a total of one."""
    low = filled & (masses < floor)
    if not low.any():
        return masses
    raised = np.where(low, floor, masses)
    return raised / float(raised.sum())


def _psi(expected: Floats, actual: Floats, floor: float) -> float:
    filled = (expected > 0) | (actual > 0)
    e, a = _raised(expected, filled, floor)[filled], _raised(actual, filled, floor)[filled]
    return float(np.sum((a - e) * np.log(a / e)))


def _probes(first: _Readable, second: _Readable, points: int) -> Floats:
    samples = [side for side in (first, second) if isinstance(side, _Sample)]
    if samples:
        return _with_left_limits(min(samples, key=lambda sample: sample.ordered.size).distinct)
    levels = np.arange(points + 1) / points
    return _with_left_limits(np.unique(np.concatenate([first.quantile(levels), second.quantile(levels)])))


def _with_left_limits(values: Floats) -> Floats:
    """The values, each preceded by the float just below it, where the CDF has not jumped yet."""
    both: Floats = np.stack([_just_below(values), values], axis=1).ravel()
    return both


def _just_below(values: Floats) -> Floats:
    with np.errstate(over="ignore"):  # −inf below the lowest float
        return np.nextafter(values, -np.inf)


def _span(name: str, series: Floats, by_chance: Floats | None) -> str:
    known = series[~np.isnan(series)]
    if not known.size:
        return f"{name:<8} undefined: the first segment has no finite value"
    largest = int(np.nanargmax(series))
    chance = "" if by_chance is None else f" (by chance {by_chance[largest]:.4g})"
    return f"{name:<8} median {np.median(known):.4g}, largest {series[largest]:.4g} in segment {largest}{chance}"
