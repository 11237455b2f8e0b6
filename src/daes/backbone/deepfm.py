"""DeepFM: a factorisation machine beside an MLP."""

from typing import Unpack

from torch import Tensor

from daes.backbone.base import Backbone, BackboneInfo, Settings
from daes.backbone.layers import LinearPart, pool_pairs


class DeepFM(Backbone):
    """DeepFM: a factorisation machine beside an MLP, both on the same vectors.

        logit = Σ_i ⟨w_i, e_i⟩ + Σ_{i<j} ⟨e_i, e_j⟩ + MLP([e_1, …, e_n, raw])

    **Shape.** fields (B, n, d), raw (B, r) → (B,).

    Args:
        num_fields, dim, raw_dim, hidden, dropout, batch_norm: as in `Backbone`.

    >>> import torch
    >>> DeepFM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    info = BackboneInfo(title="DeepFM", reference="Guo et al., IJCAI 2017", order="1, 2, beside implicit")

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.linear = LinearPart(self.num_fields, self.dim, bias=False)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        pairs = pool_pairs(fields).sum(dim=1)
        logit: Tensor = self.linear(fields) + pairs + self.mlp(self.flatten(fields, raw))
        return logit
