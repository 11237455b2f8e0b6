"""PLR: periodic functions with learned frequencies, then a linear layer and a ReLU."""

from math import pi
from typing import Unpack

import torch
from torch import Tensor, nn

from daes.distribution.base import check_positive
from daes.embedding.base import Context
from daes.embedding.registry import register_method
from daes.embedding.scaled import ScaledEmbedding, ScaledOptions
from daes.registry import Reference


@register_method(
    "plr",
    title="periodic, linear, ReLU",
    short="PLR",
    family="neural",
    reference=Reference(
        "Yury Gorishniy, Ivan Rubachev, Artem Babenko",
        "On Embeddings for Numerical Features in Tabular Deep Learning",
        "NeurIPS",
        2022,
    ),
    order=8,
    continuous=True,
    authors={"input": "score"},
)
class PLR(ScaledEmbedding):
    """Periodic, linear, ReLU: e(x) = ReLU(A [cos(2πc x), sin(2πc x)] + b), with x the standardised value.

    The k frequencies c per feature, initially drawn from N(0, σ²), are learned. Not in the paper's tables.

    **Shape.** values (B, q) → (B, q, d); `frequency` (q, k) is c, `weight` (q, 2k, d) is A, `bias` (q, d) is b.

    A and b are initialised as in `nn.Linear`; k and σ are those of the authors' package `rtdl_num_embeddings`.

    >>> PLR(3, dim=4)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 4])

    Args:
        num_frequencies: number k of frequencies.
        sigma: standard deviation of the initial frequencies; the paper recommends tuning it.
        input: "value", "log" or "score", which is the authors' choice (quantile normalisation).
    """

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_frequencies: int = 48,
        sigma: float = 0.01,
        **scaling: Unpack[ScaledOptions],
    ) -> None:
        check_positive(num_frequencies=num_frequencies)
        if not sigma > 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        super().__init__(num_features, dim, **scaling)
        self.frequency = nn.Parameter(torch.randn(num_features, num_frequencies) * sigma)
        self.weight = self.new_weight(2 * num_frequencies, num_features, 2 * num_frequencies, dim)
        self.bias = self.new_weight(2 * num_frequencies, num_features, dim)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        scores = self.scaled(values, place)
        phase = scores.unsqueeze(-1) * (2 * pi * self.frequency.to(scores.dtype))
        waves = torch.cat([torch.cos(phase), torch.sin(phase)], -1).to(self.weight.dtype)
        return torch.relu(torch.einsum("bqk,qkd->bqd", waves, self.weight) + self.bias)
