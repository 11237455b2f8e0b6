"""NFM: neural factorisation machine."""

from typing import Unpack

from torch import Tensor, nn

from daes.backbone.base import Backbone, BackboneInfo, Settings
from daes.backbone.layers import BatchNorm, LinearPart, append_raw, pool_pairs


class NFM(Backbone):
    """Neural factorisation machine: an MLP over the pooled element-wise products of all pairs.

        f     = Dropout(BatchNorm(Σ_{i<j} e_i ⊙ e_j))
        logit = Σ_i ⟨w_i, e_i⟩ + MLP([f, raw])

    **Shape.** fields (B, n, d), raw (B, r) → (B,).

    Args:
        num_fields, dim, raw_dim, hidden, dropout, batch_norm: as in `Backbone`.

    >>> import torch
    >>> NFM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    info = BackboneInfo(title="NFM", reference="He & Chua, SIGIR 2017", order="1, 2, then implicit")

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.linear = LinearPart(self.num_fields, self.dim, bias=False)
        self.norm = BatchNorm(self.dim) if self.batch_norm else nn.Identity()
        self.drop = nn.Dropout(self.dropout)
        self.mlp = self._mlp(self.dim + self.raw_dim)

    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        pooled = self.drop(self.norm(pool_pairs(fields)))
        logit: Tensor = self.linear(fields) + self.mlp(append_raw(pooled, raw))
        return logit
