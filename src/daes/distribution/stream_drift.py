"""Drift along a stream that does not fit into memory: only the first and the current segment are kept."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import Floats, inverted_cdf
from daes.distribution.drift import DriftProfile, ks_statistic, psi


def stream_drift(
    batches: Iterable[ArrayLike], num_rows: int, segments: int = 100, bins: int = 10, *, floor: float = 1e-4
) -> list[DriftProfile]:
    """Split the rows of a stream into segments and compare each with the first, feature by feature.

    Equals `drift_profile` of each column, with at most two segments in memory.

    Args:
        batches: (B, q) arrays in the order of the stream; NaN is missing.
        num_rows: total number of rows.
        segments: number of segments, at least 2, of equal length up to one row.
        bins: as in `psi`.
        floor: as in `psi`.

    Returns:
        one profile per feature.

    >>> rows = np.array([[1, 2, 3, 4, 1, 2, 3, 4, 3, 4, 5, 6, 1, 2, np.nan, np.nan]]).T
    >>> (profile,) = stream_drift([rows[:5], rows[5:]], num_rows=16, segments=4, bins=2)
    >>> profile.ks, profile.missing
    (array([0. , 0. , 0.5, 0.5]), array([0. , 0. , 0. , 0.5]))
    """
    if not 2 <= segments <= num_rows:
        raise ValueError(f"segments must lie between 2 and the number of rows, {num_rows}, got {segments!r}")
    bounds = np.arange(segments + 1) * num_rows // segments
    first: list[Floats] = []
    table: list[list[tuple[float, float, int]]] = []
    for rows in _cut(batches, bounds):
        columns = [column[np.isfinite(column)] for column in rows.T]
        first = first or columns
        table.append([_compare(one, other, bins, floor) for one, other in zip(first, columns, strict=True)])
    profiles = []
    for reference, series in zip(first, zip(*table, strict=True), strict=True):
        psi_series, ks_series, counts = (np.array(values) for values in zip(*series, strict=True))
        missing = 1 - counts / np.diff(bounds)
        profiles.append(DriftProfile(psi_series, ks_series, missing, counts, bounds, _filled(reference, bins)))
    return profiles


def _filled(reference: Floats, bins: int) -> int:
    """Number of bins with a value: one ends at each distinct i/bins quantile, the last at the largest value."""
    if not reference.size:
        return 0
    return np.unique(inverted_cdf(np.sort(reference), np.arange(1, bins + 1) / bins)).size


def _compare(reference: Floats, values: Floats, bins: int, floor: float) -> tuple[float, float, int]:
    if not reference.size or not values.size:
        return float("nan"), float("nan"), values.size
    return psi(reference, values, bins, floor=floor), ks_statistic(reference, values), values.size


def _cut(batches: Iterable[ArrayLike], bounds: NDArray[np.int64]) -> Iterable[Floats]:
    """The rows between each two bounds, (n, q)."""
    waiting: list[Floats] = []
    num_waiting = 0
    lengths = iter(np.diff(bounds).tolist())
    length = next(lengths)
    for given in batches:
        batch = np.asarray(given, dtype=np.float64)
        while num_waiting + len(batch) >= length:
            missing = length - num_waiting
            yield np.concatenate([*waiting, batch[:missing]])
            waiting, num_waiting, batch = [], 0, batch[missing:]
            length = next(lengths, 0)
            if not length:
                return
        if len(batch):
            waiting.append(batch)
            num_waiting += len(batch)
    if num_waiting or length:
        raise ValueError(f"batches must have {bounds[-1]} rows in total, got fewer")
