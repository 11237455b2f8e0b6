"""DeepFM: a factorisation machine beside an MLP."""

from typing import Unpack

from torch import Tensor

from daes.backbone.base import Settings
from daes.backbone.layers import pair_scale, pool_pairs
from daes.backbone.registry import register_backbone
from daes.backbone.widedeep import WideDeep
from daes.native.network import Network
from daes.registry import Reference


@register_backbone(
    "deepfm",
    title="DeepFM",
    reference=Reference(
        "Huifeng Guo et al.",
        "DeepFM: A Factorization-Machine Based Neural Network for CTR Prediction",
        "IJCAI",
        2017,
    ),
    order=3,
    interactions="1, 2, beside implicit",
    authors={"pairs": 1.0},
)
class DeepFM(WideDeep):
    """DeepFM: a factorisation machine, in place of a linear part, beside an MLP, both on the same vectors.

        logit = Σ_i ⟨w_i, e_i⟩ + s Σ_{i<j} ⟨e_i, e_j⟩ + MLP([e_1, …, e_n, plain])

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        pairs: weight s of the products: 1 as published; None for `pair_scale`, 10/n with more than ten fields.

    >>> import torch
    >>> DeepFM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(self, num_fields: int, dim: int, *, pairs: float | None = None, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.pairs = pair_scale(self.num_fields, pairs)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        pairs = self.pairs * pool_pairs(fields).sum(dim=1)
        return self.linear(fields) + pairs + self.mlp(self.flatten(fields, plain))

    def network(self) -> Network | None:
        return self._network(DeepFM, self.pairs)
