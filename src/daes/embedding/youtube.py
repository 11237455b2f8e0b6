"""YouTube: powers of the rank as plain inputs, no embedding."""

import torch
from torch import Tensor

from daes.embedding.base import Context, NumericalEmbedding
from daes.embedding.normalise import Rank
from daes.embedding.observer import EstimatorFactory
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "youtube",
    title="YouTube's powers",
    family="neural",
    reference=Reference(
        "Paul Covington, Jay Adams, Emre Sargin",
        "Deep Neural Networks for YouTube Recommendations",
        "RecSys",
        2016,
    ),
    order=1,
    continuous=True,
    distribution_aware=True,
)
class YouTube(NumericalEmbedding):
    """YouTube's powers: the rank p of a value, its square and its root (p, p², √p) as plain inputs to the network.

    There is no embedding: `forward` gives no field (it observes, in training), `raw` gives the three inputs a feature.
    `raw` never observes, so call it after `forward`. A missing value has a learned triple in place of the three.

    **Shape.** `forward`: values (B, q) → (B, 0, d). `raw`: values (B, q) → (B, 3q), a feature's three side by side.
    `missing` (q, 3).

    >>> method = YouTube(1, dim=4)
    >>> values = torch.arange(101.0).unsqueeze(1)
    >>> method(values).shape
    torch.Size([101, 0, 4])
    >>> method.raw(torch.tensor([[25.0]])).detach()
    tensor([[0.2500, 0.0625, 0.5000]])

    Args:
        num_knots: how finely the rank is known.
        estimator: of `daes.distribution`, by name or as a factory.
        reservoir_size: slots of a reservoir.
        seed: where a reservoir's random numbers start.
    """

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_knots: int = 100,
        estimator: str | EstimatorFactory = "jump",
        reservoir_size: int = 100_000,
        seed: int = 0,
        init_std: float = 0.01,
    ) -> None:
        super().__init__(num_features, dim, init_std=init_std)
        self.num_outputs = 0
        self.raw_dim = 3 * num_features
        self.missing = self.new_table(num_features, 3)
        self.rank = Rank(num_features, num_knots, estimator=estimator, reservoir_size=reservoir_size, seed=seed)

    def encode(self, values: Tensor, context: Tensor | Context | None) -> Tensor:
        return self.missing.new_zeros(values.shape[0], 0, self.dim)

    def raw(self, values: Tensor) -> Tensor:
        self._check(values)
        values = self._cast(values)
        missing = torch.isnan(values)
        rank = self.rank(torch.nan_to_num(values, nan=0.0))
        powers = torch.stack([rank, rank.square(), rank.sqrt()], -1).to(self.missing.dtype)
        return torch.where(missing.unsqueeze(-1), self.missing, powers).flatten(1)

    def _fill_missing(self, encoded: Tensor, missing: Tensor) -> Tensor:
        return encoded

    def _observe(self, values: Tensor) -> None:
        self.rank.observe(values)
