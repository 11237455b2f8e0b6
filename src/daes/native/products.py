"""Matrix products of single precision on the CPU, by oneDNN where that is faster than torch's BLAS.

On processors with AVX-512 oneDNN uses it whoever made them. MKL, which torch multiplies with, does so on Intel's alone
and takes more than twice the time on others.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from daes import native

_SMALLEST = 2**23
"""Multiplications from which on oneDNN is quicker: before that, its calls take longer."""


def _available() -> bool:
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return wide and torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


_AVAILABLE = _available()


def quicker(inputs: Tensor, outputs: int) -> bool:
    """Whether oneDNN takes less time to multiply inputs (B, k) with a matrix (k, outputs)."""
    return _AVAILABLE and inputs.numel() * outputs >= _SMALLEST and torch._C._get_mkldnn_enabled()


def floats(*shape: int) -> Tensor:
    """An uninitialised float32 tensor, whatever torch's default type is."""
    return torch.empty(shape, dtype=torch.float32)


def padded(rows: int, width: int) -> Tensor:
    """Memory for (rows, width) numbers, whose rows start at multiples of eight."""
    return floats(rows, -(-width // 8) * 8)[:, :width]


def memory_of_inputs(rows: int, width: int, outputs: int) -> Tensor:
    """Memory for (rows, width) numbers to be multiplied with a matrix (width, outputs).

    BLAS is up to a third faster if rows start at multiples of eight numbers; oneDNN needs rows without gaps.
    """
    dense = floats(rows, width)
    return dense if quicker(dense, outputs) else padded(rows, width)


def product(inputs: Tensor, weight: Tensor, plus: Tensor | None = None) -> Tensor:
    """inputs · weightᵀ + plus, without autograd.

    **Shape.** inputs (B, k), weight (n, k), plus (n,) or (B, n) → (B, n), of which rows may lie further apart.
    """
    if quicker(inputs, len(weight)):
        return _by_onednn(inputs, weight, plus)
    into = padded(len(inputs), len(weight))
    return torch.mm(inputs, weight.t(), out=into) if plus is None else torch.addmm(plus, inputs, weight.t(), out=into)


def weight_gradient(gradient: Tensor, inputs: Tensor, plus: Tensor | None = None) -> Tensor:
    """gradientᵀ · inputs + plus, without autograd.

    **Shape.** gradient (B, n), inputs (B, k), plus (n, k) → (n, k).
    """
    if quicker(gradient, inputs.shape[1]):
        return _by_onednn(gradient.t(), inputs.t(), plus)
    return torch.mm(gradient.t(), inputs) if plus is None else torch.addmm(plus, gradient.t(), inputs)


def put_product(out: Tensor, inputs: Tensor, weight: Tensor, plus: Tensor | None = None) -> None:
    """Write the first columns of `product`, as many as there are in `out`."""
    columns = out.shape[1]
    if quicker(inputs, len(weight)):
        out.copy_(_by_onednn(inputs, weight, plus)[:, :columns])
    elif plus is None:
        torch.mm(inputs, weight[:columns].t(), out=out)
    else:
        torch.addmm(plus, inputs, weight[:columns].t(), out=out)


def put_weight_gradient(out: Tensor, gradient: Tensor, inputs: Tensor) -> None:
    """Write `weight_gradient`."""
    if quicker(gradient, inputs.shape[1]):
        out.copy_(_by_onednn(gradient.t(), inputs.t(), None))
    else:
        torch.mm(gradient.t(), inputs, out=out)


def _by_onednn(inputs: Tensor, weight: Tensor, plus: Tensor | None) -> Tensor:
    # Columns with gaps between them oneDNN multiplies by plain loops, which take a thousand times as long.
    if not weight.is_contiguous() and not weight.t().is_contiguous():
        weight = weight.contiguous()
    operation = torch.ops.mkldnn._linear_pointwise
    found: Tensor
    if plus is None or plus.ndim == 1:
        found = operation.default(inputs, weight, plus, "none", [], "")
    else:
        found = operation.binary(inputs, plus, weight, None, "add")
    return found


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`torch.nn.functional.linear`, by oneDNN if that is faster and nothing but autograd records it.

    **Shape.** inputs (…, k), weight (n, k), bias (n,) → (…, n).
    """
    if not native.serves(inputs, weight, bias) or torch.is_autocast_enabled("cpu") or transformed():
        return F.linear(inputs, weight, bias)
    single = inputs.dtype == weight.dtype == torch.float32 and (bias is None or bias.dtype == torch.float32)
    if not single or inputs.ndim != 2 or not quicker(inputs, len(weight)):
        return F.linear(inputs, weight, bias)
    found: Tensor = _Linear.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
    return found


def transformed(*gradients: Tensor) -> bool:
    """Whether something other than autograd records the operations: vmap, forward gradients or a trace."""
    return (
        torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or any(map(torch._C._functorch.is_legacy_batchedtensor, gradients))
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        inputs, weight = ctx.saved_tensors
        to_inputs, to_weight, to_bias = ctx.needs_input_grad
        plain = torch.is_grad_enabled() or transformed(gradient)  # operations that autograd and vmap know
        gradient = gradient if plain else gradient.contiguous()
        down = weight_down = None
        if to_inputs:
            down = gradient @ weight if plain else product(gradient, weight.t())
        if to_weight:
            weight_down = gradient.t() @ inputs if plain else weight_gradient(gradient, inputs)
        return down, weight_down, gradient.sum(0) if to_bias else None
