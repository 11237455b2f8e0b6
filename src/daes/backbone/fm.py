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
)
class FM(LR):
    """Factorisation machine: beside LR, every pair of fields by the inner product of their vectors.

        logit = Σ_i ⟨w_i, e_i⟩ + b + s Σ_{i<j} ⟨e_i, e_j⟩

    s is 1, as published, for up to 40 fields, otherwise (40/n)² (`pair_scale`).
    The pairs cost no more than the fields: Σ_{i<j} ⟨e_i, e_j⟩ = Σ_k ((Σ_i e_ik)² − Σ_i e_ik²) / 2.

    **Shape.** fields (B, n, d) → (B,).

    Args:
        num_fields, dim: as in `Backbone`; there are no plain inputs.

    >>> import torch
    >>> FM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return super()._logit(fields, plain) + pair_scale(self.num_fields) * pool_pairs(fields).sum(dim=1)
