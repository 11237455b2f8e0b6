"""Logistic regression by FTRL-proximal, one row at a time."""

import numpy as np
from numpy.typing import NDArray

from daes.experiments.rivals.base import Floats, Rival, register_rival
from daes.registry import Reference
from daes.stream.batch import Batch
from daes.stream.schema import Schema

_CLAMP = 4.0
_LARGEST = 128 * 4
"""The bin of float32's largest number, 2^128; one further bin is for missing values."""
_BINS = 2 * _LARGEST + 2


@register_rival(
    "ftrl",
    title="logistic regression by FTRL-proximal",
    short="FTRL",
    order=2,
    reference=Reference("Brendan McMahan et al.", "Ad Click Prediction: a View from the Trenches", "KDD", 2013),
)
class FTRL(Rival):
    """Logistic regression on standardised numbers and hashed categories, by FTRL-proximal, one row at a time.

        g = (σ(w·x) − y) x,   s = (√(n + g²) − √n) / α,   z ← z + g − s w,   n ← n + g²
        w = 0 where |z| ≤ λ₁, otherwise −(z − sign(z) λ₁) / ((β + √n) / α + λ₂)

    x has a 1 for the intercept; for each categorical field a 1 in the slot of its value (the hash modulo `slots`, with
    slots of its own for each field); for each number its standardised value (by the mean and deviation of the batches
    before, clamped to ±4) and a 1 in the slot of its logarithmic bin, ⌊4 log₂(1 + |x|)⌋ with the sign of x, or in the
    slot of missing values. A whole batch is scored before its rows are learned from.

    Args:
        alpha, beta: parameters of the step size α / (β + √n).
        l1, l2: λ₁ and λ₂.
        slots: number of slots per categorical field.
    """

    def __init__(
        self,
        schema: Schema,
        total_rows: int | None,
        *,
        alpha: float = 0.1,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        slots: int = 1 << 18,
    ) -> None:
        super().__init__(schema, total_rows)
        for name, value in {"alpha": alpha, "beta": beta, "slots": slots}.items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        for name, value in {"l1": l1, "l2": l2}.items():
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        self.alpha, self.beta, self.l1, self.l2, self.slots = alpha, beta, l1, l2, slots
        numbers = schema.num_numerical
        self._first_bin = 1 + numbers
        self._first_slot = self._first_bin + _BINS * numbers
        size = self._first_slot + slots * schema.num_categorical
        self.z, self.n = np.zeros(size), np.zeros(size)
        self._count, self._mean, self._squares = np.zeros(numbers), np.zeros(numbers), np.zeros(numbers)

    def score(self, batch: Batch) -> NDArray[np.float32]:
        index, values = self._features(batch)
        weights = self._solve(self.z[index], self.n[index])
        return np.asarray((weights * values).sum(1), np.float32)

    def learn(self, batch: Batch) -> None:
        assert batch.label is not None
        index, values = self._features(batch)
        weights = np.ones(len(batch)) if batch.weight is None else batch.weight.astype(np.float64)
        for row in range(len(batch)):
            self._step(index[row], values[row], float(batch.label[row]), weights[row])
        self._observe(batch.numerical.astype(np.float64))

    def _step(self, index: NDArray[np.int64], values: Floats, label: float, weight: float) -> None:
        """Learn from one row, whose slots are distinct."""
        z, n = self.z[index], self.n[index]
        w = self._solve(z, n)
        gradient = weight * (_sigmoid(float(w @ values)) - label) * values
        squares = n + gradient**2
        self.z[index] = z + gradient - (np.sqrt(squares) - np.sqrt(n)) / self.alpha * w
        self.n[index] = squares

    def _solve(self, z: Floats, n: Floats) -> Floats:
        shrunk = np.sign(z) * np.maximum(np.abs(z) - self.l1, 0.0)
        solved: Floats = -shrunk / ((self.beta + np.sqrt(n)) / self.alpha + self.l2)
        return solved

    def _features(self, batch: Batch) -> tuple[NDArray[np.int64], Floats]:
        """Slots (B, F), distinct within a row, and their values."""
        rows, numbers = len(batch), self.schema.num_numerical
        values = batch.numerical.astype(np.float64)
        seen = np.isfinite(values)
        deviation = np.sqrt(self._squares / np.maximum(self._count, 1))
        scaled = np.where(seen, values - self._mean, 0.0) / np.where(deviation > 0, deviation, 1.0)
        scaled = np.clip(np.where(self._count > 0, scaled, 0.0), -_CLAMP, _CLAMP)
        fields = self.schema.num_categorical
        bins = _log_bin(values) + self._first_bin + _BINS * np.arange(numbers)
        slots = batch.categorical % self.slots + self._first_slot + self.slots * np.arange(fields)
        index = np.concatenate([np.broadcast_to(np.arange(1 + numbers), (rows, 1 + numbers)), bins, slots], 1)
        found = np.concatenate([np.ones((rows, 1)), scaled, np.ones((rows, numbers + fields))], 1)
        return index, found

    def _observe(self, values: Floats) -> None:
        """Update mean and squared deviations of the finite values, by Chan's formula."""
        seen = np.isfinite(values)
        new = seen.sum(0)
        mean = np.where(seen, values, 0.0).sum(0) / np.maximum(new, 1)
        squares = (np.where(seen, values - mean, 0.0) ** 2).sum(0)
        share = new / np.maximum(self._count + new, 1)
        shift = mean - self._mean
        self._squares += squares + shift**2 * self._count * share
        self._mean += shift * share
        self._count += new

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.n))


def _log_bin(values: Floats) -> NDArray[np.int64]:
    """The logarithmic bin of each value, starting from 0; the last one where it is missing or infinite.

    >>> (_log_bin(np.array([0.0, 0.1, 1.0, 2.0, -1.0, np.nan])) - _LARGEST).tolist()
    [0, 0, 4, 6, -4, 513]
    """
    with np.errstate(invalid="ignore"):
        size = np.floor(4 * np.log2(1 + np.abs(values)))
    signed = np.copysign(np.minimum(size, _LARGEST), values) + _LARGEST
    return np.where(np.isfinite(values), signed, _BINS - 1).astype(np.int64)


def _sigmoid(logit: float) -> float:
    small = np.exp(-abs(logit))
    return float((1.0 if logit >= 0 else small) / (1.0 + small))
