"""DAE: distances to quantiles averaged over batches, then soft bins (a reconstruction)."""

from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from daes.distribution.base import check_positive, rank_of
from daes.embedding.base import Context, NumericalEmbedding, SharedOptions
from daes.embedding.interpolation import aggregate
from daes.embedding.normalise import LARGEST, Standardise
from daes.embedding.precision import KeepsPrecision
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "dae",
    title="distribution-aware embedding",
    short="DAE",
    family="dynamic quantile",
    reference=Reference(
        "Shen et al.",
        "DAE: Distribution-Aware Embedding for Numerical Features in Click-Through Rate Prediction",
        "CIKM",
        2023,
    ),
    order=1,
    continuous=True,
    distribution_aware=True,
    reconstruction=True,
)
class DAE(NumericalEmbedding):
    """Distribution-aware embedding: distances to running quantiles, a small network, soft bins.

        δ_i = |x − q_i| / deviation,   e(x) = softmax(W₂ LeakyReLU(W₁ δ + b₁) + b₂) E,   i = 1…M

    with q_i the mean over batches of each batch's i/(M+1) quantile.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `first_weight` (q, H, M), `second_weight` (q, M, H).

    **A reconstruction**: no code is public. Known, from its abstract and from the DAES paper: the distribution is
    estimated by the expectation of order statistics, values are encoded by their distances |x − q_i| to the quantiles,
    and a neural network turns these into weights of meta-embeddings. Chosen here: levels i/(M+1), one hidden layer with
    a LeakyReLU, the plain mean over batches, and the running standard deviation as the unit of distance, because in the
    features' own units some softmaxes would be saturated initially and others flat. The aggregation at multiple scales
    that the abstract mentions is left out, since nothing else is known about it.

    By definition, order statistics depend on how the stream is split into batches.

    >>> DAE(3, dim=4)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 4])

    Args:
        num_meta: number M of meta-embeddings, and of quantiles.
        hidden: width H of the network's hidden layer.
        momentum: weight of the newest batch's quantiles, in (0, 1]; None for the plain mean over all batches.
    """

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_meta: int = 10,
        hidden: int = 16,
        momentum: float | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        check_positive(num_meta=num_meta, hidden=hidden)
        super().__init__(num_features, dim, **shared)
        self.num_meta = num_meta
        self.batch_quantiles = BatchQuantiles(num_features, num_meta, momentum=momentum)
        self.standardise = Standardise(num_features)
        self.table = self.new_table(num_features, num_meta, dim)
        self.first_weight = self.new_weight(num_meta, num_features, hidden, num_meta)
        self.first_bias = self.new_weight(num_meta, num_features, hidden)
        self.second_weight = self.new_weight(hidden, num_features, num_meta, hidden)
        self.second_bias = self.new_weight(hidden, num_features, num_meta)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        scores: Tensor = self.standardise(values).T.unsqueeze(1)
        quantiles: Tensor = self.standardise(self.batch_quantiles.quantiles.T.to(values.dtype)).T.unsqueeze(-1)
        distances = (scores - quantiles).abs().to(self.table.dtype)
        hidden = leaky_relu(self.first_weight @ distances + self.first_bias.unsqueeze(-1))
        return aggregate(self.second_weight @ hidden + self.second_bias.unsqueeze(-1), self.table)

    def _observe(self, values: Tensor) -> None:
        self.batch_quantiles.observe(values)
        self.standardise.observe(values)


class BatchQuantiles(KeepsPrecision):
    """Quantiles as the mean over batches of each batch's quantiles (inverted CDF), on the device.

    The levels are i/(M+1), i = 1…M. Biased under drift, and dependent on how the stream is split into batches: every
    batch has the same weight, whatever its size. A batch without a finite value of a feature is ignored.

    **Shape.** `observe` takes (B, q); `quantiles` (q, M), 0 before anything was observed; `batches` (q,).

    >>> quantiles = BatchQuantiles(1, 1)
    >>> quantiles.observe(torch.tensor([[1.0], [2.0], [3.0]]))
    >>> quantiles.observe(torch.tensor([[8.0], [torch.nan]]))
    >>> quantiles.quantiles
    tensor([[5.]], dtype=torch.float64)

    Args:
        num_quantiles: number M of quantiles.
        momentum: as in `DAE`.
    """

    quantiles: Tensor
    batches: Tensor
    levels: Tensor

    def __init__(self, num_features: int, num_quantiles: int, *, momentum: float | None = None) -> None:
        check_positive(num_features=num_features, num_quantiles=num_quantiles)
        if momentum is not None and not 0 < momentum <= 1:
            raise ValueError(f"momentum must be None or in (0, 1], got {momentum}")
        super().__init__()
        self.momentum = momentum
        self.register_buffer("quantiles", torch.zeros(num_features, num_quantiles, dtype=torch.float64))
        self.register_buffer("batches", torch.zeros(num_features, dtype=torch.float64))
        levels = torch.arange(1, num_quantiles + 1, dtype=torch.float64) / (num_quantiles + 1)
        self.register_buffer("levels", levels, persistent=False)

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Update the quantiles with values (B, q), NaN and ±inf included."""
        if not values.shape[0]:
            return
        seen = torch.isfinite(values)
        count = seen.sum(0).unsqueeze(-1)
        ordered = values.where(seen, torch.inf).sort(0).values.T
        batch = ordered.gather(1, rank_of(self.levels, count).long() - 1).double().clamp(-LARGEST, LARGEST)
        some = count > 0
        self.batches.add_(some.squeeze(-1))
        batches = self.batches.unsqueeze(-1)
        share = 1 / batches.clamp(min=1)
        if self.momentum is not None:
            share = torch.where(batches > 1, self.momentum, share)
        self.quantiles.copy_(torch.where(some, torch.lerp(self.quantiles, batch, share), self.quantiles))
