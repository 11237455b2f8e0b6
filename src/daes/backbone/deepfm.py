"""DeepFM: a factorisation machine beside an MLP."""

from torch import Tensor

from daes.backbone.layers import LinearPart, Readout, pair_scale, pool_pairs, unchanged
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
)
class DeepFM(WideDeep):
    """DeepFM: a factorisation machine, in place of a linear part, beside an MLP, both on the same vectors.

        logit = Σ_i ⟨w_i, e_i⟩ + s Σ_{i<j} ⟨e_i, e_j⟩ + MLP([e_1, …, e_n, plain])

    s is 1, as published, for up to 40 fields, otherwise (40/n)² (`pair_scale`).

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        num_fields, dim, plain_dim, hidden, dropout, batch_norm: as in `Backbone`.

    >>> import torch
    >>> DeepFM(num_fields=4, dim=16)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        pairs = pair_scale(self.num_fields) * pool_pairs(fields).sum(dim=1)
        return self.linear(fields) + pairs + self.mlp(self.flatten(fields, plain))

    def network(self) -> Network | None:
        if not (unchanged(self, DeepFM) and unchanged(self.linear, LinearPart)):
            return None
        readout, layers = self.linear.readout, self.mlp.weights()
        if layers is None or not unchanged(readout, Readout):
            return None
        return Network(layers, readout.weight, pair_scale(self.num_fields))
