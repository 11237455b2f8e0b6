"""YouTube: powers of the rank as plain inputs, no embedding."""

from typing import Unpack

import torch
from torch import Tensor

from daes.embedding.base import Context, NumericalEmbedding, SharedOptions
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "youtube",
    title="YouTube's powers",
    short="YouTube",
    family="neural",
    reference=Reference(
        "Paul Covington, Jay Adams, Emre Sargin",
        "Deep Neural Networks for YouTube Recommendations",
        "RecSys",
        2016,
    ),
    order=1,
    continuous=True,
    distribution_aware=True,
)
class YouTube(NumericalEmbedding):
    """YouTube's powers: the rank p of a value, its square and its root (p, p², √p) as plain inputs to the network.

    There is no embedding: the fields are empty, and `outputs` returns three plain inputs per feature. For a missing
    value these are learned.

    **Shape.** `outputs`: values (B, q) → fields (B, 0, d) and plain inputs (B, 3q), those of a feature side by side.
    `missing` (q, 3).

    >>> method = YouTube(1, dim=4)
    >>> fields, plain = method.outputs(torch.arange(101.0).unsqueeze(1))
    >>> fields.shape, plain[25].detach()
    (torch.Size([101, 0, 4]), tensor([0.2500, 0.0625, 0.5000]))

    Args:
        num_knots: resolution of the rank.
    """

    input_names = ("p", "p²", "√p")

    def __init__(
        self, num_features: int, dim: int = 16, *, num_knots: int = 100, **shared: Unpack[SharedOptions]
    ) -> None:
        super().__init__(num_features, dim, num_knots=num_knots, tolerance=1e-3, **shared)
        self.num_outputs = 0
        self.missing = self.new_table(num_features, 3)

    @property
    def plain_dim(self) -> int:
        return super().plain_dim + 3 * self.num_features

    @property
    def reads_place(self) -> bool:
        return True

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        return self.missing.new_zeros(values.shape[0], 0, self.dim)

    def _plain(self, values: Tensor, place: Tensor | None, missing: Tensor) -> Tensor:
        assert self.distributions is not None
        assert place is not None
        rank = place / self.distributions.num_knots
        powers = torch.stack([rank, rank.square(), rank.sqrt()], -1).to(self.missing.dtype)
        powers = torch.where(missing.unsqueeze(-1), self.missing, powers).flatten(1)
        return torch.cat([powers, super()._plain(values, place, missing)], 1) if self.plain else powers

    def _fill_missing(self, encoded: Tensor, missing: Tensor) -> Tensor:
        return encoded
