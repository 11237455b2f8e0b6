"""FE: the number times its field's vector."""

from typing import Unpack

from torch import Tensor

from daes.embedding.base import Context
from daes.embedding.registry import register_method
from daes.embedding.scaled import ScaledEmbedding, ScaledOptions
from daes.registry import Reference


@register_method(
    "fe",
    title="field embedding",
    short="FE",
    family="neural",
    reference=Reference(
        "Yury Gorishniy, Ivan Rubachev, Valentin Khrulkov, Artem Babenko",
        "Revisiting Deep Learning Models for Tabular Data",
        "NeurIPS",
        2021,
    ),
    order=3,
    continuous=True,
    authors={"input": "score"},
)
class FE(ScaledEmbedding):
    """Field embedding: the standardised value times one learned vector per feature, e(x) = x·v.

    **Shape.** values (B, q) → (B, q, d); `table` (q, d).

    >>> import torch
    >>> method = FE(1, dim=2)
    >>> _ = method(torch.tensor([[1.0], [3.0]]))  # in training mode a forward observes: mean 2, deviation 1
    >>> bool((method.eval()(torch.tensor([[3.0]])) == method.table).all())
    True

    Args:
        input: "value", "log" or "score", which is the authors' choice (quantile normalisation).
    """

    def __init__(self, num_features: int, dim: int = 16, **scaling: Unpack[ScaledOptions]) -> None:
        super().__init__(num_features, dim, **scaling)
        self.table = self.new_table(num_features, dim)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        scores = self.scaled(values, place).to(self.table.dtype)
        return scores.unsqueeze(-1) * self.table
