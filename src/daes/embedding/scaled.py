"""Base class of the methods whose formula takes one number: how that number is scaled."""

from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from daes.choices import check_choice
from daes.embedding.base import NumericalEmbedding, SharedOptions
from daes.embedding.normalise import MinMax, Normaliser, Standardise

Input = Literal["value", "log", "score", "rank"]


class ScaledOptions(SharedOptions, total=False):
    """Options of every method that scales its numbers, see `ScaledEmbedding`."""

    input: Input
    num_knots: int


class ScaledEmbedding(NumericalEmbedding):
    """Base of the methods whose formula takes one number per value, scaled by the statistics of the feature.

    Args:
        input: the number that is scaled. "value": the value; "log": sign(x)·log(1 + |x|), for long tails; "score" (for
            a method that standardises) or "rank" (for one that scales to [0, 1]): the normal score or the rank among
            the values seen, which is quantile normalisation in a stream.
        num_knots: resolution of the rank.
    """

    ranked: ClassVar[Input] = "score"
    """The form of quantile normalisation: "score" if values are standardised, "rank" if they are scaled to [0, 1]."""
    normaliser: Normaliser | None

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        input: Input = "value",
        num_knots: int = 100,
        **shared: Unpack[SharedOptions],
    ) -> None:
        check_choice("input", input, ("value", "log", self.ranked))
        if input == self.ranked:
            super().__init__(num_features, dim, num_knots=num_knots, tolerance=1e-3, **shared)
            self.normaliser = None
        else:
            super().__init__(num_features, dim, **shared)
            self.normaliser = Standardise(num_features) if self.ranked == "score" else MinMax(num_features)
        self.input = input

    @property
    def reads_place(self) -> bool:
        return self.normaliser is None

    def scaled(self, values: Tensor, place: Tensor | None) -> Tensor:
        """Finite values (B, q) as input of the formula: of unit scale, or from 0 to 1."""
        if self.normaliser is not None:
            scaled: Tensor = self.normaliser(self._transformed(values))
            return scaled
        assert self.distributions is not None
        assert place is not None
        return self.distributions.score(place) if self.ranked == "score" else place / self.distributions.num_knots

    def _observe(self, values: Tensor) -> None:
        if self.normaliser is not None:
            self.normaliser.observe(self._transformed(values))

    def _transformed(self, values: Tensor) -> Tensor:
        return symmetric_log(values) if self.input == "log" else values


def symmetric_log(values: Tensor) -> Tensor:
    """sign(x)·log(1 + |x|): a logarithm of counts that is also defined for negative values.

    NOTE[DIFF]: DLRM's preprocessing of Criteo sets negative values to 0 before log(1 + x); here they keep their size.

    >>> symmetric_log(torch.tensor([0.0, 3.0, -3.0]))
    tensor([ 0.0000,  1.3863, -1.3863])
    """
    return values.sign() * torch.log1p(values.abs())
