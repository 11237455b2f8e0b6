"""Knots per feature, and what is computed from them: place, rank, normal score, standardised value."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from daes.distribution.base import check_positive
from daes.embedding.interpolation import coordinate
from daes.embedding.normal import normal_score
from daes.embedding.precision import KeepsSinglePrecision

FeatureInput = Literal["value", "score", "rank"]
"""A number of unit scale, computed from a value and its feature's distribution."""
INPUTS: tuple[FeatureInput, ...] = get_args(FeatureInput)

Bounds = tuple[float, float] | Sequence[tuple[float, float]]
"""A pair (low, high) for all features, or one pair per feature."""

FARTHEST_DEVIATION = 4.0
"""Standardised values are clamped to this many deviations."""

LIKELY_LEVELS = (np.arange(200) + 0.5) / 200
"""Levels of 200 equally likely quantiles, whose mean and deviation are centre and scale: outliers do not move them."""


class FeatureKnots(KeepsSinglePrecision, ABC):
    """Knots q_0 ≤ q_1 ≤ … ≤ q_K of each of q features, which follow a stream and describe its distributions.

    The knots are the smallest value, the i/K quantiles for 0 < i < K, and the largest value. A subclass keeps the
    statistics and sets the knots from them.

    **Shape.** `knots` (q, K+1), NaN for a feature without a value yet; `centre` and `scale` (q,), mean and standard
    deviation of 200 equally likely quantiles. The methods that read the knots take finite values (B, q) and return
    (B, q), 0 for a feature without a value yet.

    Args:
        num_features: number q of features.
        num_knots: number K of intervals between knots.
        bounds: fixed outer knots, in place of the smallest and largest value seen.
    """

    knots: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, num_features: int, num_knots: int, bounds: Bounds | None) -> None:
        super().__init__()
        check_positive(num_features=num_features, num_knots=num_knots)
        self.num_features = num_features
        self.num_knots = num_knots
        self.register_buffer("knots", torch.full((num_features, num_knots + 1), torch.nan))
        self.register_buffer("centre", torch.zeros(num_features))
        self.register_buffer("scale", torch.zeros(num_features))
        self.levels = np.append(np.arange(1, num_knots) / num_knots, LIKELY_LEVELS)
        """Levels of the inner knots, followed by those of the quantiles that give centre and scale."""
        self._bounds = _check_bounds(bounds, num_features)

    @property
    @abstractmethod
    def follows(self) -> bool:
        """Whether `observe` changes anything; after `freeze` it does not."""

    @abstractmethod
    def observe(self, values: Tensor) -> None:
        """Update the statistics with values (B, q), NaN and ±inf included."""

    @abstractmethod
    def freeze(self) -> Self:
        """Keep the knots as they are and drop everything that is only needed to update them."""

    def known(self) -> Tensor:
        """Which features have knots, (q,)."""
        return torch.isfinite(self.knots[:, 0])

    def place(self, values: Tensor) -> Tensor:
        """The position of each value among its feature's knots, from 0 to K: the sum of its thermometer vector."""
        return coordinate(values.to(torch.promote_types(values.dtype, self.knots.dtype)), self.knots)

    def score(self, place: Tensor) -> Tensor:
        """The normal score Φ⁻¹(rank) of a place; a rank is at least half a knot, their resolution, from 0 and 1."""
        half = 0.5 / self.num_knots
        return torch.where(self.known(), normal_score((place / self.num_knots).clamp(half, 1 - half), half), 0.0)

    def standardised(self, values: Tensor) -> Tensor:
        """(x − centre) / scale, clamped to ±4; 0 for a constant feature."""
        spread = torch.where(self.scale > 0, self.scale, torch.inf)
        deviation = (values / 2 - self.centre / 2) / (spread / 2)  # halves cannot overflow
        return deviation.clamp(-FARTHEST_DEVIATION, FARTHEST_DEVIATION)

    def input(self, kind: FeatureInput, values: Tensor, place: Tensor | None) -> Tensor:
        """The input of unit scale (B, q) for a network, from finite values and their places among the knots."""
        if kind == "value":
            return self.standardised(values)
        assert place is not None
        if kind == "score":
            return self.score(place)
        return torch.where(self.known(), 12**0.5 * (place / self.num_knots - 0.5), 0.0)

    def extra_repr(self) -> str:
        return f"num_features={self.num_features}, num_knots={self.num_knots}"

    def _set_ends(self, low: Tensor, high: Tensor, count: Tensor) -> None:
        """Set the outer knots from the range and the number of values seen, (q,) each."""
        if self._bounds is not None:
            low, high = torch.where(count > 0, self._bounds.to(self.knots).T, torch.nan)
        self.knots[:, 0], self.knots[:, -1] = low, high

    def _set_quantiles(self, features: Tensor | slice, quantiles: Tensor) -> None:
        """Set inner knots, centre and scale of some features from their quantiles at `levels`, (n, L)."""
        inner, bulk = quantiles.to(self.knots.device).tensor_split([self.num_knots - 1], 1)
        self.knots[features, 1:-1] = inner.to(self.knots.dtype).clamp(
            self.knots[features, :1], self.knots[features, -1:]
        )
        bulk = bulk.double().nan_to_num()  # a sum of large numbers may overflow float32
        self.centre[features] = bulk.mean(1).to(self.centre.dtype)
        self.scale[features] = bulk.std(1, correction=0).to(self.scale.dtype)


def _check_bounds(bounds: Bounds | None, num_features: int) -> Tensor | None:
    """One finite pair (low, high) per feature as a tensor (q, 2), or None."""
    if bounds is None:
        return None
    pairs = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (num_features, 2))
    if not (np.isfinite(pairs).all() and (pairs[:, 0] <= pairs[:, 1]).all()):
        raise ValueError(f"bounds must be finite pairs (low, high) with low <= high, got {bounds}")
    return torch.tensor(pairs)
