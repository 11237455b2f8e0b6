"""EFD: equal-frequency bins, one row each."""

from typing import Unpack

from daes.embedding.base import SharedOptions
from daes.embedding.binning import EdgeEmbedding
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "efd",
    title="equal-frequency discretisation",
    short="EFD",
    family="static binning",
    reference=Reference(
        "Yanru Qu et al.",
        "Product-Based Neural Networks for User Response Prediction over Multi-Field Categorical Data",
        "TOIS",
        2018,
    ),
    order=1,
    distribution_aware=True,
)
class EFD(EdgeEmbedding):
    """Equal-frequency discretisation: the row of the bin between two neighbouring i/M quantiles.

        e(x) = E_j,   j = #{i in 1…M−1 : q_i < x},   q_i = inf{x : F(x) ≥ i/M}

    Bins are closed on the right, so that each has one M-th of the rows if all values are distinct. If quantiles
    coincide (60 % zeros), the bins between them stay empty; no row is dropped and no other bin moves.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `edges` (q, M − 1).

    >>> import torch
    >>> method = EFD(1, dim=2, num_bins=4).fit(torch.arange(1.0, 9.0).unsqueeze(1))
    >>> method.edges
    tensor([[2., 4., 6.]])
    >>> method.index(torch.tensor([[0.0], [2.0], [2.1], [99.0]])).flatten().tolist()
    [0, 0, 1, 3]

    Args:
        num_bins: number M of bins.
    """

    refits = True

    def __init__(
        self, num_features: int, dim: int = 16, *, num_bins: int = 10, **shared: Unpack[SharedOptions]
    ) -> None:
        super().__init__(num_features, dim, num_bins=num_bins, **shared)
        self.table = self.new_table(num_features, num_bins, dim)
