"""LR: logistic regression."""

from torch import Tensor

from daes.backbone.base import Backbone, BackboneInfo
from daes.backbone.layers import LinearPart


class LR(Backbone):
    """Logistic regression: no interaction at all, the floor that every other model stands on.

        logit = Σ_i ⟨w_i, e_i⟩ + b

    **Shape.** fields (B, n, d) → (B,).

    Args:
        num_fields, dim: as in `Backbone`; there are no raw inputs.

    >>> import torch
    >>> LR(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    info = BackboneInfo(title="LR", reference="Richardson et al., WWW 2007", order="1")
    takes_raw = False

    def __init__(self, num_fields: int, dim: int, *, raw_dim: int = 0) -> None:
        super().__init__(num_fields, dim, raw_dim=raw_dim, hidden=())
        self.linear = LinearPart(self.num_fields, self.dim)

    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        logit: Tensor = self.linear(fields)
        return logit
