"""Number of distinct values in columns of hashes, estimated in fixed memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.native import arrays


class DistinctCounts:
    """Distinct values per column, estimated from the k smallest hashes (the k-minimum-values sketch).

    Fewer than k distinct values are counted exactly. With n ≥ k of them, the k-th smallest hash h_k, scaled to (0, 1],
    is about k/n, so n ≈ (k − 1) / h_k; the standard error is n / √(k − 2), three percent by default (Bar-Yossef et al.,
    "Counting distinct elements in a data stream", 2002).

    Args:
        columns: number p of columns.
        size: number k of hashes kept per column.

    >>> counts = DistinctCounts(1)
    >>> counts.update(np.array([[5], [7], [5], [0]]))
    >>> counts.estimate()
    array([2.])
    """

    def __init__(self, columns: int, size: int = 1024) -> None:
        self.size = size
        self._smallest = np.zeros((columns, size), np.int64)
        self._counts = np.zeros(columns, np.int64)
        self._seen = np.zeros((columns, 512), np.int64)

    def update(self, hashes: NDArray[np.int64]) -> None:
        """Add rows (B, p) of hashes, uniform in [1, 2⁶³); 0 is a missing value and not counted."""
        if hashes.ndim != 2 or hashes.shape[1] != len(self._counts):
            raise ValueError(f"hashes must have shape (B, {len(self._counts)}), got {hashes.shape}")
        if arrays.serves():
            arrays.take_smallest(hashes, self._smallest, self._counts, self._seen)
            return
        for column, (values, known) in enumerate(zip(hashes.T, self._known(), strict=True)):
            found = np.union1d(known, values[values > 0])[: self.size]
            self._smallest[column, : found.size], self._counts[column] = found, found.size

    def estimate(self) -> NDArray[np.float64]:
        """Estimated number of distinct values of each column, (p,)."""
        estimates = self._counts.astype(np.float64)
        full = self._counts == self.size
        estimates[full] = (self.size - 1) / (self._smallest[full, -1] / 2.0**63)
        return estimates

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue."""
        return {"smallest": [smallest.copy() for smallest in self._known()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an object with the same arguments."""
        self._seen[:] = 0
        for column, smallest in enumerate(state["smallest"]):
            self._smallest[column, : len(smallest)], self._counts[column] = smallest, len(smallest)

    def _known(self) -> list[NDArray[np.int64]]:
        return [smallest[:count] for smallest, count in zip(self._smallest, self._counts, strict=True)]
