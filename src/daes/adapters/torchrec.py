"""A dense architecture for TorchRec's DLRM."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from daes.adapters.building import build_method
from daes.embedding import NumericalEmbedding
from daes.extras import require


class StreamingDenseArch(nn.Module):
    """Replaces `torchrec.models.dlrm.DenseArch`: a method of daes turns numbers into vectors, followed by an MLP.

    Processes that train one model must agree on its statistics: with several processes, a forward of a streaming method
    in `train()` mode is an error, unless `dense_arch.method.observe_in_forward` is False and every process passes the
    rows of all processes to `dense_arch.method.observe`.

    **Shape.** (B, in_features) → (B, layer_sizes[-1]), which must be the dimension of the sparse features.

    Args:
        in_features: the number of dense features.
        layer_sizes: sizes of the MLP's layers, as for `DenseArch`.
        dim: the dimension of a feature's vector.
        method: a name in `daes.embedding.METHODS`, or a module.
        options: further arguments of the method.
    """

    def __init__(
        self,
        in_features: int,
        layer_sizes: Sequence[int],
        *,
        dim: int = 16,
        method: str | NumericalEmbedding = "daes",
        **options: Any,
    ) -> None:
        super().__init__()
        self.method = build_method(method, in_features, dim, **options)
        mlp = require("torchrec.modules.mlp").MLP
        self.model: nn.Module = mlp(in_features * dim, list(layer_sizes), bias=True, activation="relu")

    def forward(self, features: Tensor) -> Tensor:
        vectors: Tensor = self.model(self.method(features).flatten(1))
        return vectors
