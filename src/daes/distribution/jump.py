"""Jump reservoir sampling: a uniform sample whose cost grows with the logarithm of the stream's length."""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from daes.choices import check_choice
from daes.distribution.adaptive_schedule import DecaySchedule, WindowSchedule
from daes.distribution.base import Floats, State, check_positive, check_values
from daes.distribution.drift import ks_statistic
from daes.distribution.reservoir import SampleEstimator
from daes.distribution.schedule import Origin, Schedule, make_schedule, threshold_after
from daes.native import address, arrays

Skip = Literal["exact", "paper"]


class JumpReservoir(SampleEstimator):
    """Jump reservoir sampling (`JRS` in the paper): draw the gap to the next accepted value, skip the values before it.

    `skip="exact"` is Algorithm L (Li 1994): every value seen so far is a member with probability exactly m/t, also
    after a merge or a warm start. `skip="paper"` is the published rule, kept to reproduce the paper: it
    over-represents the first m values by a factor of 1.5. Both use two random numbers per acceptance and about
    m·(1 + ln(t/m)) acceptances in total.

    The same values and seed give the same sample, bit for bit, for any split of the stream into batches.

    A reservoir can adapt to drift in one of two ways:

    - `expiry=n`: at every n-th value, members older than n values are discarded. The sample is uniform over the last
      n to 2n values: each is a member with probability min(m/2n, 1), see `WindowSchedule`. Right after a discard about
      half of the slots are free; if m is so small that all of them are, quantiles are NaN until the next acceptance.
    - `half_life=h`: a value of age a, counted in values of this stream, is a member with probability proportional to
      2^(−a/h), see `DecaySchedule`.

    It can also choose its number of slots: with `stability=ε`, whenever the stream has doubled, the rank error of the
    sample is estimated from its two halves and the number of slots is set between `min_size` and `size` to make that
    error about ε. A feature with few distinct values needs few slots; where the error is too large, the sample grows
    again with the stream. The choice depends on the sample, so uniformity is exact only given the sizes chosen.

    Args:
        size: number m of slots (with `stability`: at most).
        skip: the rule, "exact" or "paper".
        seed: of the random numbers. Reservoirs that will be merged need different seeds.
        tolerance: how far a rank may lag behind the sample before the sample is sorted again (0: not at all).
        expiry: age in values at which members are discarded.
        half_life: age in values at which a member is half as likely as a new one.
        stability: wanted rank error.
        min_size: smallest number of slots with `stability`; at least two, so that there are halves to compare.

    >>> reservoir = JumpReservoir(size=1000, seed=0)
    >>> for batch in np.split(np.arange(100_000.0), 10):
    ...     reservoir.update(batch)
    >>> reservoir.count, reservoir.sample.size
    (100000, 1000)
    >>> bool(abs(reservoir.quantile(0.5) - 50_000) < 5_000)
    True
    """

    _settings: ClassVar[tuple[str, ...]] = ("size", "skip", "expiry", "half_life", "stability")
    _statistics: ClassVar[tuple[str, ...]] = (*SampleEstimator._statistics, "drawn_by_others")

    def __init__(
        self,
        size: int = 100_000,
        skip: Skip = "exact",
        seed: int = 0,
        *,
        tolerance: float = 0.0,
        expiry: int | None = None,
        half_life: float | None = None,
        stability: float | None = None,
        min_size: int = 1000,
    ) -> None:
        super().__init__(size, seed, tolerance)
        check_choice("skip", skip, get_args(Skip))
        adaptations = {"expiry": expiry, "half_life": half_life, "stability": stability}
        chosen = [name for name, value in adaptations.items() if value is not None]
        if len(chosen) > 1:
            raise ValueError(f"only one of expiry, half_life and stability can be set, got {', '.join(chosen)}")
        if chosen and skip != "exact":
            raise ValueError(f"{chosen[0]} needs skip='exact', got {skip!r}")
        if expiry is not None:
            check_positive(expiry=expiry)
        if stability is not None:
            check_positive(min_size=min_size)
            if not 0 < stability < 1:
                raise ValueError(f"stability must lie in (0, 1), got {stability}")
        self.skip = skip
        self.expiry = expiry
        self.half_life = half_life
        self.stability = stability
        self.min_size = min(max(min_size, 2), self.size)
        self.schedule = self._new_schedule()
        self.drawn_by_others = 0
        self._born = np.empty(self.size if expiry else 0, np.int64)  # the stream position of each member
        self._writer: arrays.Writer | None = None

    def _new_schedule(self) -> Schedule:
        if self.expiry is not None:
            return WindowSchedule(self.size, self.expiry, self.seed)
        if self.half_life is not None:
            return DecaySchedule(self.size, self.half_life, self.seed)
        return make_schedule(self.skip, self.size, self.seed)

    @property
    def draws(self) -> int:
        """Number of random numbers used, including those of merged reservoirs."""
        return self.schedule.draws + self.drawn_by_others

    @property
    def capacity(self) -> int:
        """Current number of slots: `size`, unless `stability`, a short `expiry` or a short `half_life` needs fewer."""
        return self.schedule.size

    @property
    def nbytes(self) -> int:
        """Memory of the sample."""
        return self._slots.nbytes + self._born.nbytes

    def warm_start(self, history: ArrayLike, count: int | None = None) -> Self:
        """Fill an empty reservoir from historical data, to avoid a cold start.

        `count` is the number of stream values that the history stands for: its length by default, fewer to let the
        stream outweigh it sooner, more if the history is itself a sample. Value t of the stream is then accepted with
        probability m/(count + t); if the history leaves slots free, see `threshold_after`.
        """
        if self.count:
            raise ValueError(f"warm_start needs an empty reservoir; it has seen {self.count} values")
        if self.expiry is not None or self.half_life is not None:
            raise ValueError("warm_start cannot be used with expiry or half_life: the age of the history is unknown")
        values = check_values(history)
        finite = values[np.isfinite(values)]
        kept = min(finite.size, self.capacity)
        if not kept:
            raise ValueError(f"history must have at least one finite value, got none among {values.size}")
        count = finite.size if count is None else count
        check_positive(count=count)
        if count < kept:
            raise ValueError(f"count must be at least {kept}, the number of members kept, got {count}")
        rng = self.schedule.rng()
        self._restart(finite if kept == finite.size else rng.choice(finite, kept, replace=False), count, rng)
        self.skipped = values.size - finite.size
        self.advance(count, float(finite.min()), float(finite.max()))
        return self

    def restore(self, members: Floats, origin: Origin, count: int) -> Self:
        """Take over the members of a reservoir with the same settings, without adaptation, after `count` values."""
        self._replace(members)
        self.count = count
        self.schedule = make_schedule(self.skip, self.size, self.seed, origin)
        self.schedule.take(count)
        return self

    def update(self, values: ArrayLike) -> None:
        batch = check_values(values)
        steady = self.expiry is None and self.stability is None
        if not (batch.size and steady and arrays.serves() and self._update_compiled(np.ascontiguousarray(batch))):
            super().update(batch)

    def _update_compiled(self, batch: Floats) -> bool:
        """`update` in compiled loops, unless a value is not finite."""
        if self._writer is None or self._writer.slots is not self._slots:
            self._writer = arrays.Writer(self._slots)
        writer, schedule, size, where = self._writer, self.schedule, batch.size, address(batch)
        seen, end, look = self.count, self.count + size, True
        while look or schedule.next <= end:
            block, first = schedule.block(), schedule.taken
            written, filled = writer.write(where, size, seen, block, first, self._filled, self._tracked, look)
            if written < 0:
                return False
            self._filled, look = filled, False
            self._view.mark(block.slots[first : first + written])
            schedule.skip(written)
        self.advance(size, *writer.range)
        return True

    def _absorb(self, values: Floats) -> None:
        start = self.count
        while values.size:
            checkpoint = self._checkpoint(start)
            part = values[: checkpoint - start]
            positions, slots = self.schedule.take(start + part.size)
            if slots.size:
                if self._filled < self.capacity:  # free slots are filled in order
                    self._filled = max(self._filled, int(slots.max()) + 1)
                self._write(slots, part[positions - (start + 1)])
                if self.expiry is not None:
                    self._born[slots] = positions
            start, values = start + part.size, values[part.size :]
            if start == checkpoint:
                self._adapt(start)

    def _checkpoint(self, position: int) -> int:
        """The next position after which the reservoir adapts."""
        if self.expiry is not None:
            return (position // self.expiry + 1) * self.expiry
        if self.stability is not None:
            step = 2 * self.size
            while step <= position:
                step *= 2
            return step
        return sys.maxsize

    def _adapt(self, position: int) -> None:
        if self.stability is not None:
            self._resize(position, self._stable_size(self.stability))
        elif self.expiry is not None and position >= 2 * self.expiry:
            young = self._born[: self._filled] > position - self.expiry
            members = self._slots[: self._filled][young]
            self._born[: members.size] = self._born[: self._filled][young]
            self._replace(members)
            self.schedule.restart(position, members.size)

    def _stable_size(self, stability: float) -> int:
        r"""The number of slots at which the rank error is about ε = `stability`.

        The even and the odd slots are independent samples of n/2 values with empirical CDFs F₁ and F₂, and that of all
        n members is their mean. F₁ − F₂ varies twice as much as the mean does about the true CDF, so half of the
        Kolmogorov–Smirnov distance estimates the rank error of n slots, which falls as 1/√n:

        $$ e_n = \tfrac{1}{2} \sup_x |F_1(x) - F_2(x)|, \qquad
           m = \lceil n \, (e_n / \varepsilon)^2 \rceil $$

        clipped to [`min_size`, `size`].
        """
        members = self._slots[: self._filled]
        if members.size < 2:
            return self.size
        error = ks_statistic(members[0::2], members[1::2]) / 2
        return int(np.clip(np.ceil(members.size * (error / stability) ** 2), self.min_size, self.size))

    def _resize(self, position: int, wanted: int) -> None:
        if self.capacity / 2 < wanted < self.capacity * 2:
            return  # the estimated error is noisy: only a clear difference counts
        rng, members = self.schedule.rng(), self.sample
        if wanted < members.size:
            members = rng.permutation(members)[:wanted]
        self.schedule.size = wanted
        self._slots = np.empty(wanted)
        self._restart(members, position, rng)

    def _restart(self, members: Floats, count: int, rng: np.random.Generator) -> None:
        """Continue from `members`, a uniform sample of `count` values."""
        self._replace(members)
        self.schedule.restart(count, members.size, threshold_after(rng, members.size, count))

    def _merge(self, other: Self) -> None:
        for name in ("expiry", "half_life"):
            if getattr(self, name) is not None:
                raise ValueError(f"reservoirs with {name} cannot be merged: ages in two streams are not comparable")
        rng = self.schedule.rng()
        self._restart(self._union(other, self.capacity, rng), self.count + other.count, rng)
        self.drawn_by_others += other.draws

    def _state(self) -> State:
        return {
            **super()._state(),
            "capacity": self.capacity,
            "born": self._born[: self._filled].copy(),
            **{f"schedule.{name}": value for name, value in self.schedule.state_dict().items()},
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        capacity = int(state["capacity"])
        if not 0 < capacity <= self.size:
            raise ValueError(f"state's capacity must lie in [1, {self.size}], got {capacity}")
        slots = self.size if self.stability is None else capacity
        sample, born = self._sample_of(state, slots), np.asarray(state["born"])
        if born.shape != (sample.size if self.expiry else 0,):
            raise ValueError(f"state's born must have one position per member, got shape {born.shape}")
        schedule, prefix, count = self._new_schedule(), "schedule.", int(state["count"])
        schedule.size, schedule.seed = capacity, int(state["seed"])
        schedule.load_state_dict(
            {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
        )
        if schedule.is_behind(count):
            raise ValueError(f"state's schedule must go on after its count={count} values, got {schedule.origin}")
        self._slots = np.empty(slots)  # once nothing can be refused any more
        super()._load(state)
        self._born[: born.size] = born
        self.schedule = schedule
