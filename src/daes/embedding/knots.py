"""Knots per feature, and what is computed from them: place, rank, normal score, standardised value."""

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


class FeatureKnots(KeepsSinglePrecision):
    """Knots q_0 ≤ q_1 ≤ … ≤ q_K of each of q features, which describe their distributions.

    The knots are the smallest value, the i/K quantiles for 0 < i < K, and the largest value. They are fixed here;
    those of `FeatureDistributions` follow a stream.

    **Shape.** `knots` (q, K+1), NaN for a feature without a value yet; `centre` and `scale` (q,), mean and standard
    deviation of the knots, or of 200 equally likely quantiles if the knots follow a stream. The methods that read the
    knots take finite values (B, q) and return (B, q), 0 for a feature without a value yet.

    Args:
        knots: (q, K+1), ascending in each row; their dtype is kept.

    >>> known = FeatureKnots(torch.tensor([[0.0, 10.0, 20.0, 40.0]]))
    >>> known.place(torch.tensor([[5.0], [99.0]])).flatten(), known.rank(torch.tensor([[10.0]]))
    (tensor([0.5000, 3.0000]), tensor([[0.3333]]))
    """

    knots: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, knots: Tensor) -> None:
        super().__init__()
        if knots.dim() != 2 or knots.shape[1] < 2 or bool((knots.diff(dim=1) < 0).any()):
            raise ValueError(f"knots must be (q, K+1) and ascending in each row, got shape {tuple(knots.shape)}")
        self.register_buffer("knots", knots.detach().clone())
        known = knots.double().nan_to_num(nan=0.0)
        self.register_buffer("centre", known.mean(1).to(knots.dtype))
        self.register_buffer("scale", known.std(1, correction=0).to(knots.dtype))

    @property
    def num_features(self) -> int:
        """The number q of features."""
        return self.knots.shape[0]

    @property
    def num_knots(self) -> int:
        """The number K of intervals between knots."""
        return self.knots.shape[1] - 1

    @property
    def follows(self) -> bool:
        """Whether `observe` changes anything."""
        return False

    def observe(self, values: Tensor) -> None:
        """Update the statistics with values (B, q), NaN and ±inf included; fixed knots do not change."""
        return

    def known(self) -> Tensor:
        """Which features have knots, (q,)."""
        return torch.isfinite(self.knots[:, 0])

    def place(self, values: Tensor) -> Tensor:
        """The position of each value among its feature's knots, from 0 to K: the sum of its thermometer vector."""
        return coordinate(values.to(torch.promote_types(values.dtype, self.knots.dtype)), self.knots)

    def rank(self, values: Tensor) -> Tensor:
        """F̂(x), from 0 to 1; the right-continuous CDF at ties."""
        return self.place(values) / self.num_knots

    def score(self, place: Tensor) -> Tensor:
        """The normal score Φ⁻¹(rank) of a place; a rank is at least half a knot, their resolution, from 0 and 1."""
        half = 0.5 / self.num_knots
        return torch.where(self.known(), normal_score((place / self.num_knots).clamp(half, 1 - half), half), 0.0)

    def standardised(self, values: Tensor) -> Tensor:
        """(x − centre) / scale, clamped to ±4; 0 for a constant feature."""
        spread = torch.where(self.scale / 2 > 0, self.scale, torch.inf)
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

    def freeze(self) -> Self:
        """Keep the knots as they are and drop everything that is only needed to update them."""
        return self

    def extra_repr(self) -> str:
        return f"num_features={self.num_features}, num_knots={self.num_knots}"


class StreamKnots(FeatureKnots):
    """Base of the knots that follow a stream. A subclass keeps the statistics and sets the knots from them.

    Args:
        num_features: number q of features.
        num_knots: number K of intervals between knots.
        bounds: fixed outer knots, in place of the smallest and largest value seen.
    """

    def __init__(self, num_features: int, num_knots: int, bounds: Bounds | None) -> None:
        check_positive(num_features=num_features, num_knots=num_knots)
        super().__init__(torch.full((num_features, num_knots + 1), torch.nan))
        self.levels = np.append(np.arange(1, num_knots) / num_knots, LIKELY_LEVELS)
        """Levels of the inner knots, followed by those of the quantiles that give centre and scale."""
        self._bounds = _check_bounds(bounds, num_features)

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
    try:
        pairs = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (num_features, 2))
    except ValueError:
        raise ValueError(
            f"bounds must be a pair (low, high), or one for each of {num_features} features, got {bounds}"
        ) from None
    if not (np.isfinite(pairs).all() and (pairs[:, 0] <= pairs[:, 1]).all()):
        raise ValueError(f"bounds must be finite pairs (low, high) with low <= high, got {bounds}")
    return torch.tensor(pairs)
