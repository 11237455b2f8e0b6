"""Schedules that adapt to drift: a sample of a window, and one that forgets exponentially."""

from collections.abc import Mapping
from math import inf, log
from typing import Any

import numpy as np

from daes.distribution.base import Floats, Ints, State
from daes.distribution.schedule import (
    BLOCK,
    FARTHEST,
    Acceptances,
    ExactSchedule,
    Schedule,
    bit_generator,
    geometric,
)


class WindowSchedule(ExactSchedule):
    """A uniform sample of a window that loses its older half every `expiry` values: random pairing.

    Up to position 2·expiry this is `ExactSchedule`. Then the reservoir discards the older half of its window, in which
    d of its s = min(m, 2·expiry) members lie, and restarts. Each value discarded from the window is paired with one of
    the next `expiry` values, which is accepted if and only if its partner was a member: the d free slots go to a
    uniformly chosen d-subset of these positions. Hence the sample is uniform over the window given its size, every
    value of the window is a member with probability s/(2·expiry) at any time, and after `expiry` values there are
    s members again.

    R. Gemulla, W. Lehner and P. J. Haas, "A Dip in the Reservoir: Maintaining Sample Synopses of Evolving Datasets",
    VLDB 2006.
    """

    def __init__(self, size: int, expiry: int, seed: int) -> None:
        self.expiry = expiry
        super().__init__(min(size, 2 * expiry), seed)

    def _fill(self) -> Acceptances:
        if not self.origin.generation:
            return super()._fill()
        free = self.size - self.filled
        rng = np.random.Generator(bit_generator(self.seed, self.origin.generation, 2))
        offsets = np.sort(rng.choice(self.expiry, free, replace=False, shuffle=False))
        accepted = Acceptances(self.position + 1 + offsets, np.arange(self.filled, self.size))
        self._drawn += free
        self.filled = self.size
        return accepted

    def _jump(self) -> Acceptances:
        if not self.origin.generation:
            return super()._jump()
        return Acceptances(np.array([FARTHEST]), np.zeros(1, np.int64))  # nothing more before the next restart


class DecaySchedule(Schedule):
    """Exponential decay: a value of age a is in the reservoir with probability p_t·2^(−a/half_life).

    With λ = 2^(−1/half_life), a member must survive a step with probability λ·p_(t+1)/p_t.

    - While slots are free, p = 1: a value overwrites one of the n members, uniformly chosen, with probability
      n·(1 − λ); otherwise it is appended.
    - With all m slots occupied, an acceptance overwrites a uniformly chosen slot, so a member survives with probability
      1 − p_(t+1)/m. Both hold if 1/p_(t+1) = λ/p_t + 1/m, which takes p from 1 to the fixed point m·(1 − λ). At λ = 1
      this is p_t = m/t, plain reservoir sampling.

    The weights 1, λ, λ², … sum to 1/(1 − λ), the expected number of survivors at p = 1. No more slots than that are
    used: m is at most floor(1/(1 − λ)).

    The law is that of Aggarwal's biased reservoir sampling (VLDB 2006), here exact while slots are free too.
    """

    def __init__(self, size: int, half_life: float, seed: int) -> None:
        if not 0 < half_life < inf:
            raise ValueError(f"half_life must be a positive number of values, got {half_life}")
        death = -np.expm1(-log(2.0) / half_life)
        self.half_life = half_life
        self.mass = 1.0 / death  # 1 + λ + λ² + …
        self._full_at = 0
        super().__init__(min(size, int(self.mass)), seed)

    def acceptance(self, position: Ints | int) -> Floats:
        """p_t, the probability that the value at `position` is accepted once every slot is occupied."""
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
        # p_t does not increase, so candidates at the rate of the block's start, thinned to p_t, follow p_t exactly.
        rate = float(self.acceptance(self.position + 1))
        candidates = self._after(geometric(self._uniform(BLOCK), rate))
        slots, thin = self._slots(BLOCK)
        kept = thin * rate < self.acceptance(candidates)
        return Acceptances(candidates[kept], slots[kept])

    def _drawing_state(self) -> State:
        return {**super()._drawing_state(), "full_at": self._full_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._full_at = int(state["full_at"])
        if not 0 <= self._full_at <= int(state["position"]):
            raise ValueError(f"full_at must lie within [0, {state['position']}], the position, got {self._full_at}")
        super().load_state_dict(state)
