"""Normalisers inside a model: they learn the scale of a feature from the stream, on the device.

Each observes batches (B, q), ignores NaN and ±inf, and maps finite values (B, q) to (B, q) in the same dtype. A value
is clamped to the range seen so far, so the result is always finite and bounded. A feature that was not observed yet has
the normalised value 0.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from daes.distribution.base import check_positive
from daes.embedding.precision import KeepsPrecision

LARGEST = 1e100
"""Larger magnitudes, which only float64 has, are clamped to this one, so that their squares do not overflow."""


class Normaliser(KeepsPrecision, ABC):
    """Base of the normalisers: keeps the range seen."""

    minimum: Tensor
    maximum: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        check_positive(num_features=num_features)
        self.register_buffer("minimum", torch.full((num_features,), torch.inf, dtype=torch.float64))
        self.register_buffer("maximum", torch.full((num_features,), -torch.inf, dtype=torch.float64))

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Update the statistics with values (B, q), NaN and ±inf included."""
        if values.shape[0]:
            seen = torch.isfinite(values)
            self.minimum.copy_(torch.minimum(self.minimum, values.where(seen, torch.inf).amin(0)))
            self.maximum.copy_(torch.maximum(self.maximum, values.where(seen, -torch.inf).amax(0)))

    @abstractmethod
    def forward(self, values: Tensor) -> Tensor:
        """Finite values (B, q) → normalised values (B, q)."""

    def _range(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The range in `dtype`; [0, 0], which makes every difference 0, if there is none yet or only one value."""
        some = self.maximum > self.minimum
        return self.minimum.where(some, 0.0).to(dtype), self.maximum.where(some, 0.0).to(dtype)


class MinMax(Normaliser):
    """The position of a value in the range seen: (x − min) / (max − min), from 0 to 1; 0 if the range is one point.

    It does not depend on how a stream is split into batches.

    >>> normaliser = MinMax(1)
    >>> normaliser(torch.tensor([[3.0]]))
    tensor([[0.]])
    >>> normaliser.observe(torch.tensor([[1.0], [5.0], [torch.nan]]))
    >>> normaliser(torch.tensor([[1.0], [2.0], [5.0], [99.0]])).flatten()
    tensor([0.0000, 0.2500, 1.0000, 1.0000])
    """

    def forward(self, values: Tensor) -> Tensor:
        low, high = self._range(values.dtype)
        # The difference of halves cannot overflow.
        width = torch.where(high > low, high / 2 - low / 2, 1.0)
        return (torch.clamp(values, low, high) / 2 - low / 2) / width


class Standardise(Normaliser):
    """The standard score (x − mean) / deviation, x clamped to the range seen; 0 if that is one point.

    Mean and population variance are those of all values observed, by Chan's parallel update: up to rounding they do not
    depend on how a stream is split into batches.

    >>> normaliser = Standardise(1)
    >>> normaliser.observe(torch.tensor([[1.0], [torch.nan]]))
    >>> normaliser.observe(torch.tensor([[3.0], [5.0], [7.0]]))
    >>> normaliser.mean, normaliser.variance
    (tensor([4.], dtype=torch.float64), tensor([5.], dtype=torch.float64))
    >>> normaliser(torch.tensor([[4.0], [7.0], [1e30]])).flatten()
    tensor([0.0000, 1.3416, 1.3416])
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        for name in ("count", "mean", "squares"):
            self.register_buffer(name, torch.zeros(num_features, dtype=torch.float64))

    @property
    def variance(self) -> Tensor:
        """The variance of the values observed, (q,); 0 if there are none."""
        return self.squares / self.count.clamp(min=1)

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        if not values.shape[0]:
            return
        seen = torch.isfinite(values)
        values = values.double().where(seen, torch.nan).clamp(-LARGEST, LARGEST)
        super().observe(values)
        new = seen.sum(0)
        mean = values.where(seen, 0.0).sum(0) / new.clamp(min=1)
        squares = (values - mean).where(seen, 0.0).square().sum(0)
        share = new / (self.count + new).clamp(min=1)
        shift = mean - self.mean
        self.squares.add_(squares + shift.square() * self.count * share)
        self.mean.add_(shift * share)
        self.count.add_(new)

    def forward(self, values: Tensor) -> Tensor:
        low, high = self._range(values.dtype)
        half_mean = torch.clamp(self.mean.to(values.dtype), low, high) / 2
        half_deviation = (self.variance.sqrt() / 2).to(values.dtype)
        half_deviation = torch.where(half_deviation > 0, half_deviation, 1.0)
        return (torch.clamp(values, low, high) / 2 - half_mean) / half_deviation
