"""Wide & Deep: a linear part beside an MLP."""

from typing import Unpack

from torch import Tensor

from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import LinearPart, Readout, unchanged
from daes.backbone.registry import register_backbone
from daes.native.network import Network
from daes.registry import Reference


@register_backbone(
    "widedeep",
    title="Wide & Deep",
    reference=Reference(
        "Heng-Tze Cheng et al.",
        "Wide & Deep Learning for Recommender Systems",
        "DLRS",
        2016,
    ),
    order=2,
    interactions="1, beside implicit",
)
class WideDeep(Backbone):
    """Wide & Deep: a linear part on all fields beside an MLP.

        logit = Σ_i ⟨w_i, e_i⟩ + MLP([e_1, …, e_n, plain])

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    >>> import torch
    >>> WideDeep(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    # NOTE[DIFF]: the paper's wide part also has cross-product features chosen by hand; here a crossed column must be a
    # categorical field of the schema.
    def __init__(self, num_fields: int, dim: int, **settings: Unpack[Settings]) -> None:
        super().__init__(num_fields, dim, **settings)
        self.linear = LinearPart(self.num_fields, self.dim, bias=False)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return self.linear(fields) + self.mlp(self.flatten(fields, plain))

    def network(self) -> Network | None:
        return self._network(WideDeep, 0.0)

    def _network(self, kind: type["WideDeep"], pairs: float) -> Network | None:
        """The weights, if this is exactly of that class; `pairs` is the weight of the products of pairs."""
        if not (unchanged(self, kind) and unchanged(self.linear, LinearPart)):
            return None
        readout, weights = self.linear.readout, self.mlp.weights()
        if weights is None or not unchanged(readout, Readout):
            return None
        layers, slope = weights
        return Network(layers, slope, readout.weight, pairs)
