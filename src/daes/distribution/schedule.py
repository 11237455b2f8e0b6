"""Which stream positions a reservoir accepts and into which slots, drawn ahead of the stream without its values."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daes.distribution.base import Floats, Ints, State
from daes.native import arrays

BLOCK = 4096
"""Acceptances per block. Fixed, so that the random numbers do not depend on how the stream is cut into batches."""

FARTHEST = 2**62
"""A position that no stream reaches."""


class Acceptances(NamedTuple):
    """Accepted stream positions, ascending from 1, and the slots that their values are written to."""

    positions: Ints
    slots: Ints


class Origin(NamedTuple):
    """Where a schedule was last restarted: with its size and seed, all that is needed to draw it again."""

    generation: int = 0
    position: int = 0
    filled: int = 0
    log_threshold: float = 0.0


_NONE = Acceptances(np.empty(0, np.int64), np.empty(0, np.int64))


class Schedule(ABC):
    """The acceptances of one reservoir in stream order, drawn in blocks.

    Slots 0 … `filled` − 1 are occupied; the free ones are filled in order, after which an acceptance overwrites a
    uniformly chosen slot. `take(end)` returns the acceptances up to stream position `end` that were not taken before;
    none of them is before `next`.

    The random numbers come from PCG64, which can jump ahead, so the state is a few numbers: loading it draws the
    current block again from its first random number.
    """

    def __init__(self, size: int, seed: int, origin: Origin = Origin()) -> None:  # noqa: B008
        self.size = size
        self.seed = seed
        self._used = 0  # random numbers used before the last restart
        self._begin(origin)

    def restart(self, position: int, filled: int, log_threshold: float = 0.0) -> None:
        """Continue after `position` with `filled` occupied slots, on new random numbers.

        `log_threshold` is the log W of `threshold_after`.
        """
        self._used = self.draws
        self._begin(Origin(self.origin.generation + 1, position, filled, log_threshold))

    def _begin(self, origin: Origin, drawn: int = 0) -> None:
        if origin.position < 0 or not 0 <= origin.filled <= self.size or not origin.log_threshold <= 0:
            raise ValueError(
                f"position must be at least 0, filled within [0, {self.size}] and log_threshold at most 0, got {origin}"
            )
        self.origin = origin
        self._bits = bit_generator(self.seed, origin.generation).advance(drawn)
        _, self.position, self.filled, self.log_threshold = origin
        self._drawn = drawn  # random numbers since the last restart, including the current block
        self._cost = 0.0  # random numbers per acceptance in the current block
        self._start: State = {}
        self._block = _NONE
        self.taken = 0
        self.next = origin.position

    def rng(self) -> np.random.Generator:
        """A generator for decisions outside the schedule, such as a merge; independent of the schedule's numbers."""
        return np.random.Generator(bit_generator(self.seed, self.origin.generation + 1, 1))

    @property
    def draws(self) -> int:
        """Number of random numbers used by the acceptances taken so far."""
        return self._used + self._drawn - round(self._cost * (self._block.positions.size - self.taken))

    def take(self, end: int) -> Acceptances:
        """The acceptances at positions ≤ end that were not taken before."""
        parts = []
        while self.next <= end:
            positions, slots = self.block()
            start, stop = self.taken, int(positions.searchsorted(end, side="right"))
            if stop > start:
                parts.append(Acceptances(positions[start:stop], slots[start:stop]))
            self.skip(stop - start)
        if len(parts) == 1:
            return parts[0]
        return Acceptances(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else _NONE

    def block(self) -> Acceptances:
        """The drawn acceptances that include the next one; the first `taken` of them were already taken."""
        while self.taken == self._block.positions.size:
            self._advance()
        return self._block

    def skip(self, count: int) -> None:
        """Mark the next `count` acceptances of the current block as taken."""
        self.taken += count
        positions = self._block.positions
        self.next = int(positions[self.taken]) if self.taken < positions.size else self.position

    def state_dict(self) -> State:
        start = self._start or self._drawing_state()
        return {
            "generation": self.origin.generation,
            "used": self._used,
            "taken": self.taken,
            "has_block": bool(self._start),
            **start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        generation, position, filled = (int(state[name]) for name in ("generation", "position", "filled"))
        self._used = int(state["used"])
        self._begin(Origin(generation, position, filled, float(state["log_threshold"])), int(state["drawn"]))
        if state["has_block"]:
            self._advance()
            taken, drawn = int(state["taken"]), self._block.positions.size
            if not 0 <= taken <= drawn:
                raise ValueError(f"taken must lie within [0, {drawn}], the acceptances of the block, got {taken}")
            self.skip(taken)

    def is_behind(self, position: int) -> bool:
        """Whether it would accept values up to this position, which came before."""
        return self.next <= position if self.taken < self._block.positions.size else self.position < position

    def _drawing_state(self) -> State:
        return {
            "drawn": self._drawn,
            "position": self.position,
            "filled": self.filled,
            "log_threshold": self.log_threshold,
        }

    def _advance(self) -> None:
        """Draw the next block."""
        self._start = self._drawing_state()
        before = self._drawn
        self._block = self._fill() if self.filled < self.size else self._jump()
        self._cost = (self._drawn - before) / max(self._block.positions.size, 1)
        self.taken = 0

    def _fill(self) -> Acceptances:
        """The next acceptances while slots are free; advances `filled`."""
        count = min(BLOCK, self.size - self.filled)
        slots = np.arange(self.filled, self.filled + count)
        self.filled += count
        if self.log_threshold == 0.0:  # every value
            first, self.position = self.position + 1, self.position + count
            return Acceptances(np.arange(first, first + count), slots)
        return Acceptances(self._after(geometric(self._uniform(count), np.exp(self.log_threshold))), slots)

    @abstractmethod
    def _jump(self) -> Acceptances:
        """The next acceptances once every slot is occupied."""

    def _raw(self, count: int) -> NDArray[np.uint64]:
        self._drawn += count
        return self._bits.random_raw(count)

    def _uniform(self, count: int) -> Floats:
        """Uniform on the open interval (0, 1), so that the logarithm is finite."""
        unit: Floats = ((self._raw(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return unit

    def _slots(self, count: int) -> tuple[Ints, Floats]:
        """Uniform slots and, from the same 64-bit numbers, independent uniforms on (0, 1)."""
        rest, slots = np.divmod(self._raw(count), np.uint64(self.size))
        return slots.astype(np.int64), (rest.astype(np.float64) + 0.5) * (self.size / 2.0**64)

    def _farthest(self) -> float:
        """The largest gap within a block that keeps positions within 64 bits."""
        return max(FARTHEST - self.position, 0) / BLOCK

    def _after(self, gaps: Floats) -> Ints:
        """The positions that follow `position`, with `gaps` values skipped before each."""
        steps: Ints = np.minimum(gaps, self._farthest()).astype(np.int64) + 1
        positions: Ints = self.position + steps.cumsum()
        self.position = int(positions[-1])
        return positions


class ExactSchedule(Schedule):
    """Algorithm L: every value seen so far is in the reservoir with probability exactly m/t.

    Give every value an independent uniform key; the reservoir keeps the m values with the smallest keys. A value is
    accepted if its key is below the threshold W, the largest key kept, so the gaps are geometric, and an acceptance
    multiplies W by U^(1/m). While slots are free, values below the threshold fill them and W stays (at the start
    W = 1; after a restart see `threshold_after`).

    K.-H. Li, "Reservoir-Sampling Algorithms of Time Complexity O(n(1 + log(N/n)))", ACM TOMS 20(4), 1994.
    """

    def _jump(self) -> Acceptances:
        if arrays.serves() and self.size > 1 and self.position < FARTHEST // 2:
            return self._jump_compiled()
        slots, shrink = self._slots(BLOCK)
        log_thresholds = self.log_threshold + (np.log(shrink) / self.size).cumsum()
        gaps = geometric(self._uniform(BLOCK), np.exp(log_thresholds))
        self.log_threshold = float(log_thresholds[-1])
        return Acceptances(self._after(gaps), slots)

    def _jump_compiled(self) -> Acceptances:
        """The same acceptances, bit for bit."""
        found = arrays.jump(self._bits, BLOCK, self.size, self.log_threshold, self.position)
        self._drawn += 2 * BLOCK
        self.log_threshold = found.log_threshold
        positions = found.positions
        if found.unsure is not None:
            places, uniform, log_thresholds = found.unsure
            gaps = np.minimum(geometric(uniform, np.exp(log_thresholds)), self._farthest()).astype(np.int64)
            before = np.where(places, positions[places - 1], self.position)
            late = before + gaps + 1 - positions[places]
            if late.any():
                steps = np.zeros(BLOCK, np.int64)
                steps[places] = late
                positions += steps.cumsum()
        self.position = int(positions[-1])
        return Acceptances(positions, found.slots)


class PaperSchedule(Schedule):
    """The rule published with DAES: gap = floor(t·(U^(−1/m) − 1)).

    It accepts the value after t with probability 1 − (t/(t+1))^m ≈ 1 − e^(−m/t) instead of m/(t+1), so the first m
    values stay over-represented by a factor of 1.5. Kept to reproduce the paper.
    """

    def _jump(self) -> Acceptances:
        growth = np.expm1(-np.log(self._uniform(BLOCK)) / self.size).tolist()
        slots, _ = self._slots(BLOCK)
        positions = np.empty(BLOCK, np.int64)
        position = self.position
        for step, factor in enumerate(growth):  # each gap depends on the position before it: no vector form
            position += int(min(position * factor, max(FARTHEST - position, 0) / BLOCK)) + 1
            positions[step] = position
        self.position = position
        return Acceptances(positions, slots)


def make_schedule(skip: str, size: int, seed: int, origin: Origin = Origin()) -> Schedule:  # noqa: B008
    """The schedule of a rule, "exact" or "paper", from where it was last restarted."""
    return {"exact": ExactSchedule, "paper": PaperSchedule}[skip](size, seed, origin)


def threshold_after(rng: np.random.Generator, kept: int, count: int) -> float:
    r"""log W with which an exact schedule restarts from a uniform sample of k = `kept` out of n = `count` values.

    W is the smallest key *not* kept, the (k+1)-th smallest of n independent uniform keys:

    $$ W \sim \mathrm{Beta}(k + 1,\; n - k), \qquad W = 1 \text{ if } k = n. $$

    Given W the kept keys are independent and uniform on (0, W). This is what the schedule assumes:

    - *All m slots occupied (k = m).* The schedule multiplies W by U^(1/m) ~ Beta(m, 1) before it draws a gap. By
      Beta(m+1, n−m)·Beta(m, 1) = Beta(m, n−m+1) the product is the m-th smallest key, the largest one kept. Its mean
      m/(n+1) is the probability that value n + 1 is accepted, as it must be.
    - *Free slots (k < m).* Later values with a key below W fill them. Of N later values, j have such a key, and the
      reservoir is a uniform sample of the k + j values below W. By E[k/(k+j)] = n/(n+N), the unbiased estimate of
      inverse sampling, old and new values are included equally often once the reservoir is full. Before that, a new
      value is included with probability (k+1)/(n+1), an old one with k/n: values that were dropped cannot come back,
      so no rule is exact for both.
    - *Everything kept (k = n).* W = 1: the next values fill the free slots one by one.
    """
    return float(np.log(rng.beta(kept + 1, count - kept))) if kept < count else 0.0


def smallest_keys(rng: np.random.Generator, kept: int, count: int) -> Floats:
    """The `kept` smallest of `count` uniform keys in ascending order, from exponential spacings (Rényi 1953)."""
    spacings = rng.standard_exponential(kept) / (count - np.arange(kept, dtype=np.float64))
    keys: Floats = -np.expm1(-spacings.cumsum())
    return keys


def bit_generator(seed: int, *key: int) -> np.random.PCG64:
    """Random bits of a seed, independent of those with another key."""
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))


def geometric(uniform: Floats, probability: Floats | float) -> Floats:
    """Number of failures before the first success."""
    # Correct at the ends too: at probability 1 the logarithm is −inf and the gap 0, at 0 the gap is infinite.
    with np.errstate(divide="ignore", over="ignore"):
        gaps: Floats = np.floor(np.log(uniform) / np.log1p(-np.asarray(probability)))
    return gaps
