"""Numbers → vectors in one kernel: search among the knots, blend of two rows, linear path, missing values, inputs.

Both bases of `daes.embedding.interpolation` are a blend of two neighbouring rows of a table: of the meta-embeddings
themselves (hat), or of their prefix sums (thermometer). A gate multiplies meta-embeddings by factors that depend on the
context alone, so that with few distinct contexts it is a look-up in one table per context.

Backward is a matrix product: the R rows of a table get V⊤G, where G (B, d) are a feature's gradients and V (B, R + 2)
are the weights on the basis, those of the missing vector and of the linear path included. A program sums over a share
of the rows of one feature and one context; nothing is added atomically, so that two runs give the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.interpolation import blend_rows
from daes.embedding.kernels.launching import on_its_device
from daes.embedding.kernels.places import (
    KINDS,
    basis_weights,
    kinds_of,
    locate,
    part,
    row_of,
    sizes_of,
    store_inputs,
    unit_input,
)

_PROGRAMS = 4224
"""Programs, of one warp each, that a backward aims at: 32 for each of an H200's multiprocessors."""

_BLOCK = 32
_WHOLE = torch.uint8, torch.int16, torch.int32


@triton.jit
def _forward(
    values, knots, centre, scale, table, missing, linear, index, fields, plain, total, q,
    K: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, HALF: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    LINEAR: tl.constexpr, CONTEXT: tl.constexpr, PLAIN: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = at < total
    row = at // q
    feature = at - row * q
    x, absent = part(tl.load(values + at, mask=valid, other=0.0))
    cell, inside, known = locate(x, knots + feature * (K + 1), K, STEPS)
    rank = (cell.to(tl.float32) + inside) / K
    middle = tl.load(centre + feature)
    spread = tl.load(scale + feature)

    first, share = row_of(cell, inside, K, M)
    start = feature.to(tl.int64)
    if CONTEXT:
        start += tl.load(index + row, mask=valid, other=0) * q
    start = (start * (M + 1) + first) * D
    d = tl.arange(0, DP)[None, :]
    wanted = valid[:, None] & (d < D)
    low = tl.load(table + start[:, None] + d, mask=wanted, other=0.0)
    high = tl.load(table + start[:, None] + D + d, mask=wanted, other=0.0)
    left = tl.where(known, 1.0 - share, 0.0)
    right = tl.where(known, share, 0.0)
    vector = low * left[:, None] + high * right[:, None]
    if LINEAR:
        z = unit_input(LINEAR, x, rank, known, middle, spread, HALF)
        vector += z[:, None] * tl.load(linear + feature[:, None] * D + d, mask=wanted, other=0.0)
    instead = tl.load(missing + feature[:, None] * D + d, mask=wanted & absent[:, None], other=0.0)
    vector = tl.where(absent[:, None], instead, vector)
    tl.store(fields + at.to(tl.int64)[:, None] * D + d, vector, mask=wanted)

    place = plain + row.to(tl.int64) * (PLAIN * q) + feature
    store_inputs(place, q, x, rank, known, absent, valid, middle, spread, HALF, FIRST, SECOND, THIRD)


@triton.jit
def _backward(
    gradient, stride, values, knots, centre, scale, order, offsets, sums, rows, q, contexts, splits,
    K: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, HALF: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    R: tl.constexpr, RP: tl.constexpr, LINEAR: tl.constexpr, CONTEXT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(0)
    split = tl.program_id(1)
    context = tl.program_id(2)
    begin = 0
    end = rows
    if CONTEXT:
        begin = tl.load(offsets + context).to(tl.int32)
        end = tl.load(offsets + context + 1).to(tl.int32)
    middle = tl.load(centre + feature)
    spread = tl.load(scale + feature)
    d = tl.arange(0, DP)[None, :]
    column = tl.arange(0, RP)[None, :]
    total = tl.zeros([RP, DP], tl.float32)
    for start in range(begin + split * BLOCK, end, splits * BLOCK):
        at = start + tl.arange(0, BLOCK)
        valid = at < end
        row = at.to(tl.int64)
        if CONTEXT:
            row = tl.load(order + at, mask=valid, other=0)
        g = tl.load(gradient + row[:, None] * stride + feature * D + d, mask=valid[:, None] & (d < D), other=0.0)
        x, absent = part(tl.load(values + row * q + feature, mask=valid, other=0.0))
        cell, inside, known = locate(x, knots + feature * (K + 1), K, STEPS)
        weights = tl.where((known & valid & ~absent)[:, None], basis_weights(cell, inside, column, K, M, R), 0.0)
        weights += tl.where((column == R) & (absent & valid)[:, None], 1.0, 0.0)
        if LINEAR:
            z = unit_input(LINEAR, x, (cell.to(tl.float32) + inside) / K, known, middle, spread, HALF)
            weights += tl.where((column == R + 1) & (valid & ~absent)[:, None], z[:, None], 0.0)
        total += tl.dot(tl.trans(weights), g, input_precision="ieee")
    place = ((split * contexts + context) * q + feature).to(tl.int64) * (R + 2) * D
    r = tl.arange(0, RP)[:, None]
    tl.store(sums + place + r * D + d, total, mask=(r < R + 2) & (d < D))


@torch.library.custom_op("daes::interpolate", mutates_args=())
@on_its_device
def interpolate(
    values: Tensor,
    knots: Tensor,
    centre: Tensor,
    scale: Tensor,
    table: Tensor,
    missing: Tensor,
    linear_weight: Tensor | None,
    index: Tensor | None,
    bins: int,
    linear: str,
    plain: str,
) -> tuple[Tensor, Tensor]:
    """Vectors and plain inputs of values.

    **Shape.** values (B, q) with NaN = missing, knots (q, K+1), centre and scale (q,), table (U, q, R, d), missing
    and linear_weight (q, d), index (B,) from 0 to U − 1 or None for 0 → (B, q, d) and (B, q · kinds in `plain`).

    Args:
        bins: M; the basis is the thermometer where R is M, and the hat where it is M + 1.
        linear: the kind of input that `linear_weight` is multiplied with; empty for none.
        plain: kinds of plain inputs, separated by commas.
    """
    rows, q = values.shape
    dim = table.shape[3]
    table = blend_rows(table, "hat" if table.shape[2] > bins else "thermometer").contiguous()
    kinds = kinds_of(plain)
    fields = torch.empty(rows, q, dim, dtype=table.dtype, device=table.device)
    inputs = torch.empty(rows, kinds["PLAIN"] * q, dtype=table.dtype, device=table.device)
    if rows:
        block = max(16, 1024 // triton.next_power_of_2(dim))
        _forward[(triton.cdiv(rows * q, block),)](
            values.contiguous(), knots.contiguous(), centre, scale, table, missing.contiguous(),
            linear_weight.contiguous() if linear_weight is not None else missing,
            index.contiguous() if index is not None else values, fields, inputs, rows * q, q,
            **sizes_of(knots, bins, dim), **kinds, LINEAR=KINDS.get(linear, 0), CONTEXT=index is not None,
            BLOCK=block, num_warps=2,
        )  # fmt: skip
    return fields, inputs


@torch.library.custom_op("daes::interpolate_backward", mutates_args=())
@on_its_device
def interpolate_backward(
    gradient: Tensor,
    values: Tensor,
    knots: Tensor,
    centre: Tensor,
    scale: Tensor,
    index: Tensor | None,
    contexts: int,
    table_rows: int,
    bins: int,
    linear: str,
) -> Tensor:
    """Gradients of the table, of the missing vector and of the linear weight, in this order: (U, q, R+2, d)."""
    rows, q, dim = gradient.shape
    if gradient.stride()[1:] != (dim, 1):
        gradient = gradient.contiguous()
    if not rows:
        return gradient.new_zeros(contexts, q, table_rows + 2, dim)
    order = offsets = values
    if index is not None:
        # The fewer bytes are sorted, the fewer passes are made over them.
        narrow = index.to(next(kind for kind in _WHOLE if contexts <= torch.iinfo(kind).max))
        ordered, order = torch.sort(narrow, stable=True)
        offsets = torch.searchsorted(ordered, torch.arange(contexts + 1, dtype=ordered.dtype, device=index.device))
    splits = max(1, min(triton.cdiv(rows, _BLOCK * contexts), _PROGRAMS // (q * contexts)))
    if index is not None:
        splits = max(splits, min(4, triton.cdiv(rows, 16 * _BLOCK)))  # contexts are not equally frequent
    sums = torch.empty(splits, contexts, q, table_rows + 2, dim, dtype=gradient.dtype, device=gradient.device)
    _backward[(q, splits, contexts)](
        gradient, gradient.stride(0), values.contiguous(), knots.contiguous(), centre, scale, order, offsets, sums,
        rows, q, contexts, splits, **sizes_of(knots, bins, dim), R=table_rows,
        RP=max(16, triton.next_power_of_2(table_rows + 2)), LINEAR=KINDS.get(linear, 0), CONTEXT=index is not None,
        BLOCK=_BLOCK, num_warps=1, num_stages=1,
    )  # fmt: skip
    return sums.sum(0)


@interpolate.register_fake
def _(values, knots, centre, scale, table, *rest):
    (rows, q), plain = values.shape, rest[-1]
    return table.new_empty(rows, q, table.shape[3]), table.new_empty(rows, kinds_of(plain)["PLAIN"] * q)


@interpolate_backward.register_fake
def _(gradient, values, knots, centre, scale, index, contexts, table_rows, *rest):
    return gradient.new_empty(contexts, gradient.shape[1], table_rows + 2, gradient.shape[2])


def _keep(ctx, inputs, output):
    values, knots, centre, scale, table, _, linear_weight, index, bins, linear, _ = inputs
    ctx.save_for_backward(values, knots, centre, scale, index)
    ctx.sizes = table.shape[0], table.shape[2], bins
    ctx.linear = linear if linear_weight is not None else ""
    ctx.set_materialize_grads(False)  # plain inputs pass no gradient on: none is to be made of zeros


def _differentiate(ctx, gradient, _):
    if gradient is None:
        return (None,) * len(ctx.needs_input_grad)
    values, knots, centre, scale, index = ctx.saved_tensors
    found = interpolate_backward(gradient, values, knots, centre, scale, index, *ctx.sizes, ctx.linear)
    missing = linear = None
    if any(ctx.needs_input_grad[5:7]):
        # What does not depend on the context: one sum for both, none where there is one context.
        both = found[0, :, -2:] if len(found) == 1 else found[:, :, -2:].sum(0)
        missing, linear = both[:, 0], both[:, 1] if ctx.linear else None
    return None, None, None, None, found[:, :, :-2], missing, linear, None, None, None, None


interpolate.register_autograd(_differentiate, setup_context=_keep)
