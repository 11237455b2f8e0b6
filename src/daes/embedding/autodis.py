"""AutoDis: a softmax over meta-embeddings, from the position of the number in its range."""

from typing import Unpack

from torch import Tensor
from torch.nn.functional import leaky_relu

from daes.distribution.base import check_positive
from daes.embedding.base import Context
from daes.embedding.interpolation import aggregate
from daes.embedding.registry import register_method
from daes.embedding.scaled import ScaledEmbedding, ScaledOptions
from daes.registry import Reference


@register_method(
    "autodis",
    title="AutoDis",
    family="neural",
    reference=Reference(
        "Huifeng Guo et al.",
        "An Embedding Learning Framework for Numerical Features in CTR Prediction",
        "KDD",
        2021,
    ),
    order=4,
    continuous=True,
    authors={"input": "log"},
)
class AutoDis(ScaledEmbedding):
    """Automatic discretisation: learned soft bins over M meta-embeddings per feature.

        h = LeakyReLU(w x),   z = W h + α h,   e(x) = softmax(z / τ) E

    with x the position of the value in the range seen, from 0 to 1.

    Since LeakyReLU(w x) = x·LeakyReLU(w) for x ≥ 0, z = x·u, where u = W a + α a and a = LeakyReLU(w) depend only on
    the parameters and are computed once per batch; M products and a softmax remain per value.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `first_weight` (q, M) is w, `second_weight` (q, M, M) is W.

    The paper does not specify the initialisation of w and W; here it is that of `nn.Linear`.

    >>> import torch
    >>> AutoDis(3, dim=4)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 4])

    Args:
        num_meta: number M of meta-embeddings.
        alpha: weight of h in z.
        temperature: τ; the smaller, the harder the bins.
        slope: slope of the LeakyReLU below 0.
        input: "value", "log" or "rank"; scaled to [0, 1] by the range seen.
    """

    ranked = "rank"

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_meta: int = 10,
        alpha: float = 0.8,
        temperature: float = 0.1,
        slope: float = 0.01,
        **scaling: Unpack[ScaledOptions],
    ) -> None:
        check_positive(num_meta=num_meta)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        super().__init__(num_features, dim, **scaling)
        self.num_meta = num_meta
        self.alpha = alpha
        self.temperature = temperature
        self.slope = slope
        self.table = self.new_table(num_features, num_meta, dim)
        self.first_weight = self.new_weight(1, num_features, num_meta)
        self.second_weight = self.new_weight(num_meta, num_features, num_meta, num_meta)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        places = self.scaled(values, place)
        first = leaky_relu(self.first_weight.to(places.dtype), self.slope)
        direction = (self.second_weight.to(places.dtype) * first.unsqueeze(-2)).sum(-1) + self.alpha * first
        scores = places.T.unsqueeze(1) * (direction / self.temperature).unsqueeze(-1)
        return aggregate(scores, self.table)
