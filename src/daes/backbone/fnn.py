"""FNN: a plain deep network."""

from typing import Unpack

from torch import Tensor

from daes.backbone.base import Backbone, BackboneInfo, Settings


class FNN(Backbone):
    """A plain deep network over the fields side by side.

        logit = MLP([e_1, …, e_n, raw])

    The paper means Covington's network by this name. (Zhang et al., ECIR 2016, call a network FNN whose
    embeddings were first trained by an FM; nothing is trained beforehand here.)

    **Shape.** fields (B, n, d), raw (B, r) → (B,).

    Args:
        num_fields, dim, raw_dim, hidden, dropout, batch_norm: as in `Backbone`.

    >>> import torch
    >>> FNN(num_fields=4, dim=16, raw_dim=3)(torch.randn(8, 4, 16), torch.randn(8, 3)).shape
    torch.Size([8])
    """

    info = BackboneInfo(title="FNN", reference="Covington et al., RecSys 2016", order="implicit")

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        logit: Tensor = self.mlp(self.flatten(fields, raw))
        return logit
