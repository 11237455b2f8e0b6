"""NFM: neural factorisation machine."""

from typing import Unpack

from torch import Tensor, nn

from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import BatchNorm, LinearPart, append_plain, pool_pairs
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "nfm",
    title="NFM",
    reference=Reference(
        "Xiangnan He, Tat-Seng Chua",
        "Neural Factorization Machines for Sparse Predictive Analytics",
        "SIGIR",
        2017,
    ),
    order=10,
    interactions="1, 2, then implicit",
)
class NFM(Backbone):
    """Neural factorisation machine: an MLP over the pooled element-wise products of all pairs.

        f     = Dropout(BatchNorm(Σ_{i<j} e_i ⊙ e_j))
        logit = Σ_i ⟨w_i, e_i⟩ + MLP([f, plain])

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    >>> import torch
    >>> NFM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.linear = LinearPart(self.num_fields, self.dim, bias=False)
        self.norm = BatchNorm(self.dim) if self.batch_norm else nn.Identity()
        self.drop = nn.Dropout(self.dropout)
        self.mlp = self._mlp(self.dim + self.plain_dim)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        pooled = self.drop(self.norm(pool_pairs(fields)))
        return self.linear(fields) + self.mlp(append_plain(pooled, plain))
