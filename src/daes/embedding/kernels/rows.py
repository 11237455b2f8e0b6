"""Rows of a table, and the evidence of a batch: narrow rows looked up and counted, several to a program.

Torch gives every looked-up row a block of threads, of which a row of 16 numbers leaves most idle.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device
from daes.embedding.kernels.places import find_bins


@triton.jit
def _look_up(table, rows, out, total, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + at, mask=at < total, other=0)
    d = tl.arange(0, DP)[None, :]
    wanted = (at < total)[:, None] & (d < D)
    tl.store(out + at.to(tl.int64)[:, None] * D + d, tl.load(table + row[:, None] * D + d, mask=wanted), mask=wanted)


@torch.library.custom_op("daes::look_up", mutates_args=())
@on_its_device
def look_up(table: Tensor, rows: Tensor) -> Tensor:
    """`torch.nn.functional.embedding(rows, table)`: table (N, d), rows (…) → (…, d)."""
    dim = table.shape[1]
    out = torch.empty(*rows.shape, dim, dtype=table.dtype, device=table.device)
    if rows.numel():
        width = triton.next_power_of_2(dim)
        block = max(1, 1024 // width)
        _look_up[(triton.cdiv(rows.numel(), block),)](
            table.contiguous(), rows.contiguous(), out, rows.numel(), D=dim, DP=width, BLOCK=block, num_warps=2
        )
    return out


@look_up.register_fake
def _(table, rows):
    return table.new_empty(*rows.shape, table.shape[1])


def _keep(ctx, inputs, output):
    table, rows = inputs
    ctx.save_for_backward(rows)
    ctx.size = table.shape[0]


def _differentiate(ctx, gradient):
    (rows,) = ctx.saved_tensors
    if ctx.size < 2**31:
        rows = rows.to(torch.int32)  # they are sorted there, four bytes at half the price of eight
    return torch.ops.aten.embedding_dense_backward(gradient, rows, ctx.size, -1, False), None


look_up.register_autograd(_differentiate, setup_context=_keep)


@triton.jit
def _odds(views, clicks, prior, logit, strength):
    return tl.log((clicks + strength * prior) / (views - clicks + strength * (1.0 - prior))) - logit


@triton.jit
def _evidence(
    numbers, rows, total, edges, number_counts, row_counts, out, batch, q, p, strength, bins,
    QP: tl.constexpr, PP: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    prior = (tl.load(total + 1) + 2.0) / (tl.load(total) + 10.0)
    logit = tl.log(prior / (1.0 - prior))
    width = q + 2 * p
    if QP > 0:
        f = tl.arange(0, QP)[None, :]
        wanted = (at < batch) & (f < q)
        bin = find_bins(numbers, edges, at, f, wanted, q, bins, STEPS)
        cell = (f * (bins + 1) + bin) * 2
        views = tl.load(number_counts + cell, mask=wanted, other=0.0)
        clicks = tl.load(number_counts + cell + 1, mask=wanted, other=0.0)
        z = _odds(views, clicks, prior, logit, strength)
        tl.store(out + at.to(tl.int64) * width + f, z.to(tl.float32), mask=wanted)
    if PP > 0:
        c = tl.arange(0, PP)[None, :]
        wanted = (at < batch) & (c < p)
        row = tl.load(rows + at.to(tl.int64) * p + c, mask=wanted, other=0) * 2
        views = tl.load(row_counts + row, mask=wanted, other=0.0)
        clicks = tl.load(row_counts + row + 1, mask=wanted, other=0.0)
        z = _odds(views, clicks, prior, logit, strength)
        tl.store(out + at.to(tl.int64) * width + q + c, z.to(tl.float32), mask=wanted)
        tl.store(out + at.to(tl.int64) * width + q + p + c, (tl.log(1.0 + views) / 4 - 1).to(tl.float32), mask=wanted)


def _sizes(numbers: Tensor, rows: Tensor, edges: Tensor) -> tuple[tuple[int, ...], dict[str, int]]:
    """Programs for a batch, and what kernels are compiled for."""
    q, p = (triton.next_power_of_2(one.shape[1]) if one.shape[1] else 0 for one in (numbers, rows))
    block = max(1, 1024 // max(q, p, 1))
    sizes = {"QP": q, "PP": p, "STEPS": edges.shape[1].bit_length(), "BLOCK": block}
    return (triton.cdiv(len(numbers), block),), sizes


@torch.library.custom_op("daes::evidence", mutates_args=())
@on_its_device
def evidence(
    numbers: Tensor,
    rows: Tensor,
    total: Tensor,
    edges: Tensor,
    number_counts: Tensor,
    row_counts: Tensor,
    strength: float,
) -> Tensor:
    """`EvidenceInputs.forward`.

    **Shape.** numbers (B, q) with NaN = missing, rows (B, p), total (2,), edges (q, bins − 1), number_counts
    (q, bins + 1, 2), row_counts (N, 2) → (B, q + 2p).
    """
    batch, q, p = len(numbers), numbers.shape[1], rows.shape[1]
    out = torch.empty(batch, q + 2 * p, device=numbers.device)
    if batch and q + p:
        grid, sizes = _sizes(numbers, rows, edges)
        _evidence[grid](
            numbers.contiguous(), rows.contiguous(), total, edges, number_counts, row_counts, out, batch, q, p,
            strength, edges.shape[1] + 1, **sizes,
        )  # fmt: skip
    return out


@evidence.register_fake
def _(numbers, rows, *rest):
    return numbers.new_empty(numbers.shape[0], numbers.shape[1] + 2 * rows.shape[1], dtype=torch.float32)


@triton.jit
def _count(
    numbers, rows, labels, edges, total, number_counts, row_counts, batch, q, p, bins,
    QP: tl.constexpr, PP: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(labels + row, mask=row < batch, other=0.0).to(tl.float64)
    tl.atomic_add(total, tl.sum((row < batch).to(tl.float64), 0), sem="relaxed")
    tl.atomic_add(total + 1, tl.sum(label, 0), sem="relaxed")
    at = row[:, None]
    if QP > 0:
        f = tl.arange(0, QP)[None, :]
        wanted = (at < batch) & (f < q)
        bin = find_bins(numbers, edges, at, f, wanted, q, bins, STEPS)
        _add(number_counts + (f * (bins + 1) + bin) * 2, label[:, None], wanted)
    if PP > 0:
        c = tl.arange(0, PP)[None, :]
        wanted = (at < batch) & (c < p)
        _add(row_counts + tl.load(rows + at.to(tl.int64) * p + c, mask=wanted, other=0) * 2, label[:, None], wanted)


@triton.jit
def _add(place, label, wanted):
    """One view, and a click where there was one."""
    tl.atomic_add(place, 1.0 + 0.0 * label, mask=wanted, sem="relaxed")
    tl.atomic_add(place + 1, label, mask=wanted & (label != 0.0), sem="relaxed")


@on_its_device
def count(
    numbers: Tensor,
    rows: Tensor,
    labels: Tensor,
    edges: Tensor,
    total: Tensor,
    number_counts: Tensor,
    row_counts: Tensor,
) -> None:
    """Count labelled rows, in place. **Shape.** As in `evidence`; labels (B,)."""
    batch, q, p = len(labels), numbers.shape[1], rows.shape[1]
    if not batch:
        return
    grid, sizes = _sizes(numbers, rows, edges)
    _count[grid](
        numbers.contiguous(), rows.contiguous(), labels.contiguous(), edges, total, number_counts, row_counts, batch,
        q, p, edges.shape[1] + 1, **sizes,
    )  # fmt: skip
