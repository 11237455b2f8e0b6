"""IPNN: product-based network with inner products."""

from typing import Unpack

import torch
from torch import Tensor

from daes.backbone.base import Backbone, BackboneInfo, Settings
from daes.backbone.layers import InnerProducts


class IPNN(Backbone):
    """Inner-product network: an MLP that is given the inner product of every pair of fields.

        logit = MLP([e_1, …, e_n, raw, ⟨e_1, e_2⟩, ⟨e_1, e_3⟩, …, ⟨e_{n−1}, e_n⟩])

    **Shape.** fields (B, n, d), raw (B, r) → (B,).

    Args:
        num_fields, dim, raw_dim, hidden, dropout, batch_norm: as in `Backbone`.

    >>> import torch
    >>> IPNN(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    info = BackboneInfo(title="IPNN", reference="Qu et al., TOIS 2018", order="2, then implicit")

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.pairs = InnerProducts(self.num_fields)
        self.mlp = self._mlp(self.input_dim + self.num_fields * (self.num_fields - 1) // 2)

    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        logit: Tensor = self.mlp(torch.cat([self.flatten(fields, raw), self.pairs(fields)], dim=1))
        return logit
