"""Divergence of an estimate from a stream's distribution, its value by chance, and the cost of sampling."""

import numpy as np

from daes.distribution import DistributionEstimator, JumpReservoir
from daes.paper.published import RESERVOIR_SIZE

FLOOR = 1e-6
"""Minimum mass of a bucket, and minimum divergence in a denominator."""
_LEVELS = np.arange(1, 100) / 100
_SMALL = 10_000
_LEAST = 50


def bucket_divergence(truth: DistributionEstimator, estimate: DistributionEstimator) -> float:
    """KL divergence between the shares of the stream in the buckets of the true and of the estimated percentiles.

    Bucket i is (c_(i−1), c_i] with c_i the i-th percentile, ties kept: where several percentiles coincide, the first of
    their buckets contains all of the value's mass. An estimate slightly below such a value moves it to another bucket.

    >>> stream = JumpReservoir(1000)
    >>> stream.update(np.repeat([0.0, 1.0], [400, 600]))
    >>> bucket_divergence(stream, stream)
    0.0
    """
    p, q = (np.diff(truth.cdf(one.quantile(_LEVELS)), prepend=0.0, append=1.0) for one in (truth, estimate))
    filled = p > 0
    q = np.where(filled & (q < FLOOR), FLOOR, q)
    return max(float(np.sum(p[filled] * np.log(p[filled] / q[filled] * q.sum()))), 0.0)


def occupied_bins(truth: JumpReservoir) -> int:
    """The number of distinct intervals between the true percentiles; ties make it fewer than 100."""
    cuts = np.unique(truth.quantile(_LEVELS))
    return cuts.size + int(cuts[-1] < truth.maximum)


def kl_by_chance(bins: int, size: int, length: int) -> float:
    """The expected KL divergence of a uniform sample of `size` out of `length` values: (k−1)/(2m)·(1 − m/T).

    >>> round(kl_by_chance(100, 100_000, 36_300_000), 6)
    0.000494
    """
    return (bins - 1) / (2 * size) * (1 - size / length)


def expected_draws(size: int, length: int) -> dict[str, float]:
    """The expected number of random numbers that each rule draws over a stream; the first m values need none.

    RS: T − m. JRS, two per acceptance: the exact rule 2m·ln(T/m), the published one 2m·∫₁^(T/m) (1 − e^(−1/x)) dx.

    >>> {rule: f"{draws:.3e}" for rule, draws in expected_draws(100_000, 29_400_000).items()}
    {'reservoir': '2.930e+07', 'jump-paper': '1.051e+06', 'jump': '1.137e+06'}
    """
    logs = np.linspace(0.0, np.log(length / size), 10_001)
    accepted = float(np.trapezoid(-np.expm1(-np.exp(-logs)) * np.exp(logs), logs))
    return {
        "reservoir": float(length - size),
        "jump-paper": 2 * size * accepted,
        "jump": 2 * size * float(logs[-1]),
    }


def slots(length: int, paper_length: int) -> tuple[int, ...]:
    """Reservoir sizes for a stream of `length` values: the paper's share of it, and 10,000 if the share is smaller.

    >>> slots(29_400_000, 29_400_000), slots(107_000, 29_400_000)
    ((100000,), (364, 10000))
    """
    share = min(max(round(length * RESERVOIR_SIZE / paper_length), _LEAST), RESERVOIR_SIZE)
    return (share, _SMALL) if share < _SMALL and length >= 5 * _SMALL else (share,)
