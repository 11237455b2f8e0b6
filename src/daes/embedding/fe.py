"""FE: the number scales its field's vector."""

from typing import Unpack

from torch import Tensor

from daes.embedding.base import Context, NumericalEmbedding, SharedOptions
from daes.embedding.normalise import Standardise
from daes.embedding.registry import register_method
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
)
class FE(NumericalEmbedding):
    """Field embedding: the standardised value times one learned vector per feature, e(x) = x·v.

    **Shape.** values (B, q) → (B, q, d); `table` (q, d).

    >>> import torch
    >>> method = FE(1, dim=2)
    >>> _ = method(torch.tensor([[1.0], [3.0]]))  # in training mode a forward observes: mean 2, deviation 1
    >>> bool((method.eval()(torch.tensor([[3.0]])) == method.table).all())
    True
    """

    def __init__(self, num_features: int, dim: int = 16, **shared: Unpack[SharedOptions]) -> None:
        super().__init__(num_features, dim, **shared)
        self.standardise = Standardise(num_features)
        self.table = self.new_table(num_features, dim)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        scores: Tensor = self.standardise(values).to(self.table.dtype)
        return scores.unsqueeze(-1) * self.table

    def _observe(self, values: Tensor) -> None:
        self.standardise.observe(values)
