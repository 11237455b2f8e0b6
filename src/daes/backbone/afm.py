"""AFM: attentional factorisation machine."""

import torch
from torch import Tensor, nn

from daes.backbone.arguments import check_count
from daes.backbone.base import Backbone
from daes.backbone.layers import LinearPart, Readout
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "afm",
    title="AFM",
    reference=Reference(
        "Jun Xiao et al.",
        "Attentional Factorization Machines: Learning the Weight of Feature Interactions via Attention Networks",
        "IJCAI",
        2017,
    ),
    order=11,
    interactions="1, 2 (weighted by attention)",
)
class AFM(Backbone):
    """Attentional factorisation machine: the pairs' element-wise products, pooled by attention.

        p_ij  = e_i ⊙ e_j,   i < j
        a_ij  = softmax_ij(⟨h, ReLU(W p_ij + c)⟩)
        logit = Σ_i ⟨w_i, e_i⟩ + b + ⟨q, Dropout(Σ_{i<j} a_ij p_ij)⟩

    **Shape.** fields (B, n, d) → (B,).

    Args:
        attention_dim: length of h.

    >>> import torch
    >>> AFM(num_fields=4, dim=16, attention_dim=8)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    takes_plain = False
    pairs: Tensor

    def __init__(
        self, num_fields: int, dim: int, *, plain_dim: int = 0, dropout: float = 0.2, attention_dim: int = 16
    ) -> None:
        super().__init__(num_fields, dim, plain_dim=plain_dim, hidden=(), dropout=dropout)
        self.attention_dim = check_count("attention_dim", attention_dim)
        pairs = torch.triu_indices(self.num_fields, self.num_fields, offset=1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.linear = LinearPart(self.num_fields, self.dim)
        self.attention = nn.Sequential(
            nn.Linear(self.dim, self.attention_dim), nn.ReLU(), Readout(self.attention_dim, bias=False)
        )
        self.drop = nn.Dropout(self.dropout)
        self.readout = Readout(self.dim, bias=False)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        products = fields.index_select(1, self.pairs[0]) * fields.index_select(1, self.pairs[1])
        weights = torch.softmax(self.attention(products), dim=1)
        pooled = torch.bmm(weights.unsqueeze(1).to(products.dtype), products).squeeze(1)
        return self.linear(fields) + self.readout(self.drop(pooled))
