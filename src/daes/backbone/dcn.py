"""DCN: deep and cross network, the first version."""

from typing import Unpack

import torch
from torch import Tensor, nn

from daes.backbone.arguments import check_count
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import Readout
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "dcn",
    title="DCN",
    reference=Reference(
        "Ruoxi Wang, Bin Fu, Gang Fu, Mingliang Wang",
        "Deep & Cross Network for Ad Click Predictions",
        "ADKDD",
        2017,
    ),
    order=14,
    interactions="1 … L+1, beside implicit",
)
class DCN(Backbone):
    """Deep and cross network, first version: vector-weighted crosses beside an MLP.

        x_0     = [e_1, …, e_n, plain]
        x_{l+1} = x_0 ⟨w_l, x_l⟩ + b_l + x_l
        logit   = ⟨u, [x_L, h(x_0)]⟩ + b,   h the hidden layers

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        layers: the number L of crosses.

    >>> import torch
    >>> DCN(num_fields=4, dim=16, layers=2)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(self, num_fields: int, dim: int, *, layers: int = 3, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.layers = check_count("layers", layers)
        self.cross = VectorCross(self.input_dim, self.layers)
        self.deep = self._hidden_layers(self.input_dim)
        self.readout = Readout(self.input_dim + self.deep.out_features)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        inputs = self.flatten(fields, plain)
        return self.readout(torch.cat([self.cross(inputs), self.deep(inputs)], dim=1))


class VectorCross(nn.Module):
    """x_{l+1} = x_0 ⟨w_l, x_l⟩ + b_l + x_l: (B, D) → (B, D)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weights = nn.ModuleList(Readout(width, bias=False) for _ in range(layers))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(layers))

    def forward(self, inputs: Tensor) -> Tensor:
        crossed = inputs
        for weight, bias in zip(self.weights, self.biases, strict=True):
            crossed = inputs * weight(crossed).unsqueeze(1) + bias + crossed
        return crossed
