"""DCN v2: deep and cross network with full-matrix crosses."""

from typing import Unpack

import torch
from torch import Tensor, nn

from daes.backbone.arguments import check_count
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import HiddenLayers, Readout
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "dcnv2",
    title="DCN v2",
    reference=Reference(
        "Ruoxi Wang et al.",
        "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-Scale Learning to Rank Systems",
        "WWW",
        2021,
    ),
    order=5,
    interactions="1 … L+1, beside implicit",
)
class DCNv2(Backbone):
    """Deep and cross network, version 2: matrix-weighted crosses beside an MLP (the parallel form).

        x_0     = [e_1, …, e_n, plain]
        x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l
        logit   = ⟨u, [x_L, h(x_0)]⟩ + b,   h the hidden layers

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        num_fields, dim, plain_dim, hidden, dropout, batch_norm, slope: as in `Backbone`.
        layers: the number L of crosses.
        rank: None for full matrices of D² weights, D = n·d + r; a number k for W_l = U_l V_l with 2kD.

    >>> import torch
    >>> DCNv2(num_fields=4, dim=16, rank=8)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(
        self, num_fields: int, dim: int, *, layers: int = 3, rank: int | None = None, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        self.layers = check_count("layers", layers)
        self.rank = None if rank is None else check_count("rank", rank)
        self.cross = MatrixCross(self.input_dim, self.layers, self.rank)
        self.deep = HiddenLayers(
            self.input_dim, self.hidden, dropout=self.dropout, batch_norm=self.batch_norm, slope=self.slope
        )
        self.readout = Readout(self.input_dim + self.deep.out_features)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        inputs = self.flatten(fields, plain)
        return self.readout(torch.cat([self.cross(inputs), self.deep(inputs)], dim=1))


class MatrixCross(nn.Module):
    """x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l: (B, D) → (B, D)."""

    def __init__(self, width: int, layers: int, rank: int | None) -> None:
        super().__init__()
        self.maps = nn.ModuleList(
            nn.Linear(width, width)
            if rank is None
            else nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))
            for _ in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        crossed = inputs
        for linear in self.maps:
            crossed = inputs * linear(crossed) + crossed
        return crossed
