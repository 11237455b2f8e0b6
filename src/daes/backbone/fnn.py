"""FNN: a plain deep network."""

from typing import Unpack

from torch import Tensor

from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import unchanged
from daes.backbone.registry import register_backbone
from daes.native.network import Network
from daes.registry import Reference


@register_backbone(
    "fnn",
    title="FNN",
    reference=Reference(
        "Paul Covington, Jay Adams, Emre Sargin",
        "Deep Neural Networks for YouTube Recommendations",
        "RecSys",
        2016,
    ),
    order=1,
    interactions="implicit",
)
class FNN(Backbone):
    """A plain deep network over the fields side by side.

        logit = MLP([e_1, …, e_n, plain])

    The paper means Covington's network by this name. (Zhang et al., ECIR 2016, call a network FNN whose
    embeddings were first trained by an FM; nothing is trained beforehand here.)

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    >>> import torch
    >>> FNN(num_fields=4, dim=16, plain_dim=3)(torch.randn(8, 4, 16), torch.randn(8, 3)).shape
    torch.Size([8])
    """

    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return self.mlp(self.flatten(fields, plain))

    def network(self) -> Network | None:
        weights = self.mlp.weights() if unchanged(self, FNN) else None
        return None if weights is None else Network(*weights)
