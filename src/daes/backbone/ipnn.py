"""IPNN: product-based network with inner products."""

from typing import Unpack

import torch
from torch import Tensor

from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import InnerProducts
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "ipnn",
    title="IPNN",
    reference=Reference(
        "Yanru Qu et al.",
        "Product-Based Neural Networks for User Response Prediction over Multi-Field Categorical Data",
        "TOIS",
        2018,
    ),
    order=4,
    interactions="2, then implicit",
)
class IPNN(Backbone):
    """Inner-product network: an MLP that is given the inner product of every pair of fields.

        logit = MLP([e_1, …, e_n, plain, ⟨e_1, e_2⟩, ⟨e_1, e_3⟩, …, ⟨e_{n−1}, e_n⟩])

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    >>> import torch
    >>> IPNN(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.pairs = InnerProducts(self.num_fields)
        self.mlp = self._mlp(self.input_dim + self.num_fields * (self.num_fields - 1) // 2)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return self.mlp(torch.cat([self.flatten(fields, plain), self.pairs(fields)], dim=1))
