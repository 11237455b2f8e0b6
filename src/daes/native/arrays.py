"""The compiled loops on NumPy arrays, without torch."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daes import native

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def serves() -> bool:
    """Whether compiled loops are there."""
    return native._library is not None


class _Scratch(threading.local):
    """Memory that one thread uses again and again: allocating it would take longer than writing to it."""

    def __init__(self) -> None:
        self.generator = (ctypes.c_uint64 * 4)()
        self.size = 0

    def resize(self, size: int) -> None:
        self.size, memory = size, np.empty((4, size))
        self.logs, self.uniform, self.log_thresholds = memory[:3]
        self.unsure = memory[3].view(np.int64)
        self.addresses = [row.ctypes.data for row in memory]


_scratch = _Scratch()


class Unsure(NamedTuple):
    """Gaps that single precision may have rounded to another whole number."""

    places: Ints
    """Among the acceptances."""
    uniform: Floats
    """The numbers that they are made of, and log W at them."""
    log_thresholds: Floats


class Jump(NamedTuple):
    """Acceptances of an exact schedule."""

    positions: Ints
    slots: Ints
    log_threshold: float
    unsure: Unsure | None


def jump(bits: np.random.PCG64, count: int, size: int, log_threshold: float, position: int) -> Jump:
    """`ExactSchedule._jump` of `count` acceptances, for a size of at least 2."""
    state, scratch = bits.state["state"], _scratch
    if scratch.size != count:
        scratch.resize(count)
    logs, uniform, log_thresholds, unsure = scratch.addresses
    scratch.generator[:] = [*divmod(state["state"], 2**64), *divmod(state["inc"], 2**64)]
    slots, positions = np.empty(count, np.int64), np.empty(count, np.int64)
    native._library.daes_draw(scratch.generator, count, size, slots, logs, uniform)
    bits.advance(2 * count)
    np.log(scratch.logs, out=scratch.logs)
    found = native._library.daes_gaps(
        logs, uniform, count, size, log_threshold, position, log_thresholds, positions, unsure
    )
    where = scratch.unsure[:found]
    return Jump(
        positions,
        slots,
        float(scratch.log_thresholds[-1]),
        Unsure(where.copy(), scratch.uniform[where], scratch.log_thresholds[where]) if found else None,
    )


def count_up_to(values: Floats, points: Floats) -> Ints:
    """How many of the values are at most each of the points."""
    counts = np.zeros(points.size, np.int64)
    native._library.daes_count_up_to(values, values.size, points, points.size, 1, counts)
    return counts


def follow(places: tuple[int, ...], size: int, width: int, num: int, tolerance: float) -> int:
    """`TrackedQuantiles.read`: the number of points; 0 if a sorted sample is needed."""
    slots, ordered, levels, tied, points, counts = places
    found: int = native._library.daes_follow(slots, size, ordered, width, levels, num, tolerance, tied, points, counts)
    return found


class Addresses(tuple[int, ...]):
    """Addresses of arrays that are not moved, found once. A copy is None, since its arrays are elsewhere."""

    def __reduce__(self) -> Any:
        return type(None), ()


class Writer:
    """Writes accepted values into the slots of a reservoir; finds the address of a lasting array only once."""

    def __init__(self, slots: Floats) -> None:
        self.slots = slots
        self._to = slots.ctypes.data
        self._filled, self.range = ctypes.c_int64(), (ctypes.c_double * 2)()
        self._occupied = ctypes.byref(self._filled)
        self._block: Any = None
        self._from = 0, 0

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy finds its own addresses

    def write(
        self,
        batch: int,
        size: int,
        seen: int,
        block: tuple[Ints, Ints],
        first: int,
        filled: int,
        tracked: Any,
        look: bool,
    ) -> tuple[int, int]:
        """Write the acceptances from the `first` of a block on; returns how many, and how many slots are occupied.

        `tracked` may be quantiles (`TrackedQuantiles`) that follow. With `look` all values are checked first: if one
        of them is not finite, nothing is written and −1 returned, otherwise `range` is their minimum and maximum.
        """
        if block is not self._block:
            self._block, self._from = block, (native.address(block[0]), native.address(block[1]))
        self._filled.value = filled
        written = native._library.daes_accept(
            batch,
            size,
            seen,
            *self._from,
            first,
            block[0].size,
            self._to,
            self._occupied,
            *((None, 0, None) if tracked is None else (tracked.addresses[4], tracked.num_points, tracked.addresses[5])),
            self.range if look else None,
        )
        if tracked is not None:
            tracked.size = self._filled.value
        return written, self._filled.value


def take_smallest(hashes: Ints, smallest: Ints, counts: Ints, seen: Ints) -> None:
    """Add rows (B, p) of hashes to the smallest ones of each column (p, k), of which there are `counts` (p,).

    `seen` (p, a power of two), zeros at first, remembers some, which need no search.
    """
    hashes = np.ascontiguousarray(hashes, np.int64)
    native._library.daes_distinct(hashes, *hashes.shape, smallest.shape[1], smallest, counts, seen.shape[1], seen)


def count_bins(values: NDArray[np.float32], cuts: Floats) -> Ints:
    """`DriftBins.count` of values (B, q) whose rows are contiguous, and cuts (q, C): (q, C+1)."""
    counts = np.zeros((cuts.shape[0], cuts.shape[1] + 1), np.int64)
    native._library.daes_bins(
        values, len(values), values.strides[0] // values.itemsize, len(cuts), cuts, cuts.shape[1], counts
    )
    return counts


def read_errors(
    values: NDArray[np.int32],
    labels: NDArray[np.float32],
    logits: NDArray[np.float32],
    times: float,
    fields: NDArray[np.int64],
    which: NDArray[np.int64],
    errors: NDArray[np.float64],
    prime: int,
    threads: int,
) -> None:
    """`Combinations.read`: set those `which` of the combinations' errors to those of rows, so many times."""
    cells = errors.shape[1]
    columns, factors, each = _columns(values, cells), _factors(cells, prime), np.empty((len(labels), 2))
    native._library.daes_errors(labels, logits, len(labels), times, each)

    def read_some(pieces: Iterator[slice]) -> None:
        sums = np.empty((cells, 2))
        for piece in pieces:
            mine = which[piece]
            native._library.daes_read(
                columns, *values.shape, factors, each, fields, mine, len(mine), cells, sums, errors
            )

    _share(read_some, len(which), 4, threads)


def rate(
    values: NDArray[np.int32],
    error: NDArray[np.float64],
    variance: NDArray[np.float64],
    candidates: NDArray[np.int64],
    cells: int,
    prime: int,
    most: float,
    threads: int,
) -> NDArray[np.float64]:
    """`daes.evidence.combinations.rate`, with −∞ where more than `most` cells are used."""
    columns, factors, rows = _columns(values, cells), _factors(cells, prime), len(values)
    errors = np.stack([error, variance + np.finfo(np.float64).tiny], axis=1)  # a cell that is used is never 0
    found = np.empty(len(candidates))

    def rate_some(pieces: Iterator[slice]) -> None:
        scratch = np.zeros((cells, 2)), np.empty(rows, np.int32), np.empty((2, rows), np.int32)
        for piece in pieces:
            mine, rated = candidates[piece], found[piece]
            native._library.daes_rate(
                columns, *values.shape, factors, errors, mine, len(mine), cells, most, *scratch, rated
            )

    _share(rate_some, len(candidates), 64, threads)
    return found


def _columns(values: NDArray[np.int32], cells: int) -> NDArray[np.int32]:
    """Values (N, fields), modulo the cells, column by column, (fields, N)."""
    columns = np.ascontiguousarray(values.T)
    small = columns.size and columns.view(np.uint32).max() < cells  # as such, those below 0 are the largest
    return columns if small else np.remainder(columns, np.int32(cells))


def _factors(cells: int, prime: int) -> NDArray[np.int32]:
    """The product of each remainder and the prime, modulo the cells."""
    return (np.arange(cells) * prime % cells).astype(np.int32)


def _share(work: Callable[[Iterator[slice]], None], count: int, size: int, threads: int) -> None:
    """Let threads, this one among them, take pieces of so many things until all are done."""
    pieces = iter([slice(first, first + size) for first in range(0, count, size)])
    with ThreadPoolExecutor(max(threads - 1, 1)) as pool:
        others = [pool.submit(work, pieces) for _ in range(threads - 1)]
        work(pieces)
        for other in others:
            other.result()
