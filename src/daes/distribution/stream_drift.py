"""Drift of features along a stream, by segments; only the first and the current segment are in memory."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daes.distribution.base import Floats, Ints, check_positive, check_values
from daes.distribution.drift import (
    SortedSample,
    bin_cuts,
    bin_masses,
    check_binning,
    ks_by_chance,
    psi_by_chance,
    psi_of_masses,
    with_left_limits,
)


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
    counts: Ints
    """Finite values of the segment."""
    bounds: Ints
    bins: int
    """Number of bins with values in segment 0: fewer than requested if values tie."""

    @property
    def segments(self) -> int:
        return self.counts.size

    @property
    def psi_by_chance(self) -> Floats:
        """The expected PSI of each segment of a column without drift."""
        return self._without_itself(psi_by_chance(self.bins, self.counts, self.counts[0]))

    @property
    def ks_by_chance(self) -> Floats:
        """The expected KS of each segment of a column without drift."""
        return self._without_itself(ks_by_chance(self.counts, self.counts[0]))

    def _without_itself(self, by_chance: Floats) -> Floats:
        """Segment 0 does not differ from itself."""
        by_chance[0] = 0.0 if self.counts[0] else np.nan
        return by_chance

    def __str__(self) -> str:
        empty = int((self.counts == 0).sum())
        return "\n".join(
            [
                f"{self.segments} segments, {int(self.counts.sum())} values, {empty} segments without any",
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

    >>> print(drift_profile([1, 2, 3, 4, 1, 2, 3, 4, 3, 4, 5, 6, 1, 2, np.nan, np.nan], segments=4, bins=2))
    4 segments, 14 values, 0 segments without any
    PSI      median 2.302, largest 4.604 in segment 2 (by chance 0.5)
    KS       median 0.25, largest 0.5 in segment 2 (by chance 0.6143)
    missing  median 0, largest 0.5 in segment 3
    """
    values = check_values(column, "column")
    if values.size and not np.isfinite(values).any():
        raise ValueError(f"column must have a finite value, got none among {values.size}")
    (profile,) = stream_drift([values[:, None]], values.size, segments, bins, floor=floor)
    return profile


def stream_drift(
    batches: Iterable[ArrayLike], num_rows: int, segments: int = 100, bins: int = 10, *, floor: float = 1e-4
) -> list[DriftProfile]:
    """Split the rows of a stream into segments and compare each with the first, feature by feature.

    Equals `drift_profile` of each column, with at most two segments in memory.

    Args:
        batches: (B, q) arrays in the order of the stream; NaN is missing.
        num_rows: total number of rows.
        segments, bins, floor: as in `drift_profile`.

    Returns:
        one profile per feature.
    """
    check_binning(bins, floor)
    check_positive(segments=segments)
    if not 2 <= segments <= num_rows:
        raise ValueError(f"segments must lie between 2 and the number of rows, {num_rows}, got {segments!r}")
    bounds = np.arange(segments + 1) * num_rows // segments
    first: list[_FirstSegment] = []
    found: list[list[tuple[float, float, int]]] = []
    for rows in _cut(batches, bounds):
        columns = [column[np.isfinite(column)] for column in rows.T]
        first = first or [_FirstSegment(column, bins, floor) for column in columns]
        found.append([reference.compare(column) for reference, column in zip(first, columns, strict=True)])
    profiles = []
    for reference, series in zip(first, zip(*found, strict=True), strict=True):
        psi, ks, counts = (np.array(values) for values in zip(*series, strict=True))
        profiles.append(DriftProfile(psi, ks, 1 - counts / np.diff(bounds), counts, bounds, reference.filled_bins))
    return profiles


class _FirstSegment:
    """The finite values of a column's first segment, which those of the others are compared with."""

    def __init__(self, values: Floats, bins: int, floor: float) -> None:
        self.size, self.floor, self.filled_bins = values.size, floor, 0
        if values.size:
            sample = SortedSample(values)
            self.cuts = bin_cuts(sample, bins)
            self.masses = bin_masses(sample, self.cuts)
            self.filled_bins = int((self.masses > 0).sum())
            self.probes = with_left_limits(sample.distinct)
            self.cdf = sample.cdf(self.probes)

    def compare(self, values: Floats) -> tuple[float, float, int]:
        """PSI and KS of the values of another segment, NaN if either has none; and how many values there are."""
        if not self.size or not values.size:
            return float("nan"), float("nan"), values.size
        segment = SortedSample(values)
        psi = float(psi_of_masses(self.masses, bin_masses(segment, self.cuts), self.floor))
        return psi, float(np.abs(segment.cdf(self.probes) - self.cdf).max()), values.size


def _cut(batches: Iterable[ArrayLike], bounds: Ints) -> Iterable[Floats]:
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


def _span(name: str, series: Floats, by_chance: Floats | None) -> str:
    known = series[~np.isnan(series)]
    if not known.size:
        return f"{name:<8} undefined: the first segment has no finite value"
    largest = int(np.nanargmax(series))
    chance = "" if by_chance is None else f" (by chance {by_chance[largest]:.4g})"
    return f"{name:<8} median {np.median(known):.4g}, largest {series[largest]:.4g} in segment {largest}{chance}"
