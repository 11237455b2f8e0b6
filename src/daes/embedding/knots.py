"""Knots per feature, and what is read off them: place, rank, normal score, standardised value."""

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from daes.embedding.interpolation import coordinate
from daes.embedding.normal import normal_score
from daes.embedding.precision import KeepsPrecision

FeatureInput = Literal["value", "score", "rank"]
"""A number of unit scale that is made of a value and its feature's distribution."""

INPUTS: tuple[FeatureInput, ...] = ("value", "score", "rank")

FARTHEST_DEVIATION = 4.0
"""Standardised values are clamped to this many deviations."""


class FeatureKnots(KeepsPrecision):
    """Knots q_0 ≤ q_1 ≤ … ≤ q_K of each of q features: a fixed picture of their distributions.

    The knots stand for the smallest value, the i/K quantiles for 0 < i < K, and the largest value.
    `FeatureDistributions` lets them follow a stream; this class by itself keeps them as they are.

    **Shape.** `knots` (q, K+1), NaN for a feature without a value yet; `centre` and `scale` (q,), mean and standard
    deviation of a feature's bulk, by 200 equally likely quantiles where they follow a stream and by the knots
    otherwise. All reads take finite values (B, q) and give (B, q); for a feature without a value yet they give 0.

    Args:
        knots: (q, K+1), ascending in each row. Their precision is kept.

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

    def observe(self, values: Tensor, labels: Tensor | None = None) -> None:
        """Take values (B, q), NaN and ±inf included, into the statistics; nothing for fixed knots."""
        return

    def known(self) -> Tensor:
        """Which features have knots, (q,)."""
        return torch.isfinite(self.knots[:, 0])

    def place(self, values: Tensor) -> Tensor:
        """The place of each value among its feature's knots, from 0 to K: the sum of its thermometer vector."""
        return coordinate(values.to(torch.promote_types(values.dtype, self.knots.dtype)), self.knots)

    def rank(self, values: Tensor) -> Tensor:
        """F̂(x), from 0 to 1; the right-continuous CDF at ties."""
        return self.place(values) / self.num_knots

    def score(self, place: Tensor) -> Tensor:
        """The normal score Φ⁻¹(rank) of a place, no farther out than half a knot from either end."""
        # Half a knot from the ends: where the resolution of the knots stops, so does the score.
        half = 0.5 / self.num_knots
        return torch.where(self.known(), normal_score((place / self.num_knots).clamp(half, 1 - half), half), 0.0)

    def standardised(self, values: Tensor) -> Tensor:
        """(x − centre) / scale, clamped to ±4; 0 for a constant feature."""
        spread = torch.where(self.scale > 0, self.scale, torch.inf)
        deviation = (values / 2 - self.centre / 2) / (spread / 2)  # halves cannot overflow
        return deviation.clamp(-FARTHEST_DEVIATION, FARTHEST_DEVIATION)

    def input(self, kind: FeatureInput, values: Tensor, place: Tensor | None) -> Tensor:
        """An input of unit scale (B, q) for a network, from finite values and their places among the knots."""
        if kind == "value":
            return self.standardised(values)
        assert place is not None
        if kind == "score":
            return self.score(place)
        return torch.where(self.known(), 12**0.5 * (place / self.num_knots - 0.5), 0.0)

    def freeze(self) -> Self:
        """Keep the knots as they are and drop everything that only serves to move them."""
        return self

    def extra_repr(self) -> str:
        return f"num_features={self.num_features}, num_knots={self.num_knots}"


def check_bounds(
    bounds: tuple[float, float] | Sequence[tuple[float, float]] | None, num_features: int
) -> Tensor | None:
    """One finite pair (low, high) per feature as a tensor (q, 2), or None."""
    if bounds is None:
        return None
    pairs = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (num_features, 2))
    if not (np.isfinite(pairs).all() and (pairs[:, 0] <= pairs[:, 1]).all()):
        raise ValueError(f"bounds must be finite pairs (low, high) with low <= high, got {bounds}")
    return torch.tensor(pairs)
