"""DEER: interpolation between rows at learned positions (a reconstruction)."""

from typing import Unpack

import torch
from torch import Tensor, nn

from daes.distribution.base import check_positive
from daes.embedding.base import Context
from daes.embedding.registry import register_method
from daes.embedding.scaled import ScaledEmbedding, ScaledOptions
from daes.registry import Reference

_NARROWEST = 1e-6
"""Smallest width of a bucket, as a fraction of the range, so that its slope stays finite."""


@register_method(
    "deer",
    title="DEER",
    family="neural",
    reference=Reference(
        "Cheng et al.",
        "Dynamic Explicit Embedding Representation for Numerical Features in Deep CTR Prediction",
        "CIKM",
        2022,
    ),
    order=5,
    continuous=True,
    reconstruction=True,
    authors={"input": "rank"},
)
class DEER(ScaledEmbedding):
    """Rows at learned positions of the range, with linear interpolation between neighbours.

        widths = softmax(θ),   edge_i = Σ_{k<i} widths_k,   i = 0…M−1
        e(x) = (1 − t) E_j + t E_{j+1},   t = (x − edge_j) / widths_j   for x between edge_j and edge_{j+1}

    with x the position of the value in the range seen, from 0 to 1. This is computed as
    e = E_0 + Σ_i clamp((x − edge_i) / widths_i, 0, 1)·(E_{i+1} − E_i).

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `theta` (q, M − 1).

    **A reconstruction**: no code is public. Known, from descriptions by others: bucket widths are parameters, learned
    with the model, and neighbouring rows are interpolated linearly. Chosen here: widths as a softmax of parameters,
    rows at the M ends of M − 1 buckets, equal initial widths, the range seen in the stream, and that a bucket is never
    narrower than a millionth of the range.

    >>> method = DEER(1, dim=1, num_meta=3)
    >>> with torch.no_grad():
    ...     _ = method.table.copy_(torch.tensor([0.0, 10.0, 0.0]).reshape(1, 3, 1))
    >>> method(torch.tensor([[0.0], [1.0], [2.0], [4.0]])).flatten().tolist()
    [0.0, 5.0, 10.0, 0.0]

    Args:
        num_meta: number M of rows.
        input: "value", "log" or "rank"; scaled to [0, 1] by the range seen.
    """

    ranked = "rank"

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_meta: int = 10,
        **scaling: Unpack[ScaledOptions],
    ) -> None:
        check_positive(num_meta=num_meta)
        super().__init__(num_features, dim, **scaling)
        self.num_meta = num_meta
        self.table = self.new_table(num_features, num_meta, dim)
        self.theta = nn.Parameter(torch.zeros(num_features, num_meta - 1))

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        places = self.scaled(values, place)
        widths = torch.softmax(self.theta.to(places.dtype), -1).clamp(min=_NARROWEST)
        starts = torch.cumsum(widths, -1) - widths
        steps = torch.clamp((places.unsqueeze(-1) - starts) / widths, 0.0, 1.0).to(self.table.dtype)
        return self.table[:, 0] + torch.einsum("bqm,qmd->bqd", steps, self.table.diff(dim=1))
