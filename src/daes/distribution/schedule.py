"""When a reservoir accepts, and into which slot: decided ahead of the stream, without looking at its values."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import inf, log
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from daes.distribution.base import Floats, State

Ints = NDArray[np.int64]
BLOCK = 4096
"""Acceptances drawn at a time. Fixed, so that what is drawn never depends on how the stream is cut into batches."""

_FARTHEST = 2.0**62


class Acceptances(NamedTuple):
    """Stream positions (the first value has position 1, ascending) and the slots their values go to."""

    positions: Ints
    slots: Ints


_NONE = Acceptances(np.empty(0, np.int64), np.empty(0, np.int64))


class Schedule(ABC):
    """The acceptances of one reservoir, in order, drawn in blocks.

    `size` slots fill first, those below `filled` being taken. `take(end)` gives all acceptances up to stream position
    `end` that were not taken yet. The random numbers come from PCG64, a generator that can jump ahead, so that a state
    is a handful of numbers: a block is drawn again from where its first one was drawn.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self._generation = 0
        self._used = 0  # random numbers used in earlier generations
        self.restart(position=0, filled=0)

    def restart(self, position: int, filled: int, log_threshold: float = 0.0) -> None:
        """Forget what was drawn and go on after `position` with `filled` slots taken, on fresh random numbers."""
        if self._generation:
            self._used = self.draws
        self._bits = _bit_generator(self.seed, self._generation)
        self._generation += 1
        self.position = position
        self.filled = filled
        self.log_threshold = log_threshold
        self._drawn = 0  # numbers this generation drew, the block at hand included
        self._cost = 0.0  # numbers an acceptance of the block at hand took
        self._start: State = {}
        self._block = _NONE
        self._taken = 0
        self._next = position

    def rng(self) -> np.random.Generator:
        """A generator for decisions outside the schedule (a merge, say), apart from the schedule's own numbers."""
        return np.random.Generator(_bit_generator(self.seed, self._generation, 1))

    @property
    def pristine(self) -> bool:
        """Whether it was never restarted, so that it is known by its size and seed alone."""
        return self._generation == 1

    @property
    def draws(self) -> int:
        """How many random numbers the acceptances taken so far have used."""
        return self._used + self._drawn - round(self._cost * (self._block.positions.size - self._taken))

    def take(self, end: int) -> Acceptances:
        """All acceptances at positions ≤ end that were not taken yet."""
        if self._next > end:
            return _NONE
        parts = []
        while True:
            positions, slots = self._block
            stop = int(positions.searchsorted(end, side="right"))
            if stop > self._taken:
                parts.append(Acceptances(positions[self._taken : stop], slots[self._taken : stop]))
                self._taken = stop
            if stop < positions.size:
                self._next = int(positions[stop])
                break
            self._advance()
        if len(parts) == 1:
            return parts[0]
        return Acceptances(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else _NONE

    def copy(self) -> Self:
        """A schedule that will go on exactly as this one."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._bits = _bit_generator(self.seed, self._generation - 1).advance(self._drawn)
        return twin

    def state_dict(self) -> State:
        start = self._start or self._drawing_state()
        return {
            "generation": self._generation - 1,
            "used": self._used,
            "taken": self._taken,
            "has_block": bool(self._start),
            **start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._generation = int(state["generation"])
        self.restart(int(state["position"]), int(state["filled"]), float(state["log_threshold"]))
        self._used = int(state["used"])
        self._drawn = int(state["drawn"])
        self._bits = _bit_generator(self.seed, self._generation - 1).advance(self._drawn)
        self._restore(state)
        if state["has_block"]:
            self._advance()
            self._taken = int(state["taken"])
            positions = self._block.positions
            self._next = int(positions[self._taken]) if self._taken < positions.size else self.position

    def _drawing_state(self) -> State:
        return {
            "drawn": self._drawn,
            "position": self.position,
            "filled": self.filled,
            "log_threshold": self.log_threshold,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore what a subclass added to `_drawing_state`."""
        return

    def _advance(self) -> None:
        """Draw the next block."""
        self._start = self._drawing_state()
        before = self._drawn
        if self.filled < self.size:
            self._block = self._fill()
        else:
            self._block = self._jump()
        self._cost = (self._drawn - before) / max(self._block.positions.size, 1)
        self._taken = 0

    @abstractmethod
    def _fill(self) -> Acceptances:
        """The next acceptances while slots are free; advances `filled`."""

    @abstractmethod
    def _jump(self) -> Acceptances:
        """The next acceptances once every slot is taken."""

    def _raw(self, count: int) -> NDArray[np.uint64]:
        self._drawn += count
        return self._bits.random_raw(count)

    def _uniform(self, count: int) -> Floats:
        """Uniform on the open interval (0, 1), so that a logarithm is always finite."""
        return _to_unit(self._raw(count))

    def _slots(self, count: int) -> tuple[Ints, Floats]:
        """A uniform slot and, from the same 64-bit number, an independent uniform on (0, 1)."""
        rest, slots = np.divmod(self._raw(count), np.uint64(self.size))
        return slots.astype(np.int64), (rest.astype(np.float64) + 0.5) * (self.size / 2.0**64)

    def _after(self, gaps: Floats) -> Ints:
        """Go on from `position`, skipping `gaps` values before each acceptance."""
        farthest = max(_FARTHEST - self.position, 0.0) / BLOCK  # keeps positions within 64 bits, on any stream
        steps: Ints = np.minimum(gaps, farthest).astype(np.int64) + 1
        positions: Ints = self.position + steps.cumsum()
        self.position = int(positions[-1])
        return positions


class ExactSchedule(Schedule):
    """Li's Algorithm L: every value seen so far is in the reservoir with probability exactly m/t.

    Think of a uniform key a value and of a reservoir that keeps the m values with the smallest keys. The threshold W
    is the largest key kept. A value enters if its key lies below W, so gaps are geometric; each acceptance lowers
    W by a factor U^(1/m). While slots are free (at the start, where W = 1, or after old values were discarded) values
    that pass the threshold fill them, and W stays.
    """

    def _fill(self) -> Acceptances:
        count = min(BLOCK, self.size - self.filled)
        if self.log_threshold == 0.0:
            gaps = np.zeros(count)
        else:
            gaps = _geometric(self._uniform(count), np.exp(self.log_threshold))
        slots = np.arange(self.filled, self.filled + count)
        self.filled += count
        return Acceptances(self._after(gaps), slots)

    def _jump(self) -> Acceptances:
        slots, shrink = self._slots(BLOCK)
        log_thresholds = self.log_threshold + (np.log(shrink) / self.size).cumsum()
        gaps = _geometric(self._uniform(BLOCK), np.exp(log_thresholds))
        self.log_threshold = float(log_thresholds[-1])
        return Acceptances(self._after(gaps), slots)


class PaperSchedule(Schedule):
    """The published rule: gap = floor(t·(U^(−1/m) − 1)).

    It accepts the value after t with probability 1 − (t/(t+1))^m, about 1 − e^(−m/t), in place of m/(t+1), so the
    first m values stay over-represented 1.5 times for ever. Kept to reproduce the paper.
    """

    def _fill(self) -> Acceptances:
        count = min(BLOCK, self.size - self.filled)
        slots = np.arange(self.filled, self.filled + count)
        self.filled += count
        return Acceptances(self._after(np.zeros(count)), slots)

    def _jump(self) -> Acceptances:
        growth = np.expm1(-np.log(self._uniform(BLOCK)) / self.size).tolist()
        slots, _ = self._slots(BLOCK)
        positions = np.empty(BLOCK, np.int64)
        position = self.position
        for step, factor in enumerate(growth):  # each gap needs the position before it: no vector form
            position += int(min(position * factor, max(_FARTHEST - position, 0.0) / BLOCK)) + 1
            positions[step] = position
        self.position = position
        return Acceptances(positions, slots)


class DecaySchedule(Schedule):
    """Exponential decay: a value of age a is in the reservoir with probability p_t·2^(−a/half_life).

    With λ = 2^(−1/half_life), each member must survive a step with probability λ·p_(t+1)/p_t.

    - While slots are free, p = 1: a value overwrites a uniform one of the n members with probability n·(1 − λ), else
      it is appended.
    - When full, an acceptance overwrites a uniform slot, so a member survives with probability 1 − p_(t+1)/m. Both hold
      if 1/p_(t+1) = λ/p_t + 1/m, which takes p from 1 to the fixed point m·(1 − λ); at λ = 1 it is m/t, plain
      reservoir sampling.

    A half-life so short that 1/(1 − λ) < m leaves part of the slots unused: older values have died out.
    """

    def __init__(self, size: int, half_life: float, seed: int) -> None:
        if not 0 < half_life < inf:
            raise ValueError(f"half_life must be a positive number of values, got {half_life}")
        death = -np.expm1(-log(2.0) / half_life)
        self.half_life = half_life
        self.mass = 1.0 / death  # the number of values that the weights 1, λ, λ², … add up to
        if self.mass <= size:
            # A whole number of slots, each overwritten with the same probability 1/mass at every step.
            self.mass = float(max(1, round(self.mass)))
            size = int(self.mass)
        self._full_at = 0
        super().__init__(size, seed)

    def acceptance(self, position: Ints | int) -> Floats:
        """p_t, the probability that the value at `position` is accepted once the reservoir is full."""
        age = np.asarray(position, dtype=np.float64) - self._full_at
        kept = np.exp2(-age / self.half_life)
        probability: Floats = 1.0 / (kept + (1.0 - kept) * self.mass / self.size)
        return probability

    def _fill(self) -> Acceptances:
        draws = (self._uniform(BLOCK) * self.mass).tolist()
        slots = np.empty(BLOCK, np.int64)
        filled = self.filled
        count = BLOCK
        for step, draw in enumerate(draws):
            if draw < filled:
                slots[step] = int(draw)
                continue
            slots[step] = filled
            filled += 1
            if filled == self.size:
                count = step + 1
                self._full_at = self.position + count
                break
        self.filled = filled
        return Acceptances(self._after(np.zeros(count)), slots[:count])

    def _jump(self) -> Acceptances:
        # p_t never rises, so candidates at the rate of the block's start, thinned to p_t, are exact.
        rate = float(self.acceptance(self.position + 1))
        candidates = self._after(_geometric(self._uniform(BLOCK), rate))
        slots, thin = self._slots(BLOCK)
        kept = thin * rate < self.acceptance(candidates)
        return Acceptances(candidates[kept], slots[kept])

    def _drawing_state(self) -> State:
        return {**super()._drawing_state(), "full_at": self._full_at}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._full_at = int(state["full_at"])


def threshold_after(rng: np.random.Generator, kept: int, count: int) -> float:
    """log W of a reservoir that holds a uniform sample of `kept` out of `count` values: the kept-th smallest key."""
    return float(np.log(rng.beta(kept, count - kept + 1))) if kept < count else 0.0


def smallest_keys(rng: np.random.Generator, kept: int, count: int) -> Floats:
    """The `kept` smallest of `count` uniform keys in order, by Rényi's representation of exponential spacings."""
    spacings = rng.standard_exponential(kept) / (count - np.arange(kept, dtype=np.float64))
    keys: Floats = -np.expm1(-spacings.cumsum())
    return keys


def _bit_generator(seed: int, *key: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))


def _geometric(uniform: Floats, probability: Floats | float) -> Floats:
    """How many failures come before the first success."""
    # At probability 1 the logarithm is −inf and the gap 0, at probability 0 the gap is infinite: as they should be.
    with np.errstate(divide="ignore", over="ignore"):
        gaps: Floats = np.floor(np.log(uniform) / np.log1p(-np.asarray(probability)))
    return gaps


def _to_unit(raw: NDArray[np.uint64]) -> Floats:
    unit: Floats = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return unit
