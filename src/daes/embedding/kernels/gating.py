"""A gate, whose factors depend on the row's context, in one kernel: e = Σ_i v_i (β·sigmoid(W c)_i + 1 − β) E_i.

Weights v, factors and everything else that is as large as the batch stay in registers; a product with W, one with E. A
program of the backward sums over a block of rows, feature after feature: what a row's context gets is the sum over the
features, what W and E get is summed over blocks afterwards. Nothing is added atomically, so that two runs give the same
bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device
from daes.embedding.kernels.places import (
    KINDS,
    basis_weights,
    kinds_of,
    locate,
    part,
    sizes_of,
    store_inputs,
    unit_input,
)

_PROGRAMS = 4224
"""Programs, of one warp each, that a launch aims at: 32 for each of an H200's multiprocessors."""

_BLOCK = 32
_REGISTERS = 128  # per thread: more programs at a time are worth a few numbers in memory
_PRECISION = "tf32x3"  # float32 by three products of tensor cores


@triton.jit
def _forward(
    values, knots, centre, scale, context, projection, table, missing, linear, fields, plain, rows, q, splits, beta,
    K: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, HALF: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, LINEAR: tl.constexpr, PLAIN: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(0)
    d = tl.arange(0, DP)[None, :]
    c = tl.arange(0, CP)[None, :]
    column = tl.arange(0, RP)[None, :]
    r = tl.arange(0, RP)[:, None]
    w = tl.load(projection + (feature * R + r) * C + c, mask=(r < R) & (c < C), other=0.0)
    e = tl.load(table + (feature * R + r) * D + d, mask=(r < R) & (d < D), other=0.0)
    middle = tl.load(centre + feature)
    spread = tl.load(scale + feature)
    instead = tl.load(missing + feature * D + d, mask=d < D, other=0.0)
    for start in range(tl.program_id(1) * BLOCK, rows, splits * BLOCK):
        row = (start + tl.arange(0, BLOCK)).to(tl.int64)
        valid = row < rows
        x, absent = part(tl.load(values + row * q + feature, mask=valid, other=0.0))
        cell, inside, known = locate(x, knots + feature * (K + 1), K, STEPS)
        rank = (cell.to(tl.float32) + inside) / K
        v = tl.where(known[:, None], basis_weights(cell, inside, column, K, M, R), 0.0)
        u = tl.load(context + row[:, None] * C + c, mask=valid[:, None] & (c < C), other=0.0)
        gate = tl.sigmoid(tl.dot(u, tl.trans(w), input_precision=PRECISION))
        vector = tl.dot(v * (beta * gate + (1.0 - beta)), e, input_precision=PRECISION)
        if LINEAR:
            z = unit_input(LINEAR, x, rank, known, middle, spread, HALF)
            vector += z[:, None] * tl.load(linear + feature * D + d, mask=d < D, other=0.0)
        vector = tl.where(absent[:, None], instead, vector)
        tl.store(fields + (row[:, None] * q + feature) * D + d, vector, mask=valid[:, None] & (d < D))
        place = plain + row * (PLAIN * q) + feature
        store_inputs(place, q, x, rank, known, absent, valid, middle, spread, HALF, FIRST, SECOND, THIRD)


@triton.jit
def _backward(
    gradient, stride, values, knots, centre, scale, context, projection, table, sums, changes, slopes,
    rows, q, groups, beta,
    K: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, HALF: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, LINEAR: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0).to(tl.int64)  # there may be more than 2^31 sums
    group = tl.program_id(1)
    row = block * BLOCK + tl.arange(0, BLOCK)
    valid = row < rows
    d = tl.arange(0, DP)[None, :]
    c = tl.arange(0, CP)[None, :]
    column = tl.arange(0, RP)[None, :]
    r = tl.arange(0, RP)[:, None]
    u = tl.load(context + row[:, None] * C + c, mask=valid[:, None] & (c < C), other=0.0)
    slope = tl.zeros([BLOCK, CP], tl.float32)
    for feature in range(group, q, groups):
        g = tl.load(gradient + row[:, None] * stride + feature * D + d, mask=valid[:, None] & (d < D), other=0.0)
        x, absent = part(tl.load(values + row * q + feature, mask=valid, other=0.0))
        w = tl.load(projection + (feature * R + r) * C + c, mask=(r < R) & (c < C), other=0.0)
        e = tl.load(table + (feature * R + r) * D + d, mask=(r < R) & (d < D), other=0.0)
        cell, inside, known = locate(x, knots + feature * (K + 1), K, STEPS)
        v = tl.where((known & ~absent)[:, None], basis_weights(cell, inside, column, K, M, R), 0.0)
        gate = tl.sigmoid(tl.dot(u, tl.trans(w), input_precision=PRECISION))
        weights = v * (beta * gate + (1.0 - beta))
        weights += tl.where((column == R) & absent[:, None], 1.0, 0.0)
        if LINEAR:
            rank = (cell.to(tl.float32) + inside) / K
            z = unit_input(LINEAR, x, rank, known, tl.load(centre + feature), tl.load(scale + feature), HALF)
            weights += tl.where((column == R + 1) & (~absent)[:, None], z[:, None], 0.0)
        total = tl.dot(tl.trans(weights), g, input_precision=PRECISION)
        tl.store(sums + ((block * q + feature) * (R + 2) + r) * D + d, total, mask=(r < R + 2) & (d < D))
        change = tl.dot(g, tl.trans(e), input_precision=PRECISION) * v * (beta * gate * (1.0 - gate))
        total = tl.dot(tl.trans(change), u, input_precision=PRECISION)
        tl.store(changes + ((block * q + feature) * R + r) * C + c, total, mask=(r < R) & (c < C))
        slope += tl.dot(change, w, input_precision=PRECISION)
    tl.store(slopes + (group * rows + row[:, None]) * C + c, slope, mask=valid[:, None] & (c < C))


@torch.library.custom_op("daes::gated", mutates_args=())
@on_its_device
def gated(
    values: Tensor,
    knots: Tensor,
    centre: Tensor,
    scale: Tensor,
    context: Tensor,
    projection: Tensor,
    table: Tensor,
    missing: Tensor,
    linear_weight: Tensor | None,
    bins: int,
    beta: float,
    linear: str,
    plain: str,
) -> tuple[Tensor, Tensor]:
    """Vectors and plain inputs of values, as `interpolate`.

    **Shape.** values (B, q) with NaN = missing, knots (q, K+1), centre and scale (q,), context (B, c), projection
    (q, R, c), table (q, R, d), missing and linear_weight (q, d) → (B, q, d) and (B, q · kinds in `plain`).

    Args:
        bins: M; the basis is the thermometer where R is M, and the hat where it is M + 1.
        beta: how far the context reaches.
        linear: the kind of input that `linear_weight` is multiplied with; empty for none.
        plain: kinds of plain inputs, separated by commas.
    """
    rows, q = values.shape
    kinds = kinds_of(plain)
    fields = torch.empty(rows, q, table.shape[2], dtype=table.dtype, device=table.device)
    inputs = torch.empty(rows, kinds["PLAIN"] * q, dtype=table.dtype, device=table.device)
    if rows:
        splits = max(1, min(triton.cdiv(rows, _BLOCK), _PROGRAMS // q))
        _forward[(q, splits)](
            values.contiguous(), knots.contiguous(), centre, scale, context.contiguous(), projection.contiguous(),
            table.contiguous(), missing.contiguous(),
            linear_weight.contiguous() if linear_weight is not None else missing, fields, inputs, rows, q, splits, beta,
            **sizes_of(knots, bins, table.shape[2]), **_shape(projection), **kinds, LINEAR=KINDS.get(linear, 0),
            BLOCK=_BLOCK, PRECISION=_PRECISION, num_warps=1, num_stages=1, maxnreg=_REGISTERS,
        )  # fmt: skip
    return fields, inputs


@torch.library.custom_op("daes::gated_backward", mutates_args=())
@on_its_device
def gated_backward(
    gradient: Tensor,
    values: Tensor,
    knots: Tensor,
    centre: Tensor,
    scale: Tensor,
    context: Tensor,
    projection: Tensor,
    table: Tensor,
    bins: int,
    beta: float,
    linear: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients: of table, missing vector and linear weight (q, R+2, d), of projection (q, R, c), of context (B, c)."""
    rows, q, dim = gradient.shape
    _, table_rows, width = projection.shape
    if gradient.stride()[1:] != (dim, 1):
        gradient = gradient.contiguous()
    blocks = triton.cdiv(rows, _BLOCK)
    groups = max(1, min(q, triton.cdiv(_PROGRAMS, max(blocks, 1))))
    sums = gradient.new_empty(blocks, q, table_rows + 2, dim)
    changes = gradient.new_empty(blocks, q, table_rows, width)
    slopes = gradient.new_empty(groups, rows, width)
    if rows:
        _backward[(blocks, groups)](
            gradient, gradient.stride(0), values.contiguous(), knots.contiguous(), centre, scale, context.contiguous(),
            projection.contiguous(), table.contiguous(), sums, changes, slopes, rows, q, groups, beta,
            **sizes_of(knots, bins, dim), **_shape(projection), LINEAR=KINDS.get(linear, 0),
            BLOCK=_BLOCK, PRECISION=_PRECISION, num_warps=1, num_stages=1, maxnreg=_REGISTERS,
        )  # fmt: skip
    return sums.sum(0), changes.sum(0), slopes.sum(0)


@gated.register_fake
def _(values, knots, centre, scale, context, projection, table, *rest):
    (rows, q), plain = values.shape, rest[-1]
    return table.new_empty(rows, q, table.shape[2]), table.new_empty(rows, kinds_of(plain)["PLAIN"] * q)


@gated_backward.register_fake
def _(gradient, values, knots, centre, scale, context, projection, table, *rest):
    q, table_rows, dim = table.shape
    return (
        gradient.new_empty(q, table_rows + 2, dim),
        gradient.new_empty(projection.shape),
        gradient.new_empty(context.shape),
    )


def _keep(ctx, inputs, output):
    values, knots, centre, scale, context, projection, table, _, linear_weight, *ctx.settings, linear, _ = inputs
    ctx.save_for_backward(values, knots, centre, scale, context, projection, table)
    ctx.linear = linear if linear_weight is not None else ""
    ctx.set_materialize_grads(False)  # plain inputs pass no gradient on: none is to be made of zeros


def _differentiate(ctx, gradient, _):
    if gradient is None:
        return (None,) * len(ctx.needs_input_grad)
    sums, projection, context = gated_backward(gradient, *ctx.saved_tensors, *ctx.settings, ctx.linear)
    table, missing, linear = sums[:, :-2], sums[:, -2], sums[:, -1] if ctx.linear else None
    return None, None, None, None, context, projection, table, missing, linear, None, None, None, None


gated.register_autograd(_differentiate, setup_context=_keep)


def _shape(projection: Tensor) -> dict[str, int]:
    _, table_rows, width = projection.shape
    return {
        "R": table_rows,
        "RP": max(16, triton.next_power_of_2(table_rows + 2)),
        "C": width,
        "CP": max(16, triton.next_power_of_2(width)),
    }
