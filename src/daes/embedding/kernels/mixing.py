"""Sums of all rows of a feature's table with given weights, and their gradients: a small matrix product per feature.

Libraries' batched products take milliseconds for the gradient of such a table, a sum over all rows of a batch that they
do not split. As in `daes.embedding.kernels.interpolation` a program sums over a share of the rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device

_PROGRAMS = 4224
_BLOCK = 32


@triton.jit
def _mixed(weights, row, feature, m, valid, first, second, third, beta, M: tl.constexpr, SQUASH: tl.constexpr):
    """Weights (BLOCK, M) of rows, and what they are multiplied with to get the gradient of what they are made of."""
    there = valid[:, None] & (m < M)
    w = tl.load(weights + row[:, None] * first + feature.to(tl.int64) * second + m * third, mask=there, other=0.0)
    slope = tl.zeros_like(w) + beta
    if SQUASH:
        sigmoid = 1.0 / (1.0 + tl.exp(-w))
        slope = beta * sigmoid * (1.0 - sigmoid)
        w = sigmoid
    return tl.where(there, beta * w, 0.0), slope


@triton.jit
def _forward(
    weights, first, second, third, table, base, out, rows, q, splits, beta,
    M: tl.constexpr, MP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, SQUASH: tl.constexpr, BASE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(0)
    r = tl.arange(0, MP)[:, None]
    d = tl.arange(0, DP)[None, :]
    m = tl.arange(0, MP)[None, :]
    part = tl.load(table + feature * M * D + r * D + d, mask=(r < M) & (d < D), other=0.0)
    for start in range(tl.program_id(1) * BLOCK, rows, splits * BLOCK):
        row = (start + tl.arange(0, BLOCK)).to(tl.int64)
        valid = row < rows
        w, _ = _mixed(weights, row, feature, m, valid, first, second, third, beta, M, SQUASH)
        result = tl.dot(w, part, input_precision="ieee")
        place = (row[:, None] * q + feature) * D + d
        wanted = valid[:, None] & (d < D)
        if BASE:
            result += tl.load(base + place, mask=wanted, other=0.0)
        tl.store(out + place, result, mask=wanted)


@triton.jit
def _backward(
    gradient, stride, weights, first, second, third, table, slopes, sums, rows, q, splits, beta,
    M: tl.constexpr, MP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, SQUASH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(0)
    split = tl.program_id(1)
    r = tl.arange(0, MP)[:, None]
    d = tl.arange(0, DP)[None, :]
    m = tl.arange(0, MP)[None, :]
    part = tl.load(table + feature * M * D + r * D + d, mask=(r < M) & (d < D), other=0.0)
    total = tl.zeros([MP, DP], tl.float32)
    for start in range(split * BLOCK, rows, splits * BLOCK):
        row = (start + tl.arange(0, BLOCK)).to(tl.int64)
        valid = row < rows
        g = tl.load(gradient + row[:, None] * stride + feature * D + d, mask=valid[:, None] & (d < D), other=0.0)
        w, slope = _mixed(weights, row, feature, m, valid, first, second, third, beta, M, SQUASH)
        change = tl.dot(g, tl.trans(part), input_precision="ieee") * slope
        tl.store(slopes + (row[:, None] * q + feature) * M + m, change, mask=valid[:, None] & (m < M))
        total += tl.dot(tl.trans(w), g, input_precision="ieee")
    tl.store(sums + (split * q + feature) * M * D + r * D + d, total, mask=(r < M) & (d < D))


@torch.library.custom_op("daes::mix", mutates_args=())
@on_its_device
def mix(weights: Tensor, table: Tensor, base: Tensor | None, beta: float, squash: bool) -> Tensor:
    """base + β·Σ_i w_i E_i, or with `squash` base + β·Σ_i sigmoid(w_i) E_i.

    **Shape.** weights (B, q, M), table (q, M, d), base (B, q, d) or None for 0 → (B, q, d).
    """
    rows, q, _ = weights.shape
    out = torch.empty(rows, q, table.shape[2], dtype=table.dtype, device=table.device)
    if rows:
        splits = _splits(rows, q)
        _forward[(q, splits)](
            weights, *weights.stride(), table.contiguous(), table if base is None else base.contiguous(), out, rows, q,
            splits, beta, **_shape(table), SQUASH=squash, BASE=base is not None, BLOCK=_BLOCK, num_warps=1,
            num_stages=1,
        )  # fmt: skip
    return out


@torch.library.custom_op("daes::mix_backward", mutates_args=())
@on_its_device
def mix_backward(gradient: Tensor, weights: Tensor, table: Tensor, beta: float, squash: bool) -> tuple[Tensor, Tensor]:
    """Gradients of weights and table."""
    rows, q, count = weights.shape
    if gradient.stride()[1:] != (table.shape[2], 1):
        gradient = gradient.contiguous()
    slopes = torch.empty(rows, q, count, dtype=weights.dtype, device=weights.device)
    if not rows:
        return slopes, torch.zeros_like(table)
    splits = _splits(rows, q)
    sums = torch.empty(splits, *table.shape, dtype=table.dtype, device=table.device)
    _backward[(q, splits)](
        gradient, gradient.stride(0), weights, *weights.stride(), table.contiguous(), slopes, sums, rows, q, splits,
        beta, **_shape(table), SQUASH=squash, BLOCK=_BLOCK, num_warps=1, num_stages=1,
    )  # fmt: skip
    return slopes, sums.sum(0)


@mix.register_fake
def _(weights, table, *rest):
    return table.new_empty(weights.shape[0], weights.shape[1], table.shape[2])


@mix_backward.register_fake
def _(gradient, weights, table, *rest):
    return weights.new_empty(weights.shape), table.new_empty(table.shape)


def _keep(ctx, inputs, output):
    weights, table, base, ctx.beta, ctx.squash = inputs
    ctx.save_for_backward(weights, table)
    ctx.has_base = base is not None


def _differentiate(ctx, gradient):
    weights, table = ctx.saved_tensors
    slopes, sums = mix_backward(gradient, weights, table, ctx.beta, ctx.squash)
    return slopes, sums, gradient if ctx.has_base else None, None, None


mix.register_autograd(_differentiate, setup_context=_keep)


def _splits(rows: int, q: int) -> int:
    return max(1, min(triton.cdiv(rows, _BLOCK), _PROGRAMS // q))


def _shape(table: Tensor) -> dict[str, int]:
    _, count, dim = table.shape
    return {
        "M": count,
        "MP": max(16, triton.next_power_of_2(count)),
        "D": dim,
        "DP": max(16, triton.next_power_of_2(dim)),
    }
