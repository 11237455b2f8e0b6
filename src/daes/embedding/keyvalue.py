"""Key-Value: soft attention to fixed keys, by distance."""

from typing import Unpack

import torch
from torch import Tensor

from daes.choices import check_choice
from daes.distribution.base import check_positive
from daes.embedding.base import Context, NumericalEmbedding, SharedOptions
from daes.embedding.interpolation import aggregate
from daes.embedding.normalise import MinMax
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "keyvalue",
    title="key-value memory",
    short="Key-Value",
    family="neural",
    reference=Reference(
        "Daya Guo et al.",
        "Multi-Modal Representation Learning for Short Video Understanding and Recommendation",
        "ICMEW",
        2019,
    ),
    order=6,
    continuous=True,
    distribution_aware=True,
)
class KeyValue(NumericalEmbedding):
    """Key-value memory: M fixed keys equally spaced over [0, 1], each with a learned value.

        e(x) = softmax_i(1 / (|x − k_i| + ε)) V,   k_i = i/N,   i = 0…N,   N = M − 1

    with x the value's rank among those seen, or its position in the range seen. The keys cut [0, 1] into N equal parts
    and include both ends, so that M = N + 1 rows are learned.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d) is V.

    >>> KeyValue(3, dim=4)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 4])

    Args:
        num_meta: number M of keys.
        input: "rank" for the quantile-transformed value, "minmax" for (x − min)/(max − min).
        epsilon: keeps 1/distance finite.
        num_knots: resolution of the rank.
    """

    keys: Tensor

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_meta: int = 10,
        input: str = "rank",
        epsilon: float = 1e-5,
        num_knots: int = 100,
        **shared: Unpack[SharedOptions],
    ) -> None:
        check_positive(num_meta=num_meta)
        check_choice("input", input, ("rank", "minmax"))
        if not epsilon > 0:
            raise ValueError(f"epsilon must be positive, got {epsilon}")
        super().__init__(num_features, dim, num_knots=num_knots if input == "rank" else None, tolerance=1e-3, **shared)
        self.num_meta = num_meta
        self.epsilon = epsilon
        self.input = input
        if input == "minmax":
            self.min_max = MinMax(num_features)
        self.table = self.new_table(num_features, num_meta, dim)
        self.register_buffer("keys", torch.linspace(0.0, 1.0, num_meta, dtype=torch.float64), persistent=False)

    @property
    def reads_place(self) -> bool:
        return self.input == "rank"

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        if place is None:
            places = self.min_max(values).T.unsqueeze(1)
        else:
            assert self.distributions is not None
            places = (place / self.distributions.num_knots).T.unsqueeze(1)
        distances = (places - self.keys.to(places.dtype).unsqueeze(-1)).abs()
        return aggregate(1 / (distances + self.epsilon), self.table)

    def _observe(self, values: Tensor) -> None:
        if self.input == "minmax":
            self.min_max.observe(values)
