"""How many distinct values columns of hashes have, in fixed memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.native import arrays

_RANGE = 2.0**63


class DistinctCounts:
    """The k smallest hashes of each column, which tell how many there are (k minimum values).

    Fewer than k distinct values are counted exactly. Of more, the k-th smallest hash lies at about k of n equal steps
    from 0 to the largest possible hash, so that n ≈ (k − 1) / h_k with h_k scaled to (0, 1]; the standard error is
    n / √(k − 2), three percent by default (Bar-Yossef et al., "Counting distinct elements in a data stream", 2002).

    Args:
        columns: the number p of columns.
        size: k.

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
        """Take in rows (B, p) of hashes, uniform in [1, 2⁶³); 0 is a missing value and does not count."""
        if arrays.serves():
            arrays.take_smallest(hashes, self._smallest, self._counts, self._seen)
            return
        for column, (values, known) in enumerate(zip(hashes.T, self._known(), strict=True)):
            found = np.union1d(known, values[values > 0])[: self.size]
            self._smallest[column, : found.size], self._counts[column] = found, found.size

    def estimate(self) -> NDArray[np.float64]:
        """How many distinct values each column has had, (p,)."""
        return np.array([self._estimate(smallest) for smallest in self._known()])

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue."""
        return {"smallest": [smallest.copy() for smallest in self._known()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that counts of the same size saved."""
        self._seen[:] = 0
        for column, smallest in enumerate(state["smallest"]):
            self._smallest[column, : len(smallest)], self._counts[column] = smallest, len(smallest)

    def _known(self) -> list[NDArray[np.int64]]:
        return [smallest[:count] for smallest, count in zip(self._smallest, self._counts, strict=True)]

    def _estimate(self, smallest: NDArray[np.int64]) -> float:
        if len(smallest) < self.size:
            return float(len(smallest))
        return (self.size - 1) / (float(smallest[-1]) / _RANGE)
