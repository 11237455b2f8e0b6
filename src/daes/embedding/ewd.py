"""EWD: equal-width bins, one row each."""

from typing import Unpack

import torch
from torch import Tensor

from daes.embedding.base import SharedOptions
from daes.embedding.binning import RowEmbedding
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "ewd",
    title="equal-width discretisation",
    short="EWD",
    family="static binning",
    reference=Reference(
        "James Dougherty, Ron Kohavi, Mehran Sahami",
        "Supervised and Unsupervised Discretization of Continuous Features",
        "ICML",
        1995,
    ),
    order=2,
)
class EWD(RowEmbedding):
    """Equal-width discretisation: the row of one of M bins of equal width.

        e(x) = E_j,   j = floor((x − min)·M / (max − min)) clipped to 0…M−1

    A feature that is constant or never seen has one bin. Not in the paper's tables.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `minimum` and `maximum` (q,).

    >>> method = EWD(1, dim=2, num_bins=4).fit(torch.tensor([[0.0], [8.0]]))
    >>> method.index(torch.tensor([[-5.0], [1.9], [2.0], [8.0], [99.0]])).flatten().tolist()
    [0, 0, 1, 3, 3]

    Args:
        num_bins: number M of bins.
    """

    minimum: Tensor
    maximum: Tensor

    def __init__(
        self, num_features: int, dim: int = 16, *, num_bins: int = 10, **shared: Unpack[SharedOptions]
    ) -> None:
        super().__init__(num_features, dim, num_bins=num_bins, **shared)
        self.table = self.new_table(num_features, num_bins, dim)
        self.register_buffer("minimum", torch.zeros(num_features))
        self.register_buffer("maximum", torch.zeros(num_features))

    def index(self, values: Tensor) -> Tensor:
        # Scaling by a power of two is exact, and (max - min)·M does not overflow over a range near the largest numbers.
        scale = 0.5 ** (1 + self.num_bins.bit_length())
        low, high = self.minimum * scale, self.maximum * scale
        width = torch.where(high > low, high - low, 1.0)
        inside = torch.clamp(values * scale, low, high)
        position = (inside - low) * self.num_bins / width
        return position.to(torch.int64).clamp(max=self.num_bins - 1)

    def _fit(self, values: Tensor, labels: Tensor | None) -> None:
        seen = torch.isfinite(values)
        none = ~seen.any(0)
        self.minimum.copy_(values.where(seen, torch.inf).amin(0).masked_fill(none, 0.0))
        self.maximum.copy_(values.where(seen, -torch.inf).amax(0).masked_fill(none, 0.0))
