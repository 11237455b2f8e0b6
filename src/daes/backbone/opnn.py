"""OPNN: product-based network with outer products."""

from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from daes.backbone.base import Backbone, Settings
from daes.backbone.registry import register_backbone
from daes.choices import check_choice
from daes.registry import Reference


@register_backbone(
    "opnn",
    title="OPNN",
    reference=Reference(
        "Yanru Qu et al.",
        "Product-Based Neural Networks for User Response Prediction",
        "ICDM",
        2016,
    ),
    order=12,
    interactions="2, then implicit",
)
class OPNN(Backbone):
    """Outer-product network: an MLP that is given outer products of the fields.

        logit = MLP([e_1, …, e_n, plain, P])
        product="sum":     P = flatten(s sᵀ),  s = Σ_i e_i     (the sum of all outer products e_i e_jᵀ)
        product="kernel":  P = (e_iᵀ K_ij e_j)_{i<j}           (each outer product weighed by a kernel)

    **Shape.** fields (B, n, d), plain (B, r) → (B,). P is (B, d²) for `sum` and (B, n(n−1)/2) for `kernel`.

    Args:
        product: `sum` is the superposition of Qu et al. (ICDM 2016), cheap and blind to which field a vector
            came from; `kernel` is the authors' later form (TOIS 2018) with d² weights per pair of fields.

    >>> import torch
    >>> OPNN(num_fields=4, dim=16, product="kernel")(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(
        self, num_fields: int, dim: int, *, product: Literal["sum", "kernel"] = "sum", **settings: Unpack[Settings]
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        check_choice("product", product, ("sum", "kernel"))
        self.outer = KernelProducts(self.num_fields, self.dim) if product == "kernel" else SummedProducts(self.dim)
        self.mlp = self._mlp(self.input_dim + self.outer.out_features)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return self.mlp(torch.cat([self.flatten(fields, plain), self.outer(fields)], dim=1))


class SummedProducts(nn.Module):
    """Σ_i Σ_j e_i e_jᵀ = s sᵀ with s = Σ_i e_i: (B, n, d) → (B, d²)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_features = dim * dim

    def forward(self, fields: Tensor) -> Tensor:
        total = fields.sum(dim=1)
        return (total.unsqueeze(2) * total.unsqueeze(1)).flatten(1)


class KernelProducts(nn.Module):
    """e_iᵀ K_ij e_j of every pair i < j: (B, n, d) → (B, n(n−1)/2)."""

    pairs: Tensor

    def __init__(self, num_fields: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.triu_indices(num_fields, num_fields, offset=1), persistent=False)
        self.out_features = self.pairs.shape[1]
        bound = (3 / dim) ** 0.5  # Glorot's, a kernel at a time
        self.kernel = nn.Parameter(torch.empty(self.out_features, dim, dim).uniform_(-bound, bound))

    def forward(self, fields: Tensor) -> Tensor:
        by_field = fields.transpose(0, 1)
        left = torch.bmm(by_field.index_select(0, self.pairs[0]), self.kernel)
        return (left * by_field.index_select(0, self.pairs[1])).sum(dim=2).transpose(0, 1)
