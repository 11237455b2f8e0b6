"""Where a value stands among its feature's knots, inside of kernels: as `daes.embedding.knots` has it."""

import triton
import triton.language as tl
from torch import Tensor

KINDS = {"value": 1, "score": 2, "rank": 3}
"""Numbers of `FeatureInput` in kernels; 0 is none."""

_LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def part(x):
    """Finite values with 0 for missing ones, and which are missing."""
    missing = x != x
    return tl.minimum(tl.maximum(tl.where(missing, 0.0, x), -_LARGEST), _LARGEST), missing


@triton.jit
def find_bins(numbers, edges, row, feature, wanted, q, bins, STEPS: tl.constexpr):
    """The bins of numbers among the bins - 1 edges of their features; the last one is for missing values."""
    x, missing = part(tl.load(numbers + row.to(tl.int64) * q + feature, mask=wanted, other=0.0))
    below = tl.zeros_like(x).to(tl.int32)
    for step in tl.static_range(STEPS):
        probe = below + (1 << (STEPS - 1 - step))
        within = wanted & (probe <= bins - 1)
        edge = tl.load(edges + feature * (bins - 1) + probe - 1, mask=within, other=0.0)
        below = tl.where(within & (edge < x), probe, below)
    return tl.where(missing, bins, below)


@triton.jit
def locate(x, edges, K: tl.constexpr, STEPS: tl.constexpr):
    """The interval of finite values among the K + 1 knots at `edges`, their place in it from 0 to 1, whether known."""
    passed = tl.zeros_like(x).to(tl.int32)
    for step in tl.static_range(STEPS):
        probe = passed + (1 << (STEPS - 1 - step))
        within = probe <= K + 1
        edge = tl.load(edges + probe - 1, mask=within, other=float("inf"))
        passed = tl.where(within & (edge <= x), probe, passed)
    cell = tl.minimum(tl.maximum(passed - 1, 0), K - 1)
    left = tl.load(edges + cell)
    right = tl.load(edges + cell + 1)
    # Of halves the difference cannot overflow. A knot that is not known yet is as far as can be.
    width = tl.where(right != right, float("inf"), right * 0.5 - left * 0.5)
    inside = (x * 0.5 - left * 0.5) / tl.where(width > 0, width, 1.0)
    inside = tl.where(passed > K, 1.0, tl.where(passed == 0, 0.0, inside))
    first = tl.load(edges + passed * 0)
    return cell, inside, (first == first) & (tl.abs(first) < float("inf"))


@triton.jit
def row_of(cell, inside, K: tl.constexpr, M: tl.constexpr):
    """The first of the two rows of M + 1 that a place lies between, and the share of the second."""
    if K == M:
        row = cell
        share = inside
    else:
        place = (cell.to(tl.float32) + inside) * (M / K)
        row = tl.minimum(place.to(tl.int32), M - 1)
        share = place - row.to(tl.float32)
    return row, share


@triton.jit
def basis_weights(cell, inside, column, K: tl.constexpr, M: tl.constexpr, R: tl.constexpr):
    """Weights of places on R rows, (BLOCK, columns): of the thermometer where R is M, of the hat where it is M + 1."""
    offset = ((cell.to(tl.float32) + inside) * (M / K))[:, None] - column.to(tl.float32)
    if R == M:
        weights = tl.minimum(tl.maximum(offset, 0.0), 1.0)
    else:
        weights = tl.maximum(1.0 - tl.abs(offset), 0.0)
    return weights


@triton.jit
def unit_input(KIND: tl.constexpr, x, rank, known, centre, scale, HALF: tl.constexpr):
    """An input of unit scale, see `FeatureKnots.input`; HALF is half a knot."""
    if KIND == 1:
        spread = tl.where(scale * 0.5 > 0, scale, float("inf"))
        deviation = (x * 0.5 - centre * 0.5) / (spread * 0.5)
        result = tl.minimum(tl.maximum(deviation, -4.0), 4.0)
    elif KIND == 2:
        result = tl.where(known, _normal_score(tl.minimum(tl.maximum(rank, HALF), 1.0 - HALF)), 0.0)
    else:
        result = tl.where(known, 3.4641016151377544 * (rank - 0.5), 0.0)
    return result


@triton.jit
def store_inputs(
    place, q, x, rank, known, absent, valid, centre, scale,
    HALF: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr,
):  # fmt: skip
    """Write up to three kinds of plain inputs, q numbers apart."""
    if FIRST:
        z = unit_input(FIRST, x, rank, known, centre, scale, HALF)
        tl.store(place, tl.where(absent, 0.0, z), mask=valid)
    if SECOND:
        z = unit_input(SECOND, x, rank, known, centre, scale, HALF)
        tl.store(place + q, tl.where(absent, 0.0, z), mask=valid)
    if THIRD:
        z = unit_input(THIRD, x, rank, known, centre, scale, HALF)
        tl.store(place + 2 * q, tl.where(absent, 0.0, z), mask=valid)


@triton.jit
def _normal_score(rank):
    """That of `daes.embedding.normal`, by Wichura's AS 241, PPND7; ranks stay within half a knot of 0 and 1."""
    deviation = rank - 0.5
    r = tl.maximum(0.180625 - deviation * deviation, 0.0)
    centre = ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179
    centre = deviation * centre / (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0)
    depth = tl.sqrt(-tl.log(tl.minimum(rank, 1.0 - rank)))
    s = depth - 1.6
    tail = ((0.17023821103 * s + 1.3067284816) * s + 2.7568153900) * s + 1.4234372777
    tail = tail / ((0.12021132975 * s + 0.73700164250) * s + 1.0)
    t = depth - 5.0
    far = ((0.017337203997 * t + 0.42868294337) * t + 3.0812263860) * t + 6.6579051150
    far = far / ((0.012258202635 * t + 0.24197894225) * t + 1.0)
    tail = tl.where(depth <= 5.0, tail, far)
    return tl.where(tl.abs(deviation) <= 0.425, centre, tl.where(deviation > 0, tail, -tail))


def kinds_of(plain: str) -> dict[str, int]:
    """What kernels are compiled for: how many plain inputs a number has, and their kinds, separated by commas."""
    kinds = [KINDS[kind] for kind in plain.split(",") if kind]
    return {"PLAIN": len(kinds), **dict(zip(("FIRST", "SECOND", "THIRD"), [*kinds, 0, 0, 0], strict=False))}


def sizes_of(knots: Tensor, bins: int, dim: int) -> dict[str, int | float]:
    """What kernels are compiled for: sizes of knots and tables."""
    intervals = knots.shape[1] - 1
    return {
        "K": intervals,
        "M": bins,
        "STEPS": (intervals + 1).bit_length(),
        "HALF": 0.5 / intervals,
        "D": dim,
        "DP": max(16, triton.next_power_of_2(dim)),
    }
