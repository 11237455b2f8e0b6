"""Reservoir sampling: a fixed-size uniform sample of a stream of unknown length."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from daes.distribution.base import (
    DistributionEstimator,
    Floats,
    Ints,
    State,
    check_non_negative,
    check_positive,
    inverted_cdf,
)
from daes.distribution.ordered import OrderedView
from daes.distribution.schedule import bit_generator, smallest_keys
from daes.distribution.tracked import TrackedQuantiles


class SampleEstimator(DistributionEstimator):
    """Base class of reservoirs: a sample in slots, its sorted view, and the law of a merge."""

    _settings: ClassVar[tuple[str, ...]] = ("size",)

    def __init__(self, size: int, seed: int, tolerance: float) -> None:
        super().__init__()
        check_positive(size=size)
        check_non_negative(seed=seed)
        self.size = int(size)
        self.seed = int(seed)
        self._view = OrderedView(tolerance)
        self._slots = np.empty(self.size)
        self._filled = 0
        self._tracked: TrackedQuantiles | None = None

    @property
    def sample(self) -> Floats:
        """The members in slot order, a copy."""
        return self._slots[: self._filled].copy()

    @property
    def tolerance(self) -> float:
        """How far a rank may lag behind the sample, as a fraction."""
        return self._view.tolerance

    @property
    def nbytes(self) -> int:
        """Bytes of the sample."""
        return self._slots.nbytes

    @property
    def due(self) -> bool:
        """Whether quantiles may have changed since they were last read: more was written than `tolerance` allows."""
        return self._view.due(self._filled)

    def ordered(self) -> Floats:
        """The sorted members (up to `tolerance`); must not be written to."""
        return self._view.read(self._slots[: self._filled])

    def quantile(self, levels: ArrayLike) -> Floats:
        wanted = np.asarray(levels, dtype=np.float64)
        if self._tracked is not None and self._tracked.answers(wanted):
            found = self._tracked.read()
            if found is not None:
                return found
        return super().quantile(wanted)

    def _quantile(self, levels: Floats) -> Floats:
        ordered, self._tracked = self.ordered(), None
        if not ordered.size:
            return np.full(levels.shape, np.nan)
        few = levels.ndim == 1 and 0 < levels.size <= TrackedQuantiles.MOST_LEVELS
        if few and self.tolerance * ordered.size >= 1:
            self._tracked = TrackedQuantiles(levels, self.tolerance, ordered, self._slots, self._filled)
        return inverted_cdf(ordered, levels)

    def _cdf(self, values: Floats) -> Floats:
        ordered = self.ordered()
        below: Floats = ordered.searchsorted(values, side="right") / (ordered.size or np.nan)
        return below

    def _write(self, slots: Ints, values: Floats) -> None:
        # Where a slot occurs twice, NumPy keeps the last value written: the latest acceptance.
        if self._tracked is None:
            self._slots[slots] = values
        else:
            once = np.unique(slots)
            removed = self._slots[once[: int(once.searchsorted(self._tracked.size))]]
            self._slots[slots] = values
            self._tracked.replace(self._slots[once], removed)
        self._view.mark(slots)

    def _replace(self, members: Floats) -> None:
        """Replace all members."""
        self._slots[: members.size] = members
        self._filled = members.size
        self._view.reset()
        self._tracked = None

    def _union(self, other: Self, limit: int, rng: np.random.Generator) -> Floats:
        r"""A uniform sample of the union of both streams, of at most m = `limit` values.

        Give every value of both streams an independent uniform key; the sample of n values of which m are kept is the
        values with the m smallest keys. Among the m smallest of all n₁ + n₂ keys, the number K from this stream has the
        hypergeometric law

        $$ P(K = k) = \binom{n_1}{k} \binom{n_2}{m - k} \Big/ \binom{n_1 + n_2}{m}, $$

        and given K the members are a uniform K-subset of this sample and a uniform (m − K)-subset of the other. Only
        the smallest keys are drawn, so n₁ and n₂ may be of any size.

        If one stream keeps fewer than m of its values (`stability` chose fewer slots), keys beyond its last one are
        unknown; the union is then cut there and has fewer than m members.
        """
        mine = smallest_keys(rng, self._filled, self.count)
        theirs = smallest_keys(rng, other._filled, other.count)
        known = min(
            (keys[-1] for keys, whole in ((mine, self.count), (theirs, other.count)) if keys.size < whole),
            default=1.0,
        )
        keys = np.concatenate([mine, theirs])
        keys = np.sort(keys[keys <= known])[:limit]
        from_mine = int(mine.searchsorted(keys[-1], side="right"))
        return np.concatenate(
            [
                rng.permutation(self._slots[: self._filled])[:from_mine],
                rng.permutation(other._slots[: other._filled])[: keys.size - from_mine],
            ]
        )

    def _state(self) -> State:
        return {"seed": self.seed, "sample": self.sample, "order_age": self._view.age}

    def _load(self, state: Mapping[str, Any]) -> None:
        sample = self._sample_of(state, self.size)
        self.seed = int(state["seed"])
        self._replace(sample)
        self._view.reset(int(state["order_age"]))

    @staticmethod
    def _sample_of(state: Mapping[str, Any], slots: int) -> Floats:
        """The sample of a state; raises if it does not fit into the slots."""
        sample, most = np.asarray(state["sample"], dtype=np.float64), min(slots, state["count"])
        if sample.ndim != 1 or sample.size > most:
            raise ValueError(f"state's sample must be 1-D with at most {most} values, got shape {sample.shape}")
        return sample

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, count={self.count})"


class Reservoir(SampleEstimator):
    """Plain reservoir sampling (`RS` in the paper): one random number per value.

    The first m values fill the reservoir. Value t > m draws a uniform integer in [0, t); if it is below m, the value
    overwrites that slot. So it enters with probability m/t and replaces a uniformly chosen member, and every value seen
    so far is a member with probability exactly m/t.

    Algorithm R of J. S. Vitter, "Random Sampling with a Reservoir", ACM TOMS 11(1), 1985.

    Args:
        size: number m of slots.
        seed: of the random numbers.
        tolerance: how far a rank may lag behind the sample before the sample is sorted again (0: not at all).

    >>> reservoir = Reservoir(size=3, seed=0)
    >>> reservoir.update([5.0, 1.0, 4.0, 2.0, 3.0])
    >>> reservoir.sample.size, reservoir.count, reservoir.draws
    (3, 5, 2)
    """

    _statistics: ClassVar[tuple[str, ...]] = (*SampleEstimator._statistics, "drawn", "drawn_by_others", "merges")

    def __init__(self, size: int = 100_000, seed: int = 0, *, tolerance: float = 0.0) -> None:
        super().__init__(size, seed, tolerance)
        self.drawn = 0  # random numbers of this reservoir alone
        self.drawn_by_others = 0
        self.merges = 0
        self._rng = self._generator()

    @property
    def draws(self) -> int:
        """Number of random numbers drawn, including those of merged reservoirs."""
        return self.drawn + self.drawn_by_others

    def _generator(self, *key: int, drawn: int = 0) -> np.random.Generator:
        return np.random.Generator(bit_generator(self.seed, *key).advance(drawn))

    def _absorb(self, values: Floats) -> None:
        start = self.count
        free = min(self.size - self._filled, values.size)
        if free > 0:
            self._write(np.arange(self._filled, self._filled + free), values[:free])
            self._filled += free
            start, values = start + free, values[free:]
        if not values.size:
            return
        self.drawn += values.size
        places = (self._rng.random(values.size) * np.arange(start + 1, start + values.size + 1)).astype(np.int64)
        accepted = np.flatnonzero(places < self.size)
        self._write(places[accepted], values[accepted])

    def _merge(self, other: Self) -> None:
        self.merges += 1
        self._replace(self._union(other, self.size, self._generator(self.merges)))
        self.drawn_by_others += other.draws

    def _load(self, state: Mapping[str, Any]) -> None:
        super()._load(state)
        self._rng = self._generator(drawn=int(state["drawn"]))
