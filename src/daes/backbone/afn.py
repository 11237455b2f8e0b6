"""AFN: adaptive factorisation network."""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daes.backbone.arguments import check_count, check_flag, check_positive_real
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import BatchNorm
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "afn",
    title="AFN+",
    reference=Reference(
        "Weiyu Cheng, Yanyan Shen, Linpeng Huang",
        "Adaptive Factorization Network: Learning Adaptive-Order Feature Interactions",
        "AAAI",
        2020,
    ),
    order=15,
    interactions="adaptive, beside implicit",
)
class AFN(Backbone):
    """Adaptive factorisation network: products of fields with learned exponents, beside an MLP (AFN+).

        c_k   = exp(Σ_i w_ik log|e_i|) = Π_i |e_i|^w_ik,   k = 1 … K, coordinate by coordinate
        logit = MLP_1([c_1, …, c_K]) + MLP_2([e_1, …, e_n, plain])

    With `batch_norm` the logarithms are normalised per field and the products per neuron, as the paper's training
    needs.

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        hidden: as in `Backbone`; the widths are those of both MLPs.
        neurons: the number K of products.
        floor: |e| is raised to this before its logarithm, which would be −∞ at 0.
        deep: False for AFN without MLP_2 and plain inputs.

    >>> import torch
    >>> AFN(num_fields=4, dim=16, neurons=32)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    # NOTE[DIFF]: the paper's second MLP has embeddings of its own and its two logits are weighted; here both MLPs read
    # the same fields, because embeddings are not the backbone's, and the weights are those of the MLPs' last layers.
    def __init__(
        self,
        num_fields: int,
        dim: int,
        *,
        neurons: int = 256,
        floor: float = 1e-5,
        deep: bool = True,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        self.neurons = check_count("neurons", neurons)
        if not check_flag("deep", deep) and self.plain_dim:
            self._refuse_plain()
        self.logarithmic = LogarithmicLayer(
            self.num_fields, self.neurons, floor=check_positive_real("floor", floor), batch_norm=self.batch_norm
        )
        self.mlp = self._mlp(self.neurons * self.dim)
        self.deep = self._mlp(self.input_dim) if deep else None

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        logit: Tensor = self.mlp(self.logarithmic(fields).flatten(1))
        return logit if self.deep is None else logit + self.deep(self.flatten(fields, plain))


class LogarithmicLayer(nn.Module):
    """exp(W log max(|e|, floor)): products of fields with learned exponents, (B, n, d) → (B, K, d)."""

    def __init__(self, num_fields: int, neurons: int, *, floor: float, batch_norm: bool) -> None:
        super().__init__()
        self.floor = floor
        # Exponents near zero start every product near one; unit variance would explode the products of many fields.
        self.exponents = nn.Parameter(torch.randn(neurons, num_fields) * 0.1)
        # BatchNorm of no field at all (plain inputs only) is an error in PyTorch.
        self.log_norm = BatchNorm(num_fields) if batch_norm and num_fields else nn.Identity()
        self.exp_norm = BatchNorm(neurons) if batch_norm else nn.Identity()

    def forward(self, fields: Tensor) -> Tensor:
        logs = self.log_norm(fields.abs().clamp(min=self.floor).log())
        sums = F.linear(logs.transpose(1, 2).flatten(0, 1), self.exponents)
        products: Tensor = self.exp_norm(torch.unflatten(sums.exp(), 0, (-1, fields.shape[2])).transpose(1, 2))
        return products
