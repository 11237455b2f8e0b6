"""Reservoir sampling: a fixed-size uniform sample of a stream of unknown length."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from daes.distribution.base import Estimator, Floats, State, check_positive, inverted_cdf
from daes.distribution.ordered import OrderedView
from daes.distribution.schedule import Ints, smallest_keys


class SampleEstimator(Estimator):
    """What reservoirs share: a sample in slots, its order, and the law of a merge."""

    _settings: ClassVar[tuple[str, ...]] = ("size",)

    def __init__(self, size: int, seed: int, tolerance: float) -> None:
        super().__init__()
        check_positive(size=size)
        check_seed(seed)
        self.size = int(size)
        self.seed = int(seed)
        self._view = OrderedView(tolerance)
        self._slots = np.empty(self.size)
        self._filled = 0

    @property
    def sample(self) -> Floats:
        """The members in slot order, a copy."""
        return self._slots[: self._filled].copy()

    @property
    def tolerance(self) -> float:
        """How far a rank may lag behind the sample."""
        return self._view.tolerance

    @property
    def nbytes(self) -> int:
        """Memory of the sample."""
        return self._slots.nbytes

    @property
    def due(self) -> bool:
        """Whether the next read will differ from the last: more was written than `tolerance` lets pass."""
        return self._view.due(self._filled)

    def ordered(self) -> Floats:
        """The sorted members (up to `tolerance`); not to be written to."""
        return self._view.read(self._slots[: self._filled])

    def _quantile(self, levels: Floats) -> Floats:
        return inverted_cdf(self.ordered(), levels)

    def _cdf(self, values: Floats) -> Floats:
        ordered = self.ordered()
        shares: Floats = ordered.searchsorted(values, side="right") / ordered.size
        return shares

    def _write(self, slots: Ints, values: Floats) -> None:
        # Of equal slots NumPy keeps the last value written: the latest acceptance, as it should be.
        self._slots[slots] = values
        self._view.mark(slots)

    def _replace(self, members: Floats) -> None:
        """Put other members in place of all."""
        self._slots[: members.size] = members
        self._filled = members.size
        self._view.reset()

    def _union(self, other: Self, limit: int, rng: np.random.Generator) -> Floats:
        """A uniform sample of both streams, of at most `limit` values.

        Each stream's members are those with the smallest of as many random keys as it had values. The smallest keys of
        both together say how many members come from each (the hypergeometric law); which ones is then a free choice.
        """
        mine = smallest_keys(rng, self._filled, self.count)
        theirs = smallest_keys(rng, other._filled, other.count)
        # A stream that keeps only part of its values knows nothing of keys beyond the last one kept.
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
        sample = np.asarray(state["sample"], dtype=np.float64)
        if sample.ndim != 1 or sample.size > self.size or sample.size > state["count"]:
            raise ValueError(f"state has a sample of shape {sample.shape}, got at most {self.size} values fit")
        self.seed = int(state["seed"])
        self._replace(sample)
        self._view.restore(int(state["order_age"]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, count={self.count})"


class Reservoir(SampleEstimator):
    """Plain reservoir sampling (`RS` in the paper): one random number a value.

    The first m values fill the reservoir. Value t > m draws a uniform place among t; a place below m is the slot it
    overwrites. So it enters with probability m/t and replaces a uniform member, and every value seen so far is a
    member with probability exactly m/t.

    Args:
        size: the number m of slots.
        seed: where the random numbers start.
        tolerance: how far a rank may lag behind the sample before it is put in order again (0: never).

    >>> reservoir = Reservoir(size=3, seed=0)
    >>> reservoir.update([5.0, 1.0, 4.0, 2.0, 3.0])
    >>> reservoir.sample.size, reservoir.count, reservoir.draws
    (3, 5, 2)
    """

    def __init__(self, size: int = 100_000, seed: int = 0, *, tolerance: float = 0.0) -> None:
        super().__init__(size, seed, tolerance)
        self._drawn = 0
        self._drawn_by_others = 0
        self._merges = 0
        self._rng = self._generator()

    @property
    def draws(self) -> int:
        """How many random numbers were drawn, those of merged reservoirs included."""
        return self._drawn + self._drawn_by_others

    def _generator(self, *key: int, drawn: int = 0) -> np.random.Generator:
        bits = np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=key))
        return np.random.Generator(bits.advance(drawn))

    def _absorb(self, values: Floats) -> None:
        start = self.count
        room = min(self.size - self._filled, values.size)
        if room > 0:
            self._write(np.arange(self._filled, self._filled + room), values[:room])
            self._filled += room
            start, values = start + room, values[room:]
        if not values.size:
            return
        self._drawn += values.size
        places = (self._rng.random(values.size) * np.arange(start + 1, start + values.size + 1)).astype(np.int64)
        accepted = np.flatnonzero(places < self.size)
        self._write(places[accepted], values[accepted])

    def _merge(self, other: Self) -> None:
        self._merges += 1
        self._replace(self._union(other, self.size, self._generator(self._merges)))
        self._drawn_by_others += other.draws

    def _state(self) -> State:
        own = {"drawn": self._drawn, "drawn_by_others": self._drawn_by_others, "merges": self._merges}
        return {**super()._state(), **own}

    def _load(self, state: Mapping[str, Any]) -> None:
        super()._load(state)
        self._drawn = int(state["drawn"])
        self._drawn_by_others = int(state["drawn_by_others"])
        self._merges = int(state["merges"])
        self._rng = self._generator(drawn=self._drawn)


def check_seed(seed: int) -> None:
    """A seed must be a whole number, zero or more."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}")
