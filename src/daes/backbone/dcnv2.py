"""DCN v2: deep and cross network with full-matrix crosses."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from daes import native
from daes.backbone.arguments import check_count
from daes.backbone.base import Backbone, Settings
from daes.backbone.layers import HiddenLayers, Readout, unchanged
from daes.backbone.registry import register_backbone
from daes.native.crosses import add_to, cross, cross_backward, row_slices
from daes.native.network import Network, leak_, leak_backward_
from daes.native.products import product, put_product, transformed, weight_gradient
from daes.native.threads import map_parts
from daes.registry import Reference


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
        self.deep = self._hidden_layers(self.input_dim)
        self.readout = Readout(self.input_dim + self.deep.out_features)

    @property
    def halves_batches(self) -> bool:
        return self.rank is None and native.serves()

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        inputs = self.flatten(fields, plain)
        found = self._weights()
        if found is None or not _fit(inputs, *found[0]):
            return self.readout.of_parts(self.cross(inputs), self.deep(inputs))
        weights, slope = found
        logits: Tensor = _CrossedLogits.apply(inputs, self.layers, slope, *weights)  # type: ignore[no-untyped-call]
        return logits

    def network(self) -> Network | None:
        found = self._weights() if unchanged(self, DCNv2) and self.hidden else None
        if found is None:
            return None
        weights, slope = found
        return Network(weights[2 * self.layers :], slope, crosses=weights[: 2 * self.layers])

    def _weights(self) -> tuple[list[Tensor], float] | None:
        """Weight and bias of every cross, hidden layer and of the readout, and the slope of hidden units.

        None unless the crosses have full matrices, all is of single precision and no part was changed.
        """
        parts: list[Any] = [self._modules[name] for name in ("cross", "deep", "readout")]
        cross, deep, readout = parts
        if not (unchanged(cross, MatrixCross) and unchanged(deep, HiddenLayers) and unchanged(readout, Readout)):
            return None
        hidden = deep.weights()
        if self.rank is not None or hidden is None or len(cross.maps) != self.layers:
            return None
        found: list[Any] = []
        for linear in cross.maps._modules.values():
            if not unchanged(linear, nn.Linear):
                return None
            found += linear._parameters.values()
        found += (*hidden[0], *readout._parameters.values())
        single = all(one is not None and one.dtype == torch.float32 for one in found)
        return (found, hidden[1]) if single else None


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
        crossed = inputs
        for linear in self.maps:
            crossed = inputs * linear(crossed) + crossed
        return crossed


class _CrossedLogits(torch.autograd.Function):
    """Logits (B,) of inputs (B, D), given weight and bias of L crosses, of hidden layers and of the readout.

    A second thread may compute half of the rows (`daes.native.threads`).
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, num_crosses: int, slope: float, *weights: Tensor) -> Tensor:
        logits = inputs.new_empty(len(inputs))
        rows = 0 if torch.is_inference_mode_enabled() else len(inputs)  # whose tensors no other thread may write
        ctx.halves = _halves(len(inputs))
        kept = map_parts(rows, _score, [(inputs, logits, num_crosses, slope, weights, half) for half in ctx.halves])
        ctx.save_for_backward(inputs, *weights, *chain(*kept))
        ctx.num_crosses, ctx.slope, ctx.num_weights = num_crosses, slope, len(weights)
        return logits

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        inputs, *saved = ctx.saved_tensors
        weights, kept = saved[: ctx.num_weights], iter(saved[ctx.num_weights :])
        if torch.is_grad_enabled() or transformed(gradient):
            needed = ctx.needs_input_grad[0], *ctx.needs_input_grad[3:]
            found = _by_autograd(needed, gradient, inputs, ctx.num_crosses, ctx.slope, weights)
            return found[0], None, None, *found[1:]
        gradient, to_inputs = gradient.contiguous(), torch.empty_like(inputs)
        each = ctx.num_crosses + ctx.num_weights // 2 - 1  # tensors that a part keeps
        halves = [
            (
                inputs,
                gradient,
                to_inputs,
                ctx.num_crosses,
                ctx.slope,
                weights,
                [(rows, list(islice(kept, each))) for rows in half],
            )
            for half in ctx.halves
        ]
        found, *others = map_parts(len(inputs), _learn, halves)
        for other in others:
            torch._foreach_add_(found, other)
        return to_inputs, None, None, *found


def _fit(inputs: Tensor, *weights: Tensor) -> bool:
    """Whether tensors are of single precision on the CPU and nothing but autograd follows the operations."""
    if torch.is_autocast_enabled("cpu") or transformed():
        return False
    return native.serves(inputs, *weights) and inputs.dtype == torch.float32


def _by_autograd(
    needed: Sequence[bool], gradient: Tensor, inputs: Tensor, num_crosses: int, slope: float, weights: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradients in operations that autograd and vmap know, to be differentiated again if it is on."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        crossed = hidden = inputs
        *layers, last, bias = weights
        for place in range(0, len(layers), 2):
            if place < 2 * num_crosses:
                crossed = inputs * F.linear(crossed, *layers[place : place + 2]) + crossed
            else:
                hidden = F.leaky_relu(F.linear(hidden, *layers[place : place + 2]), slope)
        logits = F.linear(torch.cat([crossed, hidden], 1), last, bias).squeeze(1)
    wanted = [one for one, asked in zip((inputs, *weights), needed, strict=True) if asked]
    found = iter(torch.autograd.grad(logits, wanted, gradient, create_graph=again))
    return [next(found) if asked else None for asked in needed]


def _halves(rows: int) -> list[list[slice]]:
    """The rows of a batch in slices, one or two lists of them."""
    parts = row_slices(rows)
    middle = len(parts) // 2
    return [one for one in (parts[:middle], parts[middle:]) if one]


@torch.no_grad()
def _score(
    inputs: Tensor, logits: Tensor, num_crosses: int, slope: float, weights: Sequence[Tensor], parts: Sequence[slice]
) -> list[Tensor]:
    """Write the logits of some rows; per part, what `cross` gives, then the hidden layers."""
    kept = list[Tensor]()
    crosses, (*layers, last, bias) = weights[: 2 * num_crosses], weights[2 * num_crosses :]
    for rows in parts:
        crossed, hidden = cross(inputs[rows], crosses), [inputs[rows]]
        for place in range(0, len(layers), 2):
            into = inputs.new_empty(len(hidden[0]), len(layers[place]))
            put_product(into, hidden[-1], *layers[place : place + 2])
            hidden.append(leak_(into, slope))
        kept += *crossed, *hidden[1:]
        of_crosses, of_hidden = last[0].split_with_sizes([inputs.shape[1], hidden[-1].shape[1]])
        torch.add(crossed[-1].mv(of_crosses) + bias, hidden[-1].mv(of_hidden), out=logits[rows])
    return kept


@torch.no_grad()
def _learn(
    inputs: Tensor,
    gradient: Tensor,
    to_inputs: Tensor,
    num_crosses: int,
    slope: float,
    weights: Sequence[Tensor],
    parts: Sequence[tuple[slice, list[Tensor]]],
) -> list[Tensor]:
    """Write the gradients of some rows of inputs; those of weights and biases."""
    found: list[Any] = [None] * len(weights)
    for rows, kept in parts:
        first, own = inputs[rows], gradient[rows]
        crossed, hidden = kept[: 2 * num_crosses], [first, *kept[2 * num_crosses :]]
        add_to(found, -2, torch.cat([crossed[-1].t().mv(own), hidden[-1].t().mv(own)]).unsqueeze(0))
        add_to(found, -1, own.sum(0, keepdim=True))
        widths = [inputs.shape[1], hidden[-1].shape[1]]
        up, down = (own.unsqueeze(1) * part for part in weights[-2][0].split_with_sizes(widths))
        for layer in reversed(range(len(hidden) - 1)):
            place = 2 * (num_crosses + layer)
            add_to(found, place + 1, leak_backward_(down, hidden[layer + 1], slope))
            found[place] = weight_gradient(down, hidden[layer], found[place])
            down = product(down, weights[place].t())
        torch.add(*cross_backward(first, crossed, weights[: 2 * num_crosses], up, down, found), out=to_inputs[rows])
    return found
