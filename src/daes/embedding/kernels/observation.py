"""Observing a batch: which of its values a reservoir accepts, and the quantiles of the reservoirs.

Positions in the stream decide what is accepted, and the host has drawn the accepted ones ahead (`AcceptanceTable`). A
device finds the position of each value, since missing ones have none, and looks it up.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device

WIDTH = 32
"""Positions that a search among acceptances looks at together."""

TILE = 1024
"""Slots that are sorted together, by one warp, before quantiles are looked for in all sorted tiles."""

_RANKS = 2
"""Quantiles that a program looks for, of one warp: it needs no barrier to agree on when to stop."""


@triton.jit
def _summarise(values, count, counts, lows, highs, before, rows, q, QP: tl.constexpr, BLOCK: tl.constexpr):
    """Finite values of each feature in a block of rows: how many, the smallest, the largest."""
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)[:, None]
    feature = tl.arange(0, QP)[None, :]
    x = tl.load(values + row.to(tl.int64) * q + feature, mask=(row < rows) & (feature < q), other=float("nan"))
    finite = tl.abs(x) < float("inf")
    f = tl.arange(0, QP)
    tl.store(counts + block * QP + f, tl.sum(finite.to(tl.int32), 0))
    tl.store(lows + block * QP + f, tl.min(tl.where(finite, x, float("inf")), 0))
    tl.store(highs + block * QP + f, tl.max(tl.where(finite, x, -float("inf")), 0))
    if block == 0:
        tl.store(before + f, tl.load(count + f, mask=f < q, other=0), mask=f < q)


@triton.jit
def passed(positions, wanted, low, high, span):
    """How many of the ascending positions are at most `wanted`, known to be from low to high, at most `span` apart."""
    while span > 0:
        middle = (low + high) // 2
        open = low < high
        less = open & (tl.load(positions + middle, mask=open, other=0) <= wanted)
        low = tl.where(less, middle + 1, low)
        high = tl.where(open & (~less), middle, high)
        span = span >> 1
    return low


@triton.jit
def passed_by_many(positions, wanted, low, entries, ROUNDS: tl.constexpr, WIDTH: tl.constexpr):
    """How many of the ascending positions are at most `wanted` (n,), known to be fewer than WIDTH^ROUNDS after `low`.

    WIDTH positions are looked at in each round: a search by halves waits for memory five times as often.
    """
    probe = tl.arange(0, WIDTH)[None, :]
    for turn in tl.static_range(ROUNDS):
        step = WIDTH ** (ROUNDS - 1 - turn)
        at = low[:, None] + (probe + 1) * step - 1
        less = (tl.load(positions + at, mask=at < entries, other=0) <= wanted[:, None]) & (at < entries)
        low += tl.sum(less.to(tl.int32), 1) * step
    return low


@triton.jit
def _accept(
    values, counts, lows, highs, before, member, positions, targets, following, slots, count, skipped, minimum, maximum,
    knots, rows, q, blocks, entries, width, K,
    QP: tl.constexpr, BLOCK: tl.constexpr, ROUNDS: tl.constexpr, BLOCK_ROUNDS: tl.constexpr, WIDTH: tl.constexpr,
    CHUNK: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    f = tl.arange(0, QP)
    mine = (f < q) & (tl.load(member + f, mask=f < q, other=0) != 0)
    start = tl.load(before + f, mask=mine, other=0)
    earlier = tl.zeros([QP], tl.int64)
    total = tl.zeros([QP], tl.int64)
    for first in range(0, blocks, CHUNK):
        b = first + tl.arange(0, CHUNK)[:, None]
        found = tl.load(counts + b * QP + f[None, :], mask=b < blocks, other=0)
        earlier += tl.sum(tl.where(b < block, found, 0), 0)
        total += tl.sum(found, 0)
    if block == blocks:
        _update(
            lows, highs, count, skipped, minimum, maximum, knots, mine, f, start, total, rows, q, blocks, K,
            QP, CHUNK, ENDS,
        )  # fmt: skip
    else:
        own = tl.load(counts + block * QP + f)
        none = tl.zeros([QP], tl.int32)
        first_entry = passed_by_many(positions, start + earlier, none, entries, ROUNDS, WIDTH)
        last_entry = passed_by_many(positions, start + earlier + own, first_entry, entries, BLOCK_ROUNDS, WIDTH)
        last_entry = tl.where(mine, last_entry, first_entry)
        most = tl.max(last_entry - first_entry, 0)
        if most > 0:
            row = block * BLOCK + tl.arange(0, BLOCK)[:, None]
            feature = f[None, :]
            x = tl.load(values + row.to(tl.int64) * q + feature, mask=(row < rows) & (feature < q), other=float("nan"))
            finite = tl.abs(x) < float("inf")
            position = (start + earlier)[None, :] + tl.cumsum(finite.to(tl.int32), 0)
            low = tl.zeros([BLOCK, QP], tl.int32) + first_entry[None, :]
            high = tl.zeros([BLOCK, QP], tl.int32) + last_entry[None, :]
            # Entries up to this position, less one: the entry of the position itself, if there is one.
            entry = passed(positions, position, low, high, most) - 1
            there = finite & mine[None, :] & (entry >= first_entry[None, :])
            there = there & (tl.load(positions + entry, mask=there, other=-1) == position)
            # Of two values for one slot only the later one is written: programs run in any order.
            there = there & (tl.load(following + entry, mask=there, other=0) > (start + total)[None, :])
            slot = tl.load(targets + entry, mask=there, other=0)
            tl.store(slots + feature.to(tl.int64) * width + slot, x, mask=there)


@triton.jit
def _update(
    lows, highs, count, skipped, minimum, maximum, knots, mine, f, start, total, rows, q, blocks, K,
    QP: tl.constexpr, CHUNK: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    low = tl.zeros([QP], tl.float32) + float("inf")
    high = tl.zeros([QP], tl.float32) - float("inf")
    for first in range(0, blocks, CHUNK):
        b = first + tl.arange(0, CHUNK)[:, None]
        low = tl.minimum(low, tl.min(tl.load(lows + b * QP + f[None, :], mask=b < blocks, other=float("inf")), 0))
        high = tl.maximum(high, tl.max(tl.load(highs + b * QP + f[None, :], mask=b < blocks, other=-float("inf")), 0))
    tl.store(count + f, start + total, mask=mine)
    tl.store(skipped + f, tl.load(skipped + f, mask=mine, other=0) + (rows - total), mask=mine)
    # The smallest and largest value are NaN before the first one.
    old = tl.load(minimum + f, mask=mine, other=0.0)
    low = tl.where(low < float("inf"), tl.where(old <= low, old, low), old)
    tl.store(minimum + f, low, mask=mine)
    old = tl.load(maximum + f, mask=mine, other=0.0)
    high = tl.where(high > -float("inf"), tl.where(old >= high, old, high), old)
    tl.store(maximum + f, high, mask=mine)
    if ENDS:
        tl.store(knots + f * (K + 1), low, mask=mine)
        tl.store(knots + f * (K + 1) + K, high, mask=mine)


@triton.jit
def _sort(slots, count, tiles, stride, size, width, TILE: tl.constexpr):
    """Slots as sorted tiles; those that are not filled come last."""
    feature = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    filled = tl.minimum(tl.load(count + feature), size)
    x = tl.load(slots + feature * stride + at, mask=at < filled, other=float("inf"))
    tl.store(tiles + feature * width + at, tl.sort(x))


@triton.jit
def _key(x):
    """Whole numbers in the order of floats."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)  # one zero, as a sort has it
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _value(key):
    """The float of a key."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _below(base, key, left, right, bottom, top):
    """How many elements of sorted tiles have at most that key, known to be from left to right.

    Also the largest key up to it and the smallest one after it, in all tiles together, if from bottom to top.
    """
    before = tl.zeros_like(left) + bottom[:, None]
    after = tl.zeros_like(left) + top[:, None]
    span = tl.max(tl.max(right - left, 1), 0)
    while span > 0:
        probe = (left + right) // 2
        open = left < right
        found = _key(tl.load(base + probe, mask=open, other=0.0))
        less = open & (found <= key[:, None])
        more = open & (found > key[:, None])
        left = tl.where(less, probe + 1, left)
        right = tl.where(more, probe, right)
        before = tl.where(less, tl.maximum(before, found), before)
        after = tl.where(more, tl.minimum(after, found), after)
        span = span >> 1
    return left, tl.max(before, 1), tl.min(after, 1)


@triton.jit
def _select(
    tiles, levels, count, picked, size, width, ranks,
    TP: tl.constexpr, TILE: tl.constexpr, RANKS: tl.constexpr,
):  # fmt: skip
    """Quantiles of a feature. Every look into a tile costs, so that keys to compare with are guessed, not halved."""
    feature = tl.program_id(0)
    which = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    filled = tl.minimum(tl.load(count + feature), size)
    rank = _rank_of(tl.load(levels + which, mask=which < ranks, other=0.5), filled)
    tile = tl.arange(0, TP)
    base = tiles + feature.to(tl.int64) * width + tile[None, :].to(tl.int64) * TILE
    here = tl.minimum(tl.maximum(filled - tile * TILE, 0), TILE)[None, :]
    # A quantile of all lies between the smallest and the largest of the tiles' own, and most likely near their mean.
    its = (rank[:, None] * here + filled - 1) // tl.maximum(filled, 1)
    own = _key(tl.load(base + its - 1, mask=its > 0, other=0.0))
    bottom = tl.min(tl.where(its > 0, own, 0x7FFFFFFF), 1)
    top = tl.max(tl.where(its > 0, own, -0x80000000), 1)
    top = tl.where(filled > 0, top, bottom)
    some = tl.maximum(tl.sum((its > 0).to(tl.int32), 1), 1)
    middle = tl.sum(tl.where(its > 0, own.to(tl.float32), 0.0), 1) / some
    off = tl.where(its > 0, own.to(tl.float32) - middle[:, None], 0.0)
    spread = tl.sqrt(tl.sum(off * off, 1) / some)
    # Elements before `low` are below the bracket of keys, those from `high` on are above it.
    low = tl.zeros([RANKS, TP], tl.int32)
    high = low + here.to(tl.int32)
    turn = 0
    while tl.max(tl.where(top > bottom, tl.max(high - low, 1), 0), 0) > 1:
        # Then where the rank would be if the keys in the bracket lay evenly, a little to the left and to the right of
        # it in turn; every third time in the middle, so that uneven keys cannot hold it up.
        inside = tl.maximum(tl.sum(high - low, 1), 1).to(tl.float32)
        share = ((rank - tl.sum(low, 1)).to(tl.float32) - 0.5) / inside
        aside = 0.5 / tl.sqrt(inside)
        share = tl.where(turn % 3 == 2, share - aside, tl.where(turn % 3 == 0, share + aside, 0.5))
        share = tl.minimum(tl.maximum(share, 0.0), 1.0)
        guess = bottom.to(tl.float32) + (top.to(tl.float32) - bottom.to(tl.float32)) * share
        guess = tl.where(turn == 0, middle - spread / 3, tl.where(turn == 1, middle + spread / 3, guess))
        guess = guess.to(tl.int64)  # a float's digits reach beyond the largest key
        key = tl.maximum(tl.minimum(guess, top.to(tl.int64) - 1), bottom.to(tl.int64)).to(tl.int32)
        left, before, after = _below(base, key, low, high, bottom, top)
        enough = tl.sum(left, 1) >= rank
        open = top > bottom
        high = tl.where((open & enough)[:, None], left, high)
        low = tl.where((open & ~enough)[:, None], left, low)
        top = tl.where(open & enough, tl.minimum(before, key), top)
        bottom = tl.where(open & ~enough, tl.maximum(after, key + 1), bottom)
        turn += 1
    # One key is left, or one element in each tile at the most.
    rest = tl.sort(tl.load(base + low, mask=low < high, other=float("inf")))
    after = (rank - tl.sum(low, 1) - 1).to(tl.int32)
    value = tl.sum(tl.where(tile[None, :] == after[:, None], rest, 0.0), 1)
    value = tl.where(top > bottom, value, _value(bottom))
    value = tl.where(filled > 0, value, float("nan"))
    tl.store(picked + feature * ranks + which, value, mask=which < ranks)


@triton.jit
def _rank_of(level, filled):
    """As `daes.distribution.base.rank_of`."""
    size = filled.to(tl.float64)
    rank = tl.ceil(level * size)
    rank = tl.where((rank - 1.0) / size >= level, rank - 1.0, rank)
    return tl.maximum(rank, 1.0).to(tl.int64)


@triton.jit
def _set_knots(
    picked, count, knots, centre, scale, inner, num_bulk, K, IP: tl.constexpr, LP: tl.constexpr
):  # fmt: skip
    feature = tl.program_id(0)
    i = tl.arange(0, IP)
    value = tl.load(picked + feature * (inner + num_bulk) + i, mask=i < inner, other=0.0)
    low = tl.load(knots + feature * (K + 1))
    high = tl.load(knots + feature * (K + 1) + K)
    value = tl.where(value < low, low, value)
    tl.store(knots + feature * (K + 1) + 1 + i, tl.where(value > high, high, value), mask=i < inner)
    j = tl.arange(0, LP)
    bulk = tl.load(picked + feature * (inner + num_bulk) + inner + j, mask=j < num_bulk, other=0.0).to(tl.float64)
    bulk = tl.where(tl.load(count + feature) > 0, bulk, 0.0)
    mean = tl.sum(bulk, 0) / num_bulk
    off = tl.where(j < num_bulk, bulk - mean, 0.0)
    tl.store(centre + feature, mean.to(tl.float32))
    tl.store(scale + feature, tl.sqrt(tl.sum(off * off, 0) / num_bulk).to(tl.float32))


def rounds(entries: int) -> int:
    """Rounds that `passed_by_many` needs for so many entries."""
    return next(turns for turns in range(1, 64) if WIDTH**turns > entries)


@on_its_device
def accept(
    values: Tensor,
    members: Tensor,
    positions: Tensor,
    targets: Tensor,
    following: Tensor,
    slots: Tensor,
    count: Tensor,
    skipped: Tensor,
    minimum: Tensor,
    maximum: Tensor,
    knots: Tensor,
    *,
    ends: bool,
) -> None:
    """Take a batch into reservoirs, in place; nothing but the counters is written where nothing is accepted.

    **Shape.** values (B, q); members (q,), not 0 for the features that follow these acceptances; `positions`, `targets`
    and `following` (E,): accepted positions, ascending, their slots, and when each slot is overwritten next; slots
    (q, m+1); the counters (q,); knots (q, K+1), whose ends become minimum and maximum if `ends`.
    """
    values = values.contiguous()
    rows, q = values.shape
    if not rows:
        return
    width = triton.next_power_of_2(q)
    block = max(16, 4096 // width)
    blocks = triton.cdiv(rows, block)
    counts = torch.empty(blocks, width, dtype=torch.int32, device=values.device)
    lows, highs = (torch.empty(blocks, width, device=values.device) for _ in range(2))
    before = torch.empty(q, dtype=torch.int64, device=values.device)
    _summarise[(blocks,)](values, count, counts, lows, highs, before, rows, q, QP=width, BLOCK=block)
    entries = positions.shape[0] - 1
    _accept[(blocks + 1,)](
        values, counts, lows, highs, before, members, positions, targets, following, slots, count, skipped, minimum,
        maximum, knots, rows, q, blocks, entries, slots.shape[1], knots.shape[1] - 1,
        QP=width, BLOCK=block, ROUNDS=rounds(entries), BLOCK_ROUNDS=rounds(block), WIDTH=WIDTH, CHUNK=128, ENDS=ends,
    )  # fmt: skip


@on_its_device
def refresh(slots: Tensor, count: Tensor, levels: Tensor, knots: Tensor, centre: Tensor, scale: Tensor) -> None:
    """Set inner knots, centre and scale to the quantiles of the reservoirs, in place.

    Tiles of slots are sorted; a quantile is then looked for in all tiles at once, by halving the range of its bits.

    **Shape.** slots (q, m), of which the first `count` are filled; count, centre and scale (q,); levels (L,) float64:
    those of the inner knots and then those of the bulk; knots (q, K+1).
    """
    q, most = slots.shape
    tiles = triton.cdiv(most, TILE)
    ordered = torch.empty(q, tiles, TILE, device=slots.device)
    _sort[(q, tiles)](slots, count, ordered, slots.stride(0), most, tiles * TILE, TILE=TILE, num_warps=1)
    picked = torch.empty(q, len(levels), device=slots.device)
    _select[(q, triton.cdiv(len(levels), _RANKS))](
        ordered, levels, count, picked, most, tiles * TILE, len(levels),
        TP=triton.next_power_of_2(tiles), TILE=TILE, RANKS=_RANKS, num_warps=1,
    )  # fmt: skip
    inner = knots.shape[1] - 2
    _set_knots[(q,)](
        picked, count, knots, centre, scale, inner, len(levels) - inner, inner + 1,
        IP=triton.next_power_of_2(max(inner, 1)), LP=triton.next_power_of_2(len(levels) - inner),
    )  # fmt: skip
