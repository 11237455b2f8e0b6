"""The scores of a trial row by row, for tests over rows and learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daes.metrics.auc import exact_auc
from daes.metrics.base import check_rows
from daes.metrics.stream import LogLoss

EIGHTHS = 8
"""Number of parts of a learning curve."""


@dataclass(frozen=True)
class Predictions:
    """Logits and labels of the rows that a trial is evaluated on, in the order of the stream.

    **Shape.** Each array is (n,).

    Args:
        logits: scores given before the model learned from the row; NaN where a score was not finite.
        labels: whether the row was clicked.
        weights: weights of the rows; None for 1 each.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.bool_]
    weights: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return self.labels.size

    def __getitem__(self, rows: slice | NDArray[Any]) -> "Predictions":
        return Predictions(self.logits[rows], self.labels[rows], None if self.weights is None else self.weights[rows])

    @property
    def scored(self) -> NDArray[np.bool_]:
        """The rows that have a score."""
        return np.isfinite(self.logits)

    @property
    def second_half(self) -> "Predictions":
        """The rows from the middle on."""
        return self[len(self) // 2 :]

    def measure(self) -> dict[str, float]:
        """Exact AUC and LogLoss of the rows that have a score; NaN where undefined."""
        rows = self[self.scored]
        if not len(rows):
            return {"auc": float("nan"), "logloss": float("nan")}
        loss = LogLoss()
        loss.absorb(check_rows(rows.logits, rows.labels, rows.weights))
        return {"auc": exact_auc(rows.logits, rows.labels, rows.weights), "logloss": loss.compute()}

    def curve(self, parts: int = EIGHTHS) -> dict[str, list[float]]:
        """AUC and LogLoss of each of `parts` equal parts of the rows.

        >>> Predictions(np.float32([0, 1, 1, 0]), np.array([False, True, False, True])).curve(2)["auc"]
        [1.0, 0.0]
        """
        marks = np.linspace(0, len(self), parts + 1).round().astype(int)
        measured = [self[start:stop].measure() for start, stop in pairwise(marks)]
        return {name: [one[name] for one in measured] for name in ("auc", "logloss")}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays to store; labels take one bit each."""
        arrays: dict[str, NDArray[Any]] = {"logits": self.logits, "labels": np.packbits(self.labels)}
        return arrays if self.weights is None else {**arrays, "weights": self.weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `to_arrays`."""
        logits = arrays["logits"]
        labels = np.unpackbits(arrays["labels"], count=logits.size).astype(np.bool_)
        return cls(logits, labels, arrays.get("weights"))

    @classmethod
    def concat(cls, pieces: Sequence["Predictions"]) -> Self:
        """Join pieces that are in the order of the stream."""
        weights = [piece.weights for piece in pieces if piece.weights is not None]
        return cls(
            np.concatenate([np.empty(0, np.float32), *(piece.logits for piece in pieces)]),
            np.concatenate([np.empty(0, np.bool_), *(piece.labels for piece in pieces)]),
            np.concatenate(weights) if weights else None,
        )
