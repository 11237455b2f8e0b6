"""Layers that several backbones use."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daes.backbone.arguments import check_positive_real
from daes.native import products

_FEW_FIELDS = 10


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm that also takes a batch of fewer than two rows in `train()`.

    Such a batch has no variance or no mean. It is normalised by the running statistics, as in `eval()`, and does not
    change them. PyTorch's own BatchNorm raises for one row and writes NaN into the running statistics for none.

    **Shape.** (B, C) or (B, C, L) → the same.

    >>> norm = BatchNorm(3).train()
    >>> row = torch.tensor([[1.0, 2.0, 3.0]])
    >>> bool(torch.allclose(norm(row), row, atol=1e-4)), norm.running_mean.tolist()
    (True, [0.0, 0.0, 0.0])
    """

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.shape[0] < 2:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


class HiddenLayers(nn.Sequential):
    """h ← Dropout(ReLU(BatchNorm(W h))), once per width; without BatchNorm W h has a bias.

    With a `slope` the ReLU is a leaky one: slope·x below 0.

    **Shape.** (B, in_features) → (B, `out_features`), the last width, or in_features if there is none.

    >>> layers = HiddenLayers(6, (4, 2), dropout=0.2, batch_norm=True, slope=0.1)
    >>> layers(torch.randn(5, 6)).shape, layers.out_features
    (torch.Size([5, 2]), 2)
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int], *, dropout: float, batch_norm: bool, slope: float
    ) -> None:
        super().__init__()
        for width in hidden:
            # BatchNorm subtracts any bias with the mean, and has its own.
            self.append(nn.Linear(in_features, width, bias=not batch_norm))
            if batch_norm:
                self.append(BatchNorm(width))
            self.append(nn.LeakyReLU(slope) if slope else nn.ReLU())
            self.append(nn.Dropout(dropout))
            in_features = width
        self.out_features = in_features

    def forward(self, input: Tensor) -> Tensor:
        for module in self._modules.values():
            if isinstance(module, nn.Linear) and unchanged(module, nn.Linear):
                input = products.linear(input, module.weight, module.bias)
            else:
                input = module(input)
        return input

    def weights(self) -> tuple[list[Tensor], float] | None:
        """Weight and bias of every layer, and the slope, if every layer is only h ← ReLU(W h + b); else None."""
        layers: list[Any] = list(self._modules.values())
        if len(layers) % 3:
            return None
        found: list[Any] = []
        slopes: set[float] = set()
        for linear, relu, dropout in zip(layers[::3], layers[1::3], layers[2::3], strict=True):
            if not (unchanged(linear, nn.Linear) and unchanged(dropout, nn.Dropout)):
                return None
            if not (unchanged(relu, nn.ReLU) or unchanged(relu, nn.LeakyReLU)):
                return None
            if (dropout.p and dropout.training) or linear.bias is None:
                return None
            found += linear._parameters.values()
            slopes.add(getattr(relu, "negative_slope", 0.0))
        slope = slopes.pop() if slopes else 0.0
        return None if slopes or not 0 <= slope < 1 else (found, slope)


class Readout(nn.Linear):
    """⟨w, x⟩ + b, one number per row, in the precision of w even under autocast.

    **Shape.** (…, in_features) → (…).
    """

    __call__: Callable[..., Tensor]  # which the type checker would not know

    def __init__(self, in_features: int, *, bias: bool = True) -> None:
        super().__init__(in_features, 1, bias=bias)

    def reset_parameters(self) -> None:
        """Draw from U(−1/√in, 1/√in), as `nn.Linear` does, also for zero inputs."""
        bound = max(self.in_features, 1) ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_autocast_enabled(input.device.type):
            # A bfloat16 logit has eight bits: many scores would tie. Autocast does not change sums.
            logit = (input * self.weight.squeeze(0)).sum(dim=-1)
            return logit if self.bias is None else logit + self.bias
        return super().forward(input).squeeze(-1)

    def of_parts(self, *parts: Tensor) -> Tensor:
        """The same for (B, in_features) given as parts, without concatenating them."""
        autocast = torch.is_autocast_enabled(parts[0].device.type)
        if autocast or torch.compiler.is_compiling() or not unchanged(self, Readout):
            return self(torch.cat(parts, 1))
        weights = self.weight[0].split_with_sizes([part.shape[1] for part in parts])
        products = [part.mv(weight) for part, weight in zip(parts, weights, strict=True)]
        return sum(products[1:], products[0] if self.bias is None else products[0] + self.bias)


class MLP(nn.Module):
    """Hidden layers, then one logit.

    **Shape.** (B, in_features) → (B,).
    """

    __call__: Callable[..., Tensor]

    def __init__(self, hidden: HiddenLayers) -> None:
        super().__init__()
        self.hidden = hidden
        self.readout = Readout(hidden.out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.readout(self.hidden(inputs))

    def weights(self) -> tuple[list[Tensor], float] | None:
        """Weight and bias of every layer, and the slope, if there are hidden layers, all only ReLU(W h + b)."""
        parts: list[Any] = [self._modules["hidden"], self._modules["readout"]]
        hidden, readout = parts
        if not (unchanged(self, MLP) and unchanged(hidden, HiddenLayers) and unchanged(readout, Readout)):
            return None
        found, last = hidden.weights(), list(readout._parameters.values())
        if not found or not found[0] or any(one is None for one in last):
            return None
        return [*found[0], *last], found[1]


def unchanged(module: nn.Module | None, kind: type[nn.Module]) -> bool:
    """Whether a module is exactly of this class, not of a subclass, without hooks or another `forward`."""
    if type(module) is not kind or "forward" in module.__dict__:
        return False
    return not (
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


class LinearPart(nn.Module):
    """The first-order part: Σ_i ⟨w_i, e_i⟩ + b.

    **Shape.** (B, n, d) → (B,).
    """

    __call__: Callable[..., Tensor]

    # NOTE[DIFF]: the papers give each id a scalar weight; here the weight is a linear map of the field's vector, as
    # that works for numerical fields too and needs no second table. An id's scalar is the special case of a vector with
    # one coordinate for it. Pan et al. (WWW 2018) found this form (FwFM_FiLV) to be the better one.
    def __init__(self, num_fields: int, dim: int, *, bias: bool = True) -> None:
        super().__init__()
        self.readout = Readout(num_fields * dim, bias=bias)

    def forward(self, fields: Tensor) -> Tensor:
        return self.readout(fields.flatten(1))


class InnerProducts(nn.Module):
    """⟨e_i, e_j⟩ of every pair i < j, in the order (0,1), (0,2), …, (n−2,n−1).

    **Shape.** (B, n, d) → (B, n(n−1)/2).

    >>> InnerProducts(3)(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    tensor([[11., 17., 39.]])
    """

    upper: Tensor

    def __init__(self, num_fields: int) -> None:
        super().__init__()
        first, second = torch.triu_indices(num_fields, num_fields, offset=1)
        self.register_buffer("upper", first * num_fields + second, persistent=False)

    def forward(self, fields: Tensor) -> Tensor:
        gram = torch.bmm(fields, fields.transpose(1, 2))
        return gram.flatten(1).index_select(1, self.upper)


def pool_pairs(fields: Tensor) -> Tensor:
    """Σ_{i<j} e_i ⊙ e_j in linear time: ((Σ e_i)² − Σ e_i²) / 2.

    **Shape.** (B, n, d) → (B, d). Half-precision inputs are accumulated in float32, because the difference of two large
    sums would keep few of their bits.

    >>> pool_pairs(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    tensor([[23., 44.]])
    """
    exact = fields.float() if fields.dtype in (torch.float16, torch.bfloat16) else fields
    pooled = (exact.sum(dim=1).square() - exact.square().sum(dim=1)) / 2
    return pooled.to(fields.dtype)


def pair_scale(num_fields: int, given: float | None = None) -> float:
    """The weight of the products of all pairs in a factorisation machine: `given`, or 10/n if n > 10, else 1.

    There are n(n − 1)/2 products. If they were independent, the spread of their sum would grow with n, and 10/n would
    keep it to that of ten fields: with 39 fields the sum of all products is too large from the start (docs/results.md),
    and with 150 it exceeds the rest of the network within a few steps (benchmarks/wide.py).

    >>> pair_scale(8), pair_scale(40)
    (1.0, 0.25)
    """
    if given is not None:
        return check_positive_real("pairs", given)
    return min(1.0, _FEW_FIELDS / max(num_fields, 1))


def append_plain(inputs: Tensor, plain: Tensor | None) -> Tensor:
    """Inputs (B, k) and plain inputs (B, r), if any, concatenated."""
    return inputs if plain is None else torch.cat([inputs, plain], dim=1)
