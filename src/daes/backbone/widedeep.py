"""Wide & Deep: a linear part beside an MLP."""

from typing import Unpack

from torch import Tensor

from daes.backbone.base import Backbone, BackboneInfo, Settings
from daes.backbone.layers import LinearPart


class WideDeep(Backbone):
    """Wide & Deep: a linear part on all fields, which remembers, beside an MLP, which generalises.

        logit = Σ_i ⟨w_i, e_i⟩ + MLP([e_1, …, e_n, raw])

    **Shape.** fields (B, n, d), raw (B, r) → (B,).

    Args:
        num_fields, dim, raw_dim, hidden, dropout, batch_norm: as in `Backbone`.

    >>> import torch
    >>> WideDeep(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    info = BackboneInfo(title="Wide & Deep", reference="Cheng et al., DLRS 2016", order="1, beside implicit")

    # NOTE[DIFF]: the paper's wide part also has cross-product features chosen by hand; a library cannot choose them,
    # so a crossed column is one more categorical field of the schema here.
    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.linear = LinearPart(self.num_fields, self.dim, bias=False)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        logit: Tensor = self.linear(fields) + self.mlp(self.flatten(fields, raw))
        return logit
