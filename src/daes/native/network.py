"""A multi-layer perceptron, with or without a factorisation machine beside it, in few operations on the CPU.

Matrix products are those of `daes.native.products`; inputs, products of fields and ReLUs are loops of
`kernels/network.h`.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from daes import native
from daes.native.products import memory_of_inputs, put_product, weight_gradient


def leak_(inputs: Tensor, slope: float) -> Tensor:
    """A leaky ReLU in place."""
    return leaky_relu(inputs, slope, inplace=True) if slope else inputs.relu_()


def leak_backward_(gradient: Tensor, outputs: Tensor, slope: float) -> Tensor:
    """The gradient (B, n) behind a leaky ReLU, in place, from its outputs; its sum over the rows (n,)."""
    found = torch.empty(outputs.shape[1])
    native._library.daes_relu_backward(gradient, gradient.stride(0), outputs, *outputs.shape, slope, found)
    return found


class Network(NamedTuple):
    """The weights of logit = MLP(inputs), plus, with `linear` (1, n·d), Σ_i ⟨w_i, e_i⟩ + `pairs`·Σ_{i<j} ⟨e_i, e_j⟩.

    `layers` are weight and bias of the hidden layers and of the readout, one after the other; hidden units are leaky
    ReLUs of this `slope` below 0. With `crosses`, weight and bias of each cross of DCN v2 (`daes.native.crosses`), the
    readout is of the crossed inputs and the last hidden layer, side by side.
    """

    layers: list[Tensor]
    slope: float
    linear: Tensor | None = None
    pairs: float = 1.0
    crosses: Sequence[Tensor] = ()

    def logits(
        self, fields: Sequence[Tensor], plain: Sequence[Tensor], evidence: Tensor | None, start: Callable[[], float]
    ) -> Tensor | None:
        """Logits (B,) of fields (B, nᵢ, d) and plain inputs (B, rᵢ) side by side, if compiled loops serve and there are
        no crosses.

        To them are added `start()` and the last plain inputs times `evidence`, if there is such a weight for each.
        """
        parts = (*fields, *plain)
        tensors = (*parts, evidence, self.linear, *self.layers)
        if self.crosses or not native.serves(*tensors) or torch.is_autocast_enabled("cpu"):
            return None
        for one in tensors:
            if one is not None and one.dtype != torch.float32:
                return None
        for one in plain:
            if one.requires_grad:
                return None
        if not self._fits(fields, plain, evidence):
            return None
        found: Tensor = _NetworkLogits.apply(  # type: ignore[no-untyped-call]
            len(fields), len(parts), start(), self.pairs, self.slope, evidence, self.linear, *parts, *self.layers
        )
        return found

    def _fits(self, fields: Sequence[Tensor], plain: Sequence[Tensor], evidence: Tensor | None) -> bool:
        """Whether all parts have the rows and the widths that compiled loops take for granted."""
        rows, dim = len(fields[0]), fields[0].shape[2]
        for one in fields:
            if one.ndim != 3 or len(one) != rows or one.shape[2] != dim:
                return False
        for one in plain:
            if one.ndim != 2 or len(one) != rows:
                return False
        width = sum(one.shape[1] for one in fields) * dim
        counted = 0 if evidence is None else len(evidence)
        return (
            self.layers[0].shape[1] == width + sum(one.shape[1] for one in plain)
            and (self.linear is None or self.linear.numel() == width)
            and counted <= sum(one.shape[1] for one in plain)
        )


class _NetworkLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        num_fields: int,
        num_parts: int,
        start: float,
        pairs: float,
        slope: float,
        evidence: Tensor | None,
        linear: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        parts, layers = tensors[:num_parts], tensors[num_parts:]
        rows, _, dim = parts[0].shape
        sizes = [one.shape[1] for one in parts[:num_fields]]
        widths = [dim * size for size in sizes] + [one.shape[1] for one in parts[num_fields:]]
        width, counted = sum(widths), 0 if evidence is None else len(evidence)
        x = memory_of_inputs(rows, width, len(layers[0]))
        sums, logits = torch.empty(rows, dim), torch.empty(rows)
        pointers = (ctypes.c_void_p * num_parts)(*[one.data_ptr() for one in parts])
        sides = pointers, (ctypes.c_int64 * num_parts)(*widths), num_parts
        terms = linear, pairs, evidence, counted, start, layers[-1]
        native._library.daes_join(*sides, rows, width, x.stride(0), sum(sizes), dim, *terms, x, sums, logits)
        hidden = [x]
        for place in range(0, len(layers) - 2, 2):
            into = x.new_empty(rows, len(layers[place]))
            put_product(into, hidden[-1], layers[place], layers[place + 1])
            hidden.append(leak_(into, slope))
        ctx.save_for_backward(sums, linear, *layers, *hidden)
        ctx.sizes, ctx.num_parts, ctx.counted, ctx.pairs, ctx.slope = sizes, num_parts, counted, pairs, slope
        return torch.addmv(logits, hidden[-1], layers[-2][0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        native.refuse_second_derivatives()
        sums, linear, *saved = ctx.saved_tensors
        rows, dim = sums.shape
        fields, depth = sum(ctx.sizes), len(saved) // 3 - 1
        layers, hidden = saved[: 2 * depth + 2], saved[2 * depth + 2 :]
        gradient = gradient.contiguous()
        found = [torch.mv(hidden[-1].t(), gradient).unsqueeze(0), gradient.sum(0, keepdim=True)]
        down = gradient.unsqueeze(1) * layers[-2]
        for place in reversed(range(depth)):
            weight, outputs = layers[2 * place], hidden[place + 1]
            bias = leak_backward_(down, outputs, ctx.slope)
            found[:0] = weight_gradient(down, hidden[place]), bias
            into = down.new_empty(rows, weight.shape[1] if place else fields * dim)  # plain inputs stand last
            put_product(into, down, weight.t())
            down = into
        x = hidden[0]
        to_linear = None if linear is None else torch.zeros(linear.shape)
        to_evidence = torch.zeros(ctx.counted) if ctx.counted else None
        given = gradient, *x.shape, x.stride(0), fields, dim, x, sums, linear, ctx.pairs, ctx.counted
        native._library.daes_join_backward(*given, down, to_linear, to_evidence)
        by_field = down.view(rows, fields, dim).split_with_sizes(ctx.sizes, 1)
        plain = [None] * (ctx.num_parts - len(ctx.sizes))
        return None, None, None, None, None, to_evidence, to_linear, *by_field, *plain, *found
