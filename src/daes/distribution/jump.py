"""Jump reservoir sampling: a uniform sample that costs next to nothing once the stream is long."""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from daes.distribution.base import Floats, State, check_positive, check_values
from daes.distribution.drift import ks_statistic
from daes.distribution.reservoir import SampleEstimator
from daes.distribution.schedule import (
    Acceptances,
    DecaySchedule,
    ExactSchedule,
    PaperSchedule,
    Schedule,
    threshold_after,
)

Skip = Literal["exact", "paper"]


class JumpReservoir(SampleEstimator):
    """Jump reservoir sampling (`JRS` in the paper): draw the gap to the next accepted value, skip what lies between.

    `skip="exact"` is Li's Algorithm L: every value seen so far is a member with probability exactly m/t.
    `skip="paper"` is the published rule, kept to reproduce the paper: it over-represents the first m values 1.5 times.
    Both use two random numbers an acceptance, m·(1 + ln(t/m)) acceptances in all.

    The same values and seed give the same sample, bit for bit, however the stream is cut into batches.

    A reservoir may adapt to drift, by one of:

    - `expiry=n`: at every n-th value, discard the members older than n values and reset the index. The sample is
      then uniform over the last n to 2n values.
    - `half_life=h`: a value of age a (in values of this stream) is a member with probability proportional to 2^(−a/h).

    and it may choose its size: with `stability=ε`, whenever the stream has doubled, the rank error of the sample is
    read off the disagreement of its two halves, and the number of slots is set between `min_size` and `size` to make
    that error about ε. A feature with few distinct values needs few slots; where the error is too large the sample
    grows again as the stream goes on. (The choice looks at the sample, so uniformity is then exact given the size up
    to that choice.)

    Args:
        size: the number m of slots (with `stability`: at most).
        skip: the rule, "exact" or "paper".
        seed: where the random numbers start. Give reservoirs that will be merged different seeds.
        tolerance: how far a rank may lag behind the sample before it is put in order again (0: never).
        expiry: age in values at which members are discarded.
        half_life: age in values at which a member is half as likely as a new one.
        stability: wanted rank error.
        min_size: the least number of slots with `stability`.

    >>> reservoir = JumpReservoir(size=1000, seed=0)
    >>> for batch in np.split(np.arange(100_000.0), 10):
    ...     reservoir.update(batch)
    >>> reservoir.count, reservoir.sample.size
    (100000, 1000)
    >>> bool(abs(reservoir.quantile(0.5) - 50_000) < 5_000)
    True
    """

    _settings: ClassVar[tuple[str, ...]] = ("size", "skip", "expiry", "half_life", "stability")

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
        if skip not in ("exact", "paper"):
            raise ValueError(f"skip must be 'exact' or 'paper', got {skip!r}")
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
        self.min_size = min(min_size, self.size)
        self.schedule = self._new_schedule()
        self._drawn_by_others = 0
        self._born = np.empty(self.size if expiry else 0, np.int64)  # the position of each member
        self._window_start = 0

    def _new_schedule(self) -> Schedule:
        if self.half_life is not None:
            return DecaySchedule(self.size, self.half_life, self.seed)
        return (ExactSchedule if self.skip == "exact" else PaperSchedule)(self.size, self.seed)

    @property
    def draws(self) -> int:
        """How many random numbers the sample has used, those of merged reservoirs included."""
        return self.schedule.draws + self._drawn_by_others

    @property
    def capacity(self) -> int:
        """The number of slots at present: `size`, unless `stability` chose fewer or a short `half_life` needs fewer."""
        return self.schedule.size

    @property
    def nbytes(self) -> int:
        """Memory of the sample."""
        return self._slots.nbytes + self._born.nbytes

    def warm_start(self, history: ArrayLike, count: int | None = None) -> Self:
        """Fill an empty reservoir from historical data, to spare the stream a cold start.

        `count` says how many values of the stream the history shall stand for: all of them by default, fewer to let the
        stream outweigh it sooner, more if the history is itself a sample. Later values enter with probability m/(count
        + t).
        """
        if self.count:
            raise ValueError(f"warm_start needs an empty reservoir; it has seen {self.count} values")
        if self.expiry is not None or self.half_life is not None:
            raise ValueError("warm_start does not go with expiry or half_life: the age of the history is not known")
        values = check_values(history)
        finite = values[np.isfinite(values)]
        kept = min(finite.size, self.capacity)
        count = finite.size if count is None else count
        if not kept:
            raise ValueError(f"history must hold at least one finite value; none of {values.size} is")
        if count < kept:
            raise ValueError(f"count must be at least the {kept} members kept, got {count}")
        rng = self.schedule.rng()
        self._replace(finite if kept == finite.size else rng.choice(finite, kept, replace=False))
        self.skipped = values.size - finite.size
        self.advance(count, float(finite.min()), float(finite.max()))
        self.schedule.restart(count, kept, threshold_after(rng, kept, count))
        return self

    def accept(self, accepted: Acceptances, members: Floats) -> None:
        """Write accepted values to their slots."""
        if self._filled < self.capacity:  # free slots are taken in order
            self._filled = max(self._filled, int(accepted.slots.max()) + 1)
        self._write(accepted.slots, members)
        if self.expiry is not None:
            self._born[accepted.slots] = accepted.positions

    def _absorb(self, values: Floats) -> None:
        start = self.count
        while values.size:
            checkpoint = self._checkpoint(start)
            part = values[: checkpoint - start]
            accepted = self.schedule.take(start + part.size)
            if accepted.slots.size:
                self.accept(accepted, part[accepted.positions - (start + 1)])
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
        if self.expiry is not None:
            self._expire(position)
        elif self.stability is not None:
            self._resize(position, self._stable_size(self.stability))

    def _expire(self, position: int) -> None:
        assert self.expiry is not None
        self._window_start = position - self.expiry
        young = self._born[: self._filled] > self._window_start
        members = self._slots[: self._filled][young]
        self._born[: members.size] = self._born[: self._filled][young]
        self._restart(members, position)

    def _stable_size(self, stability: float) -> int:
        members = self._slots[: self._filled]
        # Slots are alike, so the even and the odd ones are two independent samples: each strays √2 times as far as the
        # whole does, and twice as far from each other.
        error = ks_statistic(members[0::2], members[1::2]) / 2
        return int(np.clip(np.ceil(members.size * (error / stability) ** 2), self.min_size, self.size))

    def _resize(self, position: int, wanted: int) -> None:
        if self.capacity / 2 < wanted < self.capacity * 2:
            return  # the error is itself a noisy reading: only a clear difference counts
        members = self.sample
        if wanted < members.size:
            members = self.schedule.rng().permutation(members)[:wanted]
        self.schedule.size = wanted
        self._slots = np.empty(wanted)
        self._restart(members, position)

    def _restart(self, members: Floats, position: int) -> None:
        threshold = threshold_after(self.schedule.rng(), members.size, position - self._window_start)
        self._replace(members)
        self.schedule.restart(position, members.size, threshold)

    def _merge(self, other: Self) -> None:
        for name in ("expiry", "half_life"):
            if getattr(self, name) is not None:
                raise ValueError(f"reservoirs with {name} cannot be merged: ages in two streams do not compare")
        rng = self.schedule.rng()
        members = self._union(other, self.capacity, rng)
        count = self.count + other.count
        self._replace(members)
        self.schedule.restart(count, members.size, threshold_after(rng, members.size, count))
        self._drawn_by_others += other.draws

    def _state(self) -> State:
        return {
            **super()._state(),
            "capacity": self.capacity,
            "window_start": self._window_start,
            "born": self._born[: self._filled].copy(),
            "drawn_by_others": self._drawn_by_others,
            **{f"schedule.{name}": value for name, value in self.schedule.state_dict().items()},
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        capacity = int(state["capacity"])
        if not 0 < capacity <= self.size:
            raise ValueError(f"state has capacity={capacity}, got {self.size}")
        self._slots = np.empty(self.size if self.stability is None else capacity)
        super()._load(state)
        self._born[: self._filled] = state["born"]
        self._window_start = int(state["window_start"])
        self._drawn_by_others = int(state["drawn_by_others"])
        self.schedule = self._new_schedule()
        self.schedule.size = capacity
        prefix = "schedule."
        self.schedule.load_state_dict(
            {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
        )
