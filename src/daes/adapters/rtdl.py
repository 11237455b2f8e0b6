"""A drop-in replacement for the embeddings of `rtdl_num_embeddings` (yandex-research)."""

from typing import Any

import torch
from torch import Tensor, nn

from daes.adapters.building import build_method
from daes.embedding import NumericalEmbedding


class NumericalEmbeddings(nn.Module):
    """Any method of daes with the interface of `rtdl_num_embeddings.PeriodicEmbeddings`.

    In `train()` mode, forward first adds the batch to the statistics of a streaming method, like BatchNorm. An offline
    method (`ple`, `efd`, …) must be fitted first: `embeddings.method.fit(values)`.

    **Shape.** (*, n_features) → (*, n_features, d_embedding); NaN is a missing value and has a learned vector.

    Args:
        n_features: the number of features.
        d_embedding: the dimension of a vector.
        method: a name in `daes.embedding.METHODS`, or a module.
        options: further arguments of the method.

    >>> embeddings = NumericalEmbeddings(3, 8)
    >>> embeddings(torch.randn(5, 3)).shape, embeddings.get_output_shape()
    (torch.Size([5, 3, 8]), torch.Size([3, 8]))
    """

    def __init__(
        self, n_features: int, d_embedding: int = 16, *, method: str | NumericalEmbedding = "daes", **options: Any
    ) -> None:
        super().__init__()
        self.method = build_method(method, n_features, d_embedding, **options)

    def get_output_shape(self) -> torch.Size:
        """The shape of the output without the batch dimensions."""
        return torch.Size((self.method.num_features, self.method.dim))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 1 or x.shape[-1] != self.method.num_features:
            raise ValueError(f"x must have shape (*, {self.method.num_features}), got {tuple(x.shape)}")
        vectors: Tensor = self.method(x.reshape(-1, x.shape[-1]))
        return vectors.reshape(*x.shape, self.method.dim)
