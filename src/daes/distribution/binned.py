"""Drift against a fixed reference in constant memory: additive counts over fixed bins."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from daes.distribution.base import Floats, Ints, State
from daes.distribution.drift import SortedSample, bin_cuts, psi_of_masses
from daes.native import arrays

_BINS, _RESOLUTION, _FLOOR = 10, 100, 1e-4
"""Bins of the PSI, quantiles at which CDFs are compared, and the smallest mass of a bin (see `psi`)."""
MOST_BY_CHANCE = 0.05
"""With a larger expected PSI without drift, a fifth of what is called a shift, PSI does not tell drift from chance."""


class DriftBins:
    """Bins of q features, cut at the quantiles of a reference, with PSI and KS computed from the counts of other rows.

    Counts are additive, so segments of a stream can be joined without keeping their values. `psi` equals
    `daes.distribution.psi` on the same values. `ks` is the largest difference between the CDFs at the percentiles of
    the reference: at most 1 % below the supremum if the reference has no ties.

    **Shape.** `count` takes (B, q), ignoring NaN and ±inf, and returns (q, C+1) where C is the largest number of cuts;
    `psi` and `ks` take such counts, possibly stacked as (…, q, C+1), and return (…, q).

    Args:
        reference: the values (N, q) that others are compared with. A feature without a finite value has no bins, and
            NaN for psi and ks.

    >>> from daes.distribution import psi
    >>> values = np.arange(200.0)
    >>> bins = DriftBins(values[:100, None])
    >>> counts = bins.count(values[50:90, None]) + bins.count(values[90:150, None])
    >>> bins.ks(counts)
    array([0.5])
    >>> bool(np.isclose(bins.psi(counts), psi(values[:100], values[50:150])).all())
    True
    """

    def __init__(self, reference: ArrayLike) -> None:
        given = np.asarray(reference)
        values = given.astype(np.float64, copy=False)
        if values.ndim != 2:
            raise ValueError(f"reference must have shape (N, q), got {values.shape}")
        finite = [column[np.isfinite(column)] for column in values.T]
        samples = [SortedSample(column) if column.size else None for column in finite]
        # The deciles are among the percentiles, so every coarse cut is also a fine one.
        self.cuts, self._coarse_cuts = (
            _stack([bin_cuts(sample, parts) if sample else np.empty(0) for sample in samples])
            for parts in (_RESOLUTION, _BINS)
        )
        self.expected: Ints = self.count(given)

    @property
    def num_features(self) -> int:
        """Number q of features."""
        return len(self.cuts)

    def count(self, values: ArrayLike) -> Ints:
        """Number of the values (B, q) in each bin, (q, C+1)."""
        batch = np.asarray(values)
        if batch.ndim != 2 or batch.shape[1] != self.num_features:
            raise ValueError(f"values must have shape (B, {self.num_features}), got {batch.shape}")
        if batch.dtype == np.float32 and arrays.serves() and batch.strides[1] == batch.itemsize:
            return arrays.count_bins(batch, self.cuts)
        batch = batch.astype(np.float64, copy=False)
        width = self.cuts.shape[1] + 1
        counts = np.zeros((self.num_features, width), dtype=np.int64)
        for feature, (cuts, column) in enumerate(zip(self.cuts, batch.T, strict=True)):
            finite = column[np.isfinite(column)]
            counts[feature] = np.bincount(cuts.searchsorted(finite), minlength=width)
        return counts

    def psi(self, counts: Ints) -> Floats:
        """Population Stability Index of each feature against the reference; NaN where either side has no value."""
        flat = counts.reshape(-1, *self.expected.shape)
        result = np.full(flat.shape[:2], np.nan)
        for feature in range(self.num_features):
            reference, others = self._coarse(self.expected, feature), self._coarse(flat, feature)
            rows = np.flatnonzero(others.sum(axis=1) * reference.sum())
            masses = others[rows] / others[rows].sum(axis=1, keepdims=True)
            result[rows, feature] = psi_of_masses(reference / max(reference.sum(), 1), masses, _FLOOR)
        return result.reshape(counts.shape[:-1])

    def ks(self, counts: Ints) -> Floats:
        """Largest gap at the cuts between each feature's CDF and the reference's; NaN where either has no value."""
        gaps: Floats = np.abs(_cdf(counts) - _cdf(self.expected)).max(axis=-1)
        return gaps

    @property
    def filled(self) -> Ints:
        """Number of bins of the PSI with reference values, (q,): fewer than requested if values tie."""
        filled = [np.count_nonzero(self._coarse(self.expected, feature)) for feature in range(self.num_features)]
        return np.array(filled, dtype=np.int64)

    def state_dict(self) -> State:
        """Settings, cuts and the reference's counts."""
        return {
            "bins": _BINS,
            "resolution": _RESOLUTION,
            "floor": _FLOOR,
            "cuts": self.cuts,
            "coarse_cuts": self._coarse_cuts,
            "expected": self.expected,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The bins of a `state_dict`."""
        made = cls.__new__(cls)
        made.cuts, made._coarse_cuts = (
            np.array(state[name], np.float64, order="C") for name in ("cuts", "coarse_cuts")
        )
        made.expected = np.array(state["expected"])
        return made

    def _coarse(self, counts: Ints, feature: int) -> Ints:
        """The counts (…, q, C+1) of one feature in the bins of the PSI."""
        cuts = self._coarse_cuts[feature]
        first_fine_bins = np.append(0, self.cuts[feature].searchsorted(cuts[cuts < np.inf]) + 1)
        return np.add.reduceat(counts[..., feature, :], first_fine_bins, axis=-1)


def _stack(rows: list[Floats]) -> Floats:
    """Rows of different lengths as one array, padded with +inf, which no finite value exceeds."""
    table = np.full((len(rows), max((row.size for row in rows), default=0)), np.inf)
    for padded, row in zip(table, rows, strict=True):
        padded[: row.size] = row
    return table


def _cdf(counts: Ints) -> Floats:
    total = counts.sum(axis=-1, keepdims=True)
    share: Floats = np.cumsum(counts, axis=-1) / np.where(total > 0, total, np.nan)
    return share
