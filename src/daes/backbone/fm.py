"""FM: factorisation machine."""

from torch import Tensor

from daes.backbone.layers import pair_scale, pool_pairs
from daes.backbone.lr import LR
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "fm",
    title="FM",
    reference=Reference(
        "Steffen Rendle",
        "Factorization Machines",
        "ICDM",
        2010,
    ),
    order=8,
    interactions="1, 2",
    authors={"pairs": 1.0},
)
class FM(LR):
    """Factorisation machine: beside LR, every pair of fields by the inner product of their vectors.

        logit = Σ_i ⟨w_i, e_i⟩ + b + s Σ_{i<j} ⟨e_i, e_j⟩

    The pairs cost no more than the fields: Σ_{i<j} ⟨e_i, e_j⟩ = Σ_k ((Σ_i e_ik)² − Σ_i e_ik²) / 2.

    **Shape.** fields (B, n, d) → (B,).

    Args:
        pairs: weight s of the products: 1 as published; None for `pair_scale`, 10/n with more than ten fields.

    >>> import torch
    >>> FM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(self, num_fields: int, dim: int, *, plain_dim: int = 0, pairs: float | None = None) -> None:
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.pairs = pair_scale(self.num_fields, pairs)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return super()._logit(fields, plain) + self.pairs * pool_pairs(fields).sum(dim=1)
