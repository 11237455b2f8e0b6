"""PLE: piecewise linear encoding with offline quantiles."""

from typing import Unpack

import torch
from torch import Tensor

from daes.distribution.base import check_positive
from daes.embedding.base import Context, NumericalEmbedding, SharedOptions
from daes.embedding.interpolation import offline_knots, thermometer, weighted_sum
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "ple",
    title="piecewise linear encoding",
    short="PLE",
    family="interpolated binning",
    reference=Reference(
        "Yury Gorishniy, Ivan Rubachev, Artem Babenko",
        "On Embeddings for Numerical Features in Tabular Deep Learning",
        "NeurIPS",
        2022,
    ),
    order=1,
    continuous=True,
    distribution_aware=True,
)
class PLE(NumericalEmbedding):
    """Piecewise linear encoding: the thermometer vector of offline quantile bins, then a linear map per feature.

        e = Σ_i v_i E_i,    v as in `daes.embedding.interpolation`

    It equals `DAES.from_knots` at β = 0, with the same encoder.

    **Shape.** values (B, q) → (B, q, d). Parameters: `meta_embeddings` (q, M, d), `missing` (q, d). Buffer: `knots`
    (q, M+1), from `fit`.

    Args:
        num_meta: number M of bins.

    >>> embedding = PLE(num_features=1, dim=4, num_meta=2)
    >>> embedding = embedding.fit(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    >>> embedding.knots
    tensor([[1., 2., 4.]])
    """

    offline = True
    refits = True
    knots: Tensor

    def __init__(
        self, num_features: int, dim: int = 16, *, num_meta: int = 10, **shared: Unpack[SharedOptions]
    ) -> None:
        super().__init__(num_features, dim, **shared)
        check_positive(num_meta=num_meta)
        self.num_meta = num_meta
        self.meta_embeddings = self.new_table(num_features, num_meta, dim)
        # NOTE[DIFF]: the paper's encoding continues linearly beyond the first and last knot; here it is clamped, so
        # that a value far outside the range seen cannot dominate a prediction.
        self.register_buffer("knots", torch.full((num_features, num_meta + 1), torch.nan))

    def _fit(self, values: Tensor, labels: Tensor | None) -> None:
        self.knots.copy_(offline_knots(values, self.num_meta))

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        return weighted_sum(thermometer(values, self.knots), self.meta_embeddings)
