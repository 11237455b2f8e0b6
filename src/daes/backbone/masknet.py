"""MaskNet: hidden layers multiplied by masks that depend on all fields of the row."""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daes.backbone.arguments import check_count, check_positive_real
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import append_plain
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "masknet",
    title="MaskNet",
    reference=Reference(
        "Zhiqiang Wang, Qingyun She, Junlin Zhang",
        "MaskNet: Introducing Feature-Wise Multiplication to CTR Ranking Models by Instance-Guided Mask",
        "DLP-KDD",
        2021,
    ),
    order=16,
    interactions="masks, then implicit",
)
class MaskNet(Backbone):
    """MaskNet (the parallel form): blocks that multiply the fields by masks computed from all of them.

        x     = [e_1, …, e_n, plain]
        z     = [LN_1(e_1), …, LN_n(e_n), plain]
        y_k   = ReLU(LN(W_k (z ⊙ mask_k(x)))),   mask_k(x) = B_k ReLU(A_k x + a_k) + b_k
        logit = MLP([y_1, …, y_K])

    Dropout is applied to the y_k as to hidden layers. The serial form, where a block reads the one before, is not
    implemented.

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        blocks: the number K of mask blocks.
        block_dim: width of a block's output y_k.
        reduction_ratio: width of A_k x over the width of x.

    >>> import torch
    >>> MaskNet(num_fields=4, dim=16, blocks=2, block_dim=8)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(
        self,
        num_fields: int,
        dim: int,
        *,
        blocks: int = 3,
        block_dim: int = 64,
        reduction_ratio: float = 1.0,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        self.block_dim = check_count("block_dim", block_dim)
        self.reduction_ratio = check_positive_real("reduction_ratio", reduction_ratio)
        self.norm = FieldNorm(self.num_fields, self.dim)
        aggregation = max(1, round(self.input_dim * self.reduction_ratio))
        self.blocks = nn.ModuleList(
            MaskBlock(self.input_dim, aggregation, self.block_dim, dropout=self.dropout)
            for _ in range(check_count("blocks", blocks))
        )
        self.mlp = self._mlp(len(self.blocks) * self.block_dim)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        inputs = self.flatten(fields, plain)
        normed = append_plain(self.norm(fields).flatten(1), plain)
        return self.mlp(torch.cat([block(inputs, normed) for block in self.blocks], dim=1))


class FieldNorm(nn.Module):
    """LayerNorm of each field's vector, with gains and shifts per field: (B, n, d) → (B, n, d)."""

    def __init__(self, num_fields: int, dim: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(num_fields, dim))
        self.shift = nn.Parameter(torch.zeros(num_fields, dim))

    def forward(self, fields: Tensor) -> Tensor:
        return F.layer_norm(fields, fields.shape[2:]) * self.gain + self.shift


class MaskBlock(nn.Module):
    """ReLU(LN(W (z ⊙ mask(x)))): x (B, D) and z (B, D) → (B, block_dim)."""

    def __init__(self, width: int, aggregation: int, block_dim: int, *, dropout: float) -> None:
        super().__init__()
        self.mask = nn.Sequential(nn.Linear(width, aggregation), nn.ReLU(), nn.Linear(aggregation, width))
        self.project = nn.Sequential(
            nn.Linear(width, block_dim, bias=False), nn.LayerNorm(block_dim), nn.ReLU(), nn.Dropout(dropout)
        )

    def forward(self, inputs: Tensor, normed: Tensor) -> Tensor:
        block: Tensor = self.project(normed * self.mask(inputs))
        return block
