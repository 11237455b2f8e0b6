"""Recent errors, as `daes.evidence.recent` has them: z of a batch in one launch, its own errors noted in two."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device
from daes.embedding.kernels.places import find_bins

_FASTER = tl.constexpr(10)  # as in daes/evidence/recent.py
_GRAINED = tl.constexpr(1.5 * 2.0**22)


@triton.jit
def _cells(numbers, rows, edges, at, column, batch, q, p, bins, STEPS: tl.constexpr):
    """As `EvidenceInputs.cells`: 0 in the first column, then those of bins, then those of ids."""
    f = column - 1
    c = f - q
    counted = (at < batch) & (f >= 0) & (f < q)
    known = (at < batch) & (c >= 0) & (c < p)
    bin = find_bins(numbers, edges, at, f, counted, q, bins, STEPS)
    row = tl.load(rows + at.to(tl.int64) * p + c, mask=known, other=0)
    return tl.where(counted, 1 + f * (bins + 1) + bin, tl.where(known, 1 + q * (bins + 1) + row, 0)).to(tl.int64)


@triton.jit
def _fading(age, FAST: tl.constexpr, HALF_LIFE: tl.constexpr):
    """What is left of errors. The half-life is compiled in: as an argument it would be rounded to float32."""
    if FAST:
        age = age * _FASTER
    return tl.exp2(age / -HALF_LIFE)


@triton.jit
def round_error(errors):
    """The nearest multiple of 2^-30, the even one of two: float64 has no finer digits there."""
    return (errors + _GRAINED) - _GRAINED


@triton.jit
def errors_of(labels, logits, row, batch):
    """y − p and p·(1 − p) of rows; 0 after the last one."""
    label = tl.load(labels + row, mask=row < batch, other=0.0).to(tl.float64)
    score = 1.0 / (1.0 + tl.exp(-tl.load(logits + row, mask=row < batch, other=0.0).to(tl.float64)))
    return tl.where(row < batch, label - score, 0.0), tl.where(row < batch, score * (1.0 - score), 0.0)


@triton.jit(do_not_specialize=["waiting"])
def _recall(
    numbers, rows, total, edges, errors, clock, out, batch, q, p, bins, waiting, strength,
    HALF_LIFE: tl.constexpr, NP: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, NP)[None, :]
    n = 1 + q + p
    wanted = (at < batch) & (column < n)
    place = errors + _cells(numbers, rows, edges, at, column, batch, q, p, bins, STEPS) * 5
    age = (tl.load(clock) + waiting).to(tl.float64) - tl.load(place + 4, mask=wanted, other=0.0)
    prior = (tl.load(total + 1) + 2.0) / (tl.load(total) + 10.0)
    shrinking = strength * (prior * (1.0 - prior))
    for fast in tl.static_range(2):
        fading = _fading(age, fast, HALF_LIFE)
        error = tl.load(place + 2 * fast, mask=wanted, other=0.0) * fading
        variance = tl.load(place + 2 * fast + 1, mask=wanted, other=0.0) * fading
        z = error / (variance + shrinking)
        tl.store(out + at.to(tl.int64) * (2 * n) + fast * n + column, z.to(tl.float32), mask=wanted)


@triton.jit
def _fade(
    numbers, rows, edges, errors, clock, batch, q, p, bins,
    HALF_LIFE: tl.constexpr, NP: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Let the errors of all cells of a batch fade, until its last row."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, NP)[None, :]
    # One row will do for the cell of all rows.
    wanted = (at < batch) & (column < 1 + q + p) & ((column > 0) | (at == 0))
    place = errors + _cells(numbers, rows, edges, at, column, batch, q, p, bins, STEPS) * 5
    now = (tl.load(clock) + batch).to(tl.float64)
    # Of several rows with the same cell the first to come is told when it changed before, and writes alone.
    # Triton's interpreter exchanges whole numbers only, hence the casts.
    changed = (place + 4).to(tl.pointer_type(tl.int64), bitcast=True)
    before = tl.atomic_xchg(changed, now.to(tl.int64, bitcast=True), mask=wanted, sem="relaxed")
    age = tl.where(wanted, now - before.to(tl.float64, bitcast=True), 0.0)
    first = age != 0.0
    for fast in tl.static_range(2):
        fading = _fading(age, fast, HALF_LIFE)
        for which in tl.static_range(2):
            one = place + 2 * fast + which
            tl.store(one, round_error(tl.load(one, mask=first, other=0.0) * fading), mask=first)


@triton.jit
def _add(
    numbers, rows, edges, errors, clock, labels, logits, batch, q, p, bins,
    HALF_LIFE: tl.constexpr, NP: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the errors of a batch to its cells, and its rows to the clock, which `_fade` has read before."""
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)
    error, variance = errors_of(labels, logits, row, batch)
    age = tl.maximum(batch - 1 - row, 0).to(tl.float64)
    at = row[:, None]
    column = tl.arange(0, NP)[None, :]
    wanted = (at < batch) & (column > 0) & (column < 1 + q + p)
    place = errors + _cells(numbers, rows, edges, at, column, batch, q, p, bins, STEPS) * 5
    for fast in tl.static_range(2):
        fading = _fading(age, fast, HALF_LIFE)
        _add_to(errors + 2 * fast, place + 2 * fast, round_error(error * fading), wanted)
        _add_to(errors + 2 * fast + 1, place + 2 * fast + 1, round_error(variance * fading), wanted)
    if block == 0:
        tl.store(clock, tl.load(clock) + batch)


@triton.jit
def _add_to(all_rows, place, each, wanted):
    """Add what each row has to the cell of all rows and to its others; multiples of 2^-30 add up in any order."""
    tl.atomic_add(all_rows, tl.sum(each, 0), sem="relaxed")
    # Of most rows of a large batch nothing is left at the faster speed.
    tl.atomic_add(place, each[:, None], mask=wanted & (each != 0.0)[:, None], sem="relaxed")


def _sizes(numbers: Tensor, rows: Tensor, edges: Tensor, half_life: float) -> tuple[tuple[int, ...], dict[str, float]]:
    """Programs for a batch, and what kernels are compiled for."""
    width = triton.next_power_of_2(1 + numbers.shape[1] + rows.shape[1])
    block = max(1, 1024 // width)
    sizes = {"HALF_LIFE": half_life, "NP": width, "STEPS": edges.shape[1].bit_length(), "BLOCK": block}
    return (triton.cdiv(len(numbers), block),), sizes


@torch.library.custom_op("daes::recall", mutates_args=())
@on_its_device
def recall(
    numbers: Tensor,
    rows: Tensor,
    total: Tensor,
    edges: Tensor,
    errors: Tensor,
    clock: Tensor,
    waiting: int,
    half_life: float,
    strength: float,
) -> Tensor:
    """`EvidenceInputs.recent_errors`.

    **Shape.** numbers (B, q) with NaN = missing, rows (B, p), total (2,), edges (q, bins − 1), errors (cells, 5),
    clock () → (B, 2·(1 + q + p)).
    """
    batch, q, p = len(numbers), numbers.shape[1], rows.shape[1]
    out = torch.empty(batch, 2 * (1 + q + p), device=numbers.device)
    if batch:
        grid, sizes = _sizes(numbers, rows, edges, half_life)
        _recall[grid](
            numbers.contiguous(), rows.contiguous(), total, edges, errors, clock, out, batch, q, p, edges.shape[1] + 1,
            waiting, strength, **sizes,
        )  # fmt: skip
    return out


@recall.register_fake
def _(numbers, rows, *rest):
    return numbers.new_empty(numbers.shape[0], 2 * (1 + numbers.shape[1] + rows.shape[1]), dtype=torch.float32)


@on_its_device
def note(
    numbers: Tensor,
    rows: Tensor,
    edges: Tensor,
    errors: Tensor,
    clock: Tensor,
    labels: Tensor,
    logits: Tensor,
    half_life: float,
) -> None:
    """`RecentErrors.update` with the cells of numbers and rows, in place.

    **Shape.** numbers (B, q) with NaN = missing, rows (B, p), edges (q, bins − 1), errors (cells, 5), clock (), labels
    and logits (B,).
    """
    if not len(labels):
        return
    grid, sizes = _sizes(numbers, rows, edges, half_life)
    batch, bins = (numbers.contiguous(), rows.contiguous(), edges, errors, clock), edges.shape[1] + 1
    shape = len(labels), numbers.shape[1], rows.shape[1], bins
    # A product that is not rounded before it is added to another number would not have the plain version's bits.
    _fade[grid](*batch, *shape, **sizes, enable_fp_fusion=False)
    _add[grid](*batch, labels.contiguous(), logits.contiguous(), *shape, **sizes, enable_fp_fusion=False)
