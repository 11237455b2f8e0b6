"""DCN v2: deep and cross network with full-matrix crosses."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from daes import native
from daes.backbone.arguments import check_count
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import HiddenLayers, Readout, unchanged
from daes.backbone.registry import register_backbone
from daes.native.products import product, transformed, weight_gradient
from daes.native.whole import together
from daes.registry import Reference

_ROWS = 512
"""Rows that are crossed at a time, which stay in the cache. Several threads of torch share operations on all rows."""


@register_backbone(
    "dcnv2",
    title="DCN v2",
    reference=Reference(
        "Ruoxi Wang et al.",
        "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-Scale Learning to Rank Systems",
        "WWW",
        2021,
    ),
    order=5,
    interactions="1 … L+1, beside implicit",
)
class DCNv2(Backbone):
    """Deep and cross network, version 2: matrix-weighted crosses beside an MLP (the parallel form).

        x_0     = [e_1, …, e_n, plain]
        x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l
        logit   = ⟨u, [x_L, h(x_0)]⟩ + b,   h the hidden layers

    **Shape.** fields (B, n, d), plain (B, r) → (B,).

    Args:
        num_fields, dim, plain_dim, hidden, dropout, batch_norm, slope: as in `Backbone`.
        layers: the number L of crosses.
        rank: None for full matrices of D² weights, D = n·d + r; a number k for W_l = U_l V_l with 2kD.

    >>> import torch
    >>> DCNv2(num_fields=4, dim=16, rank=8)(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    """

    def __init__(
        self, num_fields: int, dim: int, *, layers: int = 3, rank: int | None = None, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(num_fields, dim, **settings)
        self.layers = check_count("layers", layers)
        self.rank = None if rank is None else check_count("rank", rank)
        self.cross = MatrixCross(self.input_dim, self.layers, self.rank)
        self.deep = HiddenLayers(
            self.input_dim, self.hidden, dropout=self.dropout, batch_norm=self.batch_norm, slope=self.slope
        )
        self.readout = Readout(self.input_dim + self.deep.out_features)

    @property
    def halves_batches(self) -> bool:
        return self.rank is None and native.serves()

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        inputs = self.flatten(fields, plain)
        return self.readout.of_parts(self.cross(inputs), self.deep(inputs))


class MatrixCross(nn.Module):
    """x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l: (B, D) → (B, D)."""

    def __init__(self, width: int, layers: int, rank: int | None) -> None:
        super().__init__()
        self.maps = nn.ModuleList(
            nn.Linear(width, width)
            if rank is None
            else nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))
            for _ in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        weights = self._weights(inputs)
        if weights is not None:
            found: Tensor = _Crosses.apply(inputs, *weights)  # type: ignore[no-untyped-call]
            return found
        crossed = inputs
        for linear in self.maps:
            crossed = inputs * linear(crossed) + crossed
        return crossed

    def _weights(self, inputs: Tensor) -> list[Tensor] | None:
        """Weight and bias of every cross, if all is of single precision on the CPU and only autograd looks on."""
        if inputs.ndim != 2 or torch.is_autocast_enabled("cpu") or transformed():
            return None
        found: list[Any] = [inputs]
        for linear in self.maps._modules.values():
            if not unchanged(linear, nn.Linear):
                return None
            found += linear._parameters.values()
        if not native.serves(*found):
            return None
        fits = all(one is not None and one.dtype == torch.float32 for one in found)
        return found[1:] if fits else None


class _Crosses(torch.autograd.Function):
    """The crosses of inputs (B, D), given weight and bias of each; another thread may do half of the rows."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, *weights: Tensor) -> Tensor:
        outputs = torch.empty_like(inputs)
        rows = 0 if torch.is_inference_mode_enabled() else len(inputs)  # whose tensors no other thread may write
        ctx.halves = _halves(len(inputs))
        kept = together(rows, _cross, [(inputs, outputs, weights, parts) for parts in ctx.halves])
        ctx.save_for_backward(inputs, *weights, *chain(*kept))
        ctx.depth = len(weights) // 2
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        inputs, *saved = ctx.saved_tensors
        weights, kept = saved[: 2 * ctx.depth], iter(saved[2 * ctx.depth :])
        if torch.is_grad_enabled() or transformed(gradient):
            return _Crosses._by_autograd(ctx.needs_input_grad, gradient, inputs, weights)
        gradient, to_inputs = gradient.contiguous(), torch.empty_like(inputs)
        lots = [
            (inputs, gradient, to_inputs, weights, [(part, list(islice(kept, 2 * ctx.depth))) for part in parts])
            for parts in ctx.halves
        ]
        found, *others = together(len(inputs), _cross_back, lots)
        for other in others:
            torch._foreach_add_(found, other)
        return to_inputs, *found

    @staticmethod
    def _by_autograd(needed: tuple[bool, ...], gradient: Tensor, inputs: Tensor, weights: list[Tensor]) -> Any:
        """The gradients in operations that autograd and vmap know, to be differentiated again if it is on."""
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            crossed = inputs
            for weight, bias in zip(weights[::2], weights[1::2], strict=True):
                crossed = inputs * nn.functional.linear(crossed, weight, bias) + crossed
        wanted = [one for one, asked in zip((inputs, *weights), needed, strict=True) if asked]
        found = iter(torch.autograd.grad(crossed, wanted, gradient, create_graph=again))
        return tuple(next(found) if asked else None for asked in needed)


def _halves(rows: int) -> list[list[slice]]:
    """The rows of a batch in parts, one or two lists of them."""
    each = _ROWS if torch.get_num_threads() == 1 else max(rows, 1)
    parts = [slice(start, start + each) for start in range(0, max(rows, 1), each)]
    middle = len(parts) // 2
    return [one for one in (parts[:middle], parts[middle:]) if one]


@torch.no_grad()
def _cross(inputs: Tensor, outputs: Tensor, weights: Sequence[Tensor], parts: list[slice]) -> list[Tensor]:
    """Write the crosses of some rows; what each was made of, x_l and W_l x_l + b_l."""
    kept = list[Tensor]()
    for rows in parts:
        first = crossed = inputs[rows]
        for place in range(0, len(weights), 2):
            mapped = product(crossed, *weights[place : place + 2])
            kept += crossed, mapped
            into = outputs[rows] if place == len(weights) - 2 else None
            crossed = torch.addcmul(crossed, first, mapped, out=into)
    return kept


@torch.no_grad()
def _cross_back(
    inputs: Tensor,
    gradient: Tensor,
    to_inputs: Tensor,
    weights: Sequence[Tensor],
    parts: list[tuple[slice, list[Tensor]]],
) -> list[Tensor]:
    """Write the gradients of some rows; those of weights and biases."""
    found: list[Any] = [None] * len(weights)
    for rows, kept in parts:
        first, own = inputs[rows], gradient[rows]
        to_first = torch.zeros_like(first)
        for place in reversed(range(0, len(weights), 2)):
            crossed, mapped = kept[place : place + 2]
            to_first.addcmul_(own, mapped)
            down, bias = own * first, found[place + 1]
            found[place] = weight_gradient(down, crossed, found[place])
            found[place + 1] = down.sum(0) if bias is None else bias.add_(down.sum(0))
            own = product(down, weights[place].t(), own)
        torch.add(own, to_first, out=to_inputs[rows])
    return found
