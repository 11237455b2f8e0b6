"""AutoInt: self-attention between fields."""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daes.backbone.arguments import check_count, check_flag
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import Readout
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "autoint",
    title="AutoInt+",
    reference=Reference(
        "Weiping Song et al.",
        "AutoInt: Automatic Feature Interaction Learning via Self-Attentive Neural Networks",
        "CIKM",
        2019,
    ),
    order=13,
    interactions="attention, beside implicit",
)
class AutoInt(Backbone):
    """AutoInt: layers of multi-head self-attention between the fields, beside an MLP (AutoInt+).

        α_ij^h = softmax_j ⟨Q_h x_i, K_h x_j⟩
        x_i   ← ReLU([Σ_j α_ij^h V_h x_j]_h + R x_i),   x_i = e_i at first
        logit  = ⟨u, [x_1, …, x_n]⟩ + MLP([e_1, …, e_n, plain])

    The scores are not scaled by a root, as in the paper. Dropout is applied to the attention weights.

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        layers: number of attention layers.
        heads: number of heads in each.
        head_dim: width of a head; a field's vector has heads·head_dim coordinates after a layer.
        deep: False for AutoInt without the MLP and plain inputs; `hidden` is not used then.

    >>> import torch
    >>> AutoInt(num_fields=4, dim=16, layers=2, head_dim=8)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(
        self,
        num_fields: int,
        dim: int,
        *,
        layers: int = 3,
        heads: int = 2,
        head_dim: int = 32,
        deep: bool = True,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        self.layers = check_count("layers", layers)
        self.heads = check_count("heads", heads)
        self.head_dim = check_count("head_dim", head_dim)
        if not check_flag("deep", deep) and self.plain_dim:
            self._refuse_plain()
        width = self.heads * self.head_dim
        self.attention = nn.Sequential(
            *(
                InteractingLayer(width if layer else self.dim, self.heads, self.head_dim, dropout=self.dropout)
                for layer in range(self.layers)
            )
        )
        self.readout = Readout(self.num_fields * width, bias=not deep)
        self.mlp = self._mlp(self.input_dim) if deep else None

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        logit: Tensor = self.readout(self.attention(fields).flatten(1))
        return logit if self.mlp is None else logit + self.mlp(self.flatten(fields, plain))


class InteractingLayer(nn.Module):
    """One layer of self-attention between fields, with a residual: (B, n, d) → (B, n, heads·head_dim)."""

    def __init__(self, dim: int, heads: int, head_dim: int, *, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        width = heads * head_dim
        self.query = nn.Linear(dim, width, bias=False)
        self.key = nn.Linear(dim, width, bias=False)
        self.value = nn.Linear(dim, width, bias=False)
        self.residual = nn.Linear(dim, width, bias=False)

    def forward(self, fields: Tensor) -> Tensor:
        query, key, value = (self._split(part(fields)) for part in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=1.0)
        return torch.relu(attended.transpose(1, 2).flatten(2) + self.residual(fields))

    def _split(self, fields: Tensor) -> Tensor:
        """(B, n, heads·head_dim) → (B, heads, n, head_dim)."""
        return torch.unflatten(fields, 2, (self.heads, -1)).transpose(1, 2)
