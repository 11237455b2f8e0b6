"""xDeepFM: linear part, compressed interaction network and MLP side by side."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daes.backbone.arguments import check_widths
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import LinearPart, Readout
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "xdeepfm",
    title="xDeepFM",
    reference=Reference(
        "Jianxun Lian et al.",
        "xDeepFM: Combining Explicit and Implicit Feature Interactions for Recommender Systems",
        "KDD",
        2018,
    ),
    order=6,
    interactions="1 … L+1, beside implicit",
)
class XDeepFM(Backbone):
    """xDeepFM: linear part, compressed interaction network (CIN) and MLP side by side.

        X⁰_j  = e_j
        Xᵏ_h  = Σ_i Σ_j Wᵏ_hij (Xᵏ⁻¹_i ⊙ X⁰_j),   h = 1 … H_k
        logit = Σ_i ⟨w_i, e_i⟩ + ⟨u, (Σ_c Xᵏ_hc)_{k≥1, h}⟩ + MLP([e_1, …, e_n, plain])

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        cin: the widths H_1, H_2, … of the CIN. Every feature map is both pooled and passed on (the paper's
            formula; not the split-half variant of its code), without activation, as the paper found best.

    >>> import torch
    >>> XDeepFM(num_fields=4, dim=16, cin=(8, 8))(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(
        self, num_fields: int, dim: int, *, cin: Sequence[int] = (32, 32, 32), **settings: Unpack[Settings]
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        self.linear = LinearPart(self.num_fields, self.dim, bias=False)
        self.cin = CIN(self.num_fields, check_widths("cin", cin))
        self.readout = Readout(self.cin.out_features, bias=False)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        explicit = self.readout(self.cin(fields))
        return self.linear(fields) + explicit + self.mlp(self.flatten(fields, plain))


class CIN(nn.Module):
    """Compressed interaction network: (B, n, d) → (B, ΣH_k), the feature maps summed over their d coordinates.

    A layer sums H·n products per coordinate. Either these are laid out and W applied to them, or W is applied to
    Xᵏ⁻¹ first and the result multiplied into X⁰: both are one large product of matrices, with H_{k−1}·n and
    H_k·n numbers in between. The smaller is taken.
    """

    def __init__(self, num_fields: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.out_features = sum(widths)
        self.weights = nn.ParameterList()
        for before, after in pairwise([num_fields, *widths]):
            bound = max(before * num_fields, 1) ** -0.5
            self.weights.append(torch.empty(after, before, num_fields).uniform_(-bound, bound))

    def forward(self, fields: Tensor) -> Tensor:
        # A coordinate of a sample is a row: the CIN never mixes them before the sum at its end.
        base = fields.transpose(1, 2).flatten(0, 1)
        maps, pooled = base, []
        for weight in self.weights:
            after, before, _ = weight.shape
            if after < before:
                mixed = torch.unflatten(F.linear(maps, weight.transpose(1, 2).flatten(0, 1)), 1, (after, -1))
                maps = torch.bmm(mixed, base.unsqueeze(2)).squeeze(2)
            else:
                products = torch.bmm(maps.unsqueeze(2), base.unsqueeze(1))
                maps = F.linear(products.flatten(1), weight.flatten(1))
            pooled.append(torch.unflatten(maps, 0, (-1, fields.shape[2])).sum(dim=1))
        return torch.cat(pooled, dim=1)
