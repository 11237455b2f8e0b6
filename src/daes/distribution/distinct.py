"""How many distinct values columns of hashes have, in fixed memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RANGE = 2.0**63
_TOGETHER = 8192


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
        self._smallest: list[NDArray[np.int64]] = [np.empty(0, np.int64) for _ in range(columns)]
        self._waiting: list[NDArray[np.int64]] = []

    def update(self, hashes: NDArray[np.int64]) -> None:
        """Take in rows (B, p) of hashes, uniform in [1, 2⁶³); 0 is a missing value and does not count."""
        self._waiting.append(hashes)
        if sum(map(len, self._waiting)) >= _TOGETHER:  # sorting few values at a time would cost more
            self._take_in()

    def estimate(self) -> NDArray[np.float64]:
        """How many distinct values each column has had, (p,)."""
        self._take_in()
        return np.array([self._estimate(smallest) for smallest in self._smallest])

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue."""
        self._take_in()
        return {"smallest": list(self._smallest)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that counts of the same size saved."""
        self._smallest, self._waiting = list(state["smallest"]), []

    def _take_in(self) -> None:
        if not self._waiting or not self._smallest:
            self._waiting = []
            return
        rows = np.concatenate(self._waiting)
        self._waiting = []
        for column, smallest in enumerate(self._smallest):
            values = rows[:, column]
            largest = smallest[-1] if len(smallest) == self.size else np.iinfo(np.int64).max
            values = values[(values > 0) & (values <= largest)]
            if len(values):
                self._smallest[column] = np.union1d(smallest, values)[: self.size]

    def _estimate(self, smallest: NDArray[np.int64]) -> float:
        if len(smallest) < self.size:
            return float(len(smallest))
        return (self.size - 1) / (float(smallest[-1]) / _RANGE)
