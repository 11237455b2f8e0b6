"""Rows that a sample keeps, by their positions in the stream."""

import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device
from daes.embedding.kernels.observation import WIDTH, passed, passed_by_many, rounds
from daes.embedding.kernels.places import part


@triton.jit
def _keep(
    numbers, categories, labels, logits, seen, positions, targets, following,
    kept_numbers, kept_missing, kept_categories, kept_labels, kept_logits, rows, entries, q, p,
    QP: tl.constexpr, PP: tl.constexpr, ROUNDS: tl.constexpr, BLOCK_ROUNDS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK
    row = first + tl.arange(0, BLOCK)
    before = tl.load(seen)
    position = before + 1 + row
    # Two searches for the block, and a short one for each row among the few entries between.
    one = tl.zeros([1], tl.int32)
    first_entry = passed_by_many(positions, before + first + one, one, entries, ROUNDS, WIDTH)
    last_entry = passed_by_many(positions, before + first + BLOCK + one, first_entry, entries, BLOCK_ROUNDS, WIDTH)
    start = tl.sum(first_entry, 0)
    span = tl.sum(last_entry, 0) - start
    low = tl.zeros([BLOCK], tl.int32) + start
    entry = passed(positions, position, low, low + span, span) - 1
    there = (row < rows) & (entry >= start)
    there = there & (tl.load(positions + entry, mask=there, other=-1) == position)
    # Of two rows for one slot only the later one is written: programs run in any order.
    there = there & (tl.load(following + entry, mask=there, other=0) > before + rows)
    if tl.max(there.to(tl.int32), 0) > 0:
        slot = tl.load(targets + entry, mask=there, other=0)
        at = row.to(tl.int64)
        label = tl.load(labels + at, mask=there, other=0.0)
        tl.store(kept_labels + slot, (label > 0).to(tl.uint8), mask=there)
        tl.store(kept_logits + slot, tl.load(logits + at, mask=there, other=0.0), mask=there)
        if QP > 0:
            f = tl.arange(0, QP)[None, :]
            wanted = there[:, None] & (f < q)
            x, missing = part(tl.load(numbers + at[:, None] * q + f, mask=wanted, other=0.0))
            tl.store(kept_numbers + slot[:, None] * q + f, x, mask=wanted)
            tl.store(kept_missing + slot[:, None] * q + f, missing, mask=wanted)
        if PP > 0:
            c = tl.arange(0, PP)[None, :]
            wanted = there[:, None] & (c < p)
            value = tl.load(categories + at[:, None] * p + c, mask=wanted, other=0)
            tl.store(kept_categories + slot[:, None] * p + c, value, mask=wanted)


@on_its_device
def keep(
    numbers: Tensor,
    categories: Tensor,
    labels: Tensor,
    logits: Tensor,
    seen: Tensor,
    positions: Tensor,
    targets: Tensor,
    following: Tensor,
    kept_numbers: Tensor,
    kept_missing: Tensor,
    kept_categories: Tensor,
    kept_labels: Tensor,
    kept_logits: Tensor,
) -> None:
    """Write the rows that are accepted into a sample, in place.

    **Shape.** numbers (B, q), categories (B, p), labels and logits (B,); `seen`, the rows before these;
    `positions`, `targets` and `following` (E,) as of `AcceptanceTable.to_device`; the sample's
    (m, q), (m, q), (m, p), (m,), (m,).
    """
    rows, block = len(labels), 64
    q, p = kept_numbers.shape[1], kept_categories.shape[1]
    entries = positions.shape[0] - 1
    _keep[(triton.cdiv(rows, block),)](
        numbers.contiguous(), categories.contiguous(), labels.contiguous(), logits.contiguous(), seen, positions,
        targets, following, kept_numbers, kept_missing, kept_categories, kept_labels, kept_logits, rows, entries, q, p,
        QP=triton.next_power_of_2(q) if q else 0, PP=triton.next_power_of_2(p) if p else 0,
        ROUNDS=rounds(entries), BLOCK_ROUNDS=rounds(block), WIDTH=WIDTH, BLOCK=block,
    )  # fmt: skip
