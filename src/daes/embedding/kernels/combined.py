"""Combinations, as `daes.evidence.combinations` has them: what they add to logits, and noting their errors."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device
from daes.embedding.kernels.places import find_bins
from daes.embedding.kernels.recent import errors_of, round_error

_PRIME = tl.constexpr(1_000_003)  # as in daes/evidence/combinations.py


@triton.jit
def _find_values(
    numbers, rows, edges, out, batch, q, p, bins, each, NP: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr
):
    """What each field is in a combination: one of coarse bins, `each` of fine ones together, or the row of a table."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, NP)[None, :]
    counted = (at < batch) & (column < q)
    known = (at < batch) & (column >= q) & (column < q + p)
    bin = find_bins(numbers, edges, at, column, counted, q, bins, STEPS) // each
    row = tl.load(rows + at.to(tl.int64) * p + (column - q), mask=known, other=0).to(tl.int32)
    tl.store(out + at.to(tl.int64) * (q + p) + column, tl.where(counted, bin, row), mask=counted | known)


@triton.jit
def _find_places(values, fields, at, k, batch, n, count, CELLS: tl.constexpr):
    """The cells of combinations, counted through all of them, as `Combinations.places`; whether there is one."""
    first = tl.load(fields + k * 3, mask=k < count, other=-1)
    second = tl.load(fields + k * 3 + 1, mask=k < count, other=-1)
    third = tl.load(fields + k * 3 + 2, mask=k < count, other=-1)
    cell = (_value(values, first, at, batch, n) * _PRIME + _value(values, second, at, batch, n)) % CELLS
    cell = (cell * _PRIME + _value(values, third, at, batch, n)) % CELLS
    return k * CELLS + cell, (at < batch) & (first >= 0)


@triton.jit
def _value(values, field, at, batch, n):
    return tl.load(values + at.to(tl.int64) * n + field, mask=(at < batch) & (field >= 0), other=0).to(tl.int64)


@triton.jit
def _combine(
    values, fields, errors, total, weight, out, odds, batch, n, count, strength,
    FROZEN: tl.constexpr, CELLS: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = row[:, None]
    k = tl.arange(0, KP)[None, :]
    place, chosen = _find_places(values, fields, at, k, batch, n, count, CELLS)
    if FROZEN:
        z = tl.load(errors + place, mask=chosen, other=0.0)
    else:
        prior = (tl.load(total + 1) + 2.0) / (tl.load(total) + 10.0)
        error = tl.load(errors + 2 * place, mask=chosen, other=0.0)
        variance = tl.load(errors + 2 * place + 1, mask=chosen, other=0.0)
        z = (error / (variance + strength * (prior * (1.0 - prior)))).to(tl.float32)
    tl.store(odds + at.to(tl.int64) * count + k, z, mask=(at < batch) & (k < count))
    tl.store(out + row, tl.sum(z * tl.load(weight + k, mask=k < count, other=0.0), 1), mask=row < batch)


@triton.jit
def _note(
    values, fields, errors, labels, logits, batch, n, count, CELLS: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    error, variance = errors_of(labels, logits, row, batch)
    k = tl.arange(0, KP)[None, :]
    place, chosen = _find_places(values, fields, row[:, None], k, batch, n, count, CELLS)
    # Multiples of 2^-30 add up in any order.
    tl.atomic_add(errors + 2 * place, round_error(error)[:, None], mask=chosen, sem="relaxed")
    tl.atomic_add(errors + 2 * place + 1, round_error(variance)[:, None], mask=chosen, sem="relaxed")


def _values(numbers: Tensor, rows: Tensor, edges: Tensor, each: int) -> Tensor:
    """`EvidenceInputs._values`, as int32."""
    batch, q, p = len(numbers), numbers.shape[1], rows.shape[1]
    out = torch.empty(batch, q + p, dtype=torch.int32, device=numbers.device)
    width = triton.next_power_of_2(q + p)
    block = max(1, 1024 // width)
    bins = edges.shape[1] + 1
    _find_values[(triton.cdiv(batch, block),)](
        numbers.contiguous(), rows.contiguous(), edges, out, batch, q, p, bins, each,
        NP=width, STEPS=edges.shape[1].bit_length(), BLOCK=block,
    )  # fmt: skip
    return out


def _sizes(batch: int, errors: Tensor) -> tuple[tuple[int, ...], dict[str, int]]:
    """Programs for a batch, and what kernels are compiled for."""
    width = triton.next_power_of_2(errors.shape[0])
    block = max(1, 1024 // width)
    return (triton.cdiv(batch, block),), {"CELLS": errors.shape[1], "KP": width, "BLOCK": block}


@torch.library.custom_op("daes::combine", mutates_args=())
@on_its_device
def combine(
    numbers: Tensor,
    rows: Tensor,
    edges: Tensor,
    total: Tensor,
    fields: Tensor,
    errors: Tensor,
    weight: Tensor,
    each: int,
    strength: float,
) -> tuple[Tensor, Tensor]:
    """`EvidenceInputs.combined`: Σ w·z of each row, and z.

    **Shape.** numbers (B, q) with NaN = missing, rows (B, p), edges (q, bins − 1), total (2,), fields (K, 3), errors
    (K, cells, 2), or (K, cells, 1) where they are z, weight (K,) → (B,) and (B, K).
    """
    batch, count = len(numbers), len(fields)
    out, odds = (torch.empty(*shape, device=numbers.device) for shape in ((batch,), (batch, count)))
    if batch:
        grid, sizes = _sizes(batch, errors)
        _combine[grid](
            _values(numbers, rows, edges, each), fields, errors, total, weight.contiguous(), out, odds, batch,
            numbers.shape[1] + rows.shape[1], count, strength, FROZEN=errors.shape[2] == 1, **sizes,
        )  # fmt: skip
    return out, odds


@combine.register_fake
def _(numbers, rows, edges, total, fields, errors, weight, *rest):
    batch = numbers.shape[0]
    return weight.new_empty(batch), weight.new_empty(batch, fields.shape[0])


def _keep(ctx, inputs, output):
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx, gradient, _):
    (odds,) = ctx.saved_tensors
    return (*[None] * 6, None if gradient is None else odds.t() @ gradient, None, None)


combine.register_autograd(_differentiate, setup_context=_keep)


@on_its_device
def note_combined(
    numbers: Tensor,
    rows: Tensor,
    edges: Tensor,
    fields: Tensor,
    errors: Tensor,
    labels: Tensor,
    logits: Tensor,
    each: int,
) -> None:
    """`Combinations.update` with the values of numbers and rows, in place.

    **Shape.** As in `combine`; labels and logits (B,).
    """
    if not len(labels):
        return
    grid, sizes = _sizes(len(labels), errors)
    _note[grid](
        _values(numbers, rows, edges, each), fields, errors, labels.contiguous(), logits.contiguous(), len(labels),
        numbers.shape[1] + rows.shape[1], len(fields), **sizes, enable_fp_fusion=False,
    )  # fmt: skip
