"""DLRM: all numbers through one small network, as one field."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Unpack

from torch import Tensor, nn

from daes.distribution.base import check_positive
from daes.embedding.base import Context
from daes.embedding.registry import register_method
from daes.embedding.scaled import ScaledEmbedding, ScaledOptions
from daes.registry import Reference


@register_method(
    "dlrm",
    title="DLRM bottom network",
    short="DLRM",
    family="neural",
    reference=Reference(
        "Maxim Naumov et al.",
        "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
        "arXiv",
        2019,
    ),
    order=2,
    continuous=True,
    authors={"input": "log"},
)
class DLRM(ScaledEmbedding):
    """DLRM's bottom network: all standardised numbers are mapped to one vector, one field for the backbone.

        e(x) = MLP(x) + Σ_{f missing} missing_f

    with a ReLU after every layer, including the last. A missing value enters the network as 0, the feature's mean, and
    its learned vector is added to the output.

    **Shape.** values (B, q) → (B, 1, d).

    NOTE[DIFF]: DLRM's preprocessing of the Criteo data is log(1 + x), which is `input="log"`; by default values are
    only standardised, because that needs no knowledge of the feature.

    >>> import torch
    >>> DLRM(13, dim=16)(torch.randn(4, 13)).shape
    torch.Size([4, 1, 16])

    Args:
        hidden: widths of the hidden layers; by default those of DLRM's Criteo runs.
        input: "value", "log", which is the authors' choice, or "score".
    """

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        hidden: Sequence[int] = (512, 256, 64),
        **scaling: Unpack[ScaledOptions],
    ) -> None:
        for width in hidden:
            check_positive(hidden=width)
        super().__init__(num_features, dim, **scaling)
        self.num_outputs = 1
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise((num_features, *hidden, dim)):
            layers += [_linear(width_in, width_out), nn.ReLU()]
        self.network = nn.Sequential(*layers)

    def _fields(
        self, values: Tensor, missing: Tensor, place: Tensor | None, context: Tensor | Context | None
    ) -> Tensor:
        scores = self.scaled(values, place).masked_fill(missing, 0.0)
        encoded: Tensor = self.network(scores.to(self.missing.dtype))
        return (encoded + missing.to(self.missing.dtype) @ self.missing).unsqueeze(1)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        encoded: Tensor = self.network(self.scaled(values, place).to(self.missing.dtype))
        return encoded.unsqueeze(1)


def _linear(width_in: int, width_out: int) -> nn.Linear:
    """A linear layer, initialised as in DLRM."""
    layer = nn.Linear(width_in, width_out)
    nn.init.normal_(layer.weight, std=(2 / (width_in + width_out)) ** 0.5)
    nn.init.normal_(layer.bias, std=(1 / width_out) ** 0.5)
    return layer
