"""LR: logistic regression."""

from torch import Tensor

from daes.backbone.base import Backbone
from daes.backbone.layers import LinearPart
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "lr",
    title="LR",
    reference=Reference(
        "Matthew Richardson, Ewa Dominowska, Robert Ragno",
        "Predicting Clicks: Estimating the Click-Through Rate for New Ads",
        "WWW",
        2007,
    ),
    order=7,
    interactions="1",
)
class LR(Backbone):
    """Logistic regression: no interactions, the baseline of all other models.

        logit = Σ_i ⟨w_i, e_i⟩ + b

    **Shape.** fields (B, n, d) → (B,).

    >>> import torch
    >>> LR(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    takes_plain = False

    def __init__(self, num_fields: int, dim: int, *, plain_dim: int = 0) -> None:
        super().__init__(num_fields, dim, plain_dim=plain_dim, hidden=())
        self.linear = LinearPart(self.num_fields, self.dim)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return self.linear(fields)
