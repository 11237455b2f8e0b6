"""Quantiles of a sample that are read again and again, without sorting it."""

import numpy as np

from daes.distribution.base import Floats, rank_of
from daes.distribution.schedule import Ints
from daes.native import arrays

_UNLIMITED = 2**62


class TrackedQuantiles:
    """Values near some quantiles of a sample, and how many members lie below them, after every write.

    A value stands for a quantile as long as its rank is near enough. When it is not, the value that was as far from it
    in the order of an earlier sample takes its place, and the members below that one are counted. So the sample is not
    sorted again unless its distribution changes.

    Args:
        levels: of the quantiles, (L,).
        tolerance: by which share of the members a rank may be off.
        ordered: the members in ascending order, or nearly all of them.
        members: the members in any order.
    """

    MOST_LEVELS = 32
    """With more levels sorting is as quick."""

    def __init__(self, levels: Floats, tolerance: float, ordered: Floats, members: Floats) -> None:
        self.levels, self.tolerance = levels.copy(), tolerance
        self.size = members.size
        self._ordered = ordered
        self._ranks = rank_of(self.levels, self.size).astype(np.int64)
        self._values = np.empty(levels.size)
        self._up_to, self._below = np.zeros((2, levels.size), np.int64)
        self._tied = np.zeros(levels.size, bool)
        self._place(np.arange(levels.size), self._ranks - 1, members)

    def replace(self, added: Floats, removed: Floats) -> None:
        """Members were removed and others added."""
        self.counts += _count_up_to(added, self.points) - _count_up_to(removed, self.points)
        self.size += added.size - removed.size

    def read(self, members: Floats) -> Floats | None:
        """A value for each level with a rank within the tolerance; None if that takes a sorted sample."""
        if self.size != self._size:
            self._ranks = rank_of(self.levels, self.size).astype(np.int64)
            self._set_limits()
        for _ in range(4):
            if (self.counts >= self._least).all() and (self.counts <= self._most).all():
                return self._values.copy()
            self._move(members)
        return None

    def _set_limits(self) -> None:
        """Between which counts the values stand: enough members up to each, not too many below it."""
        allowed = int(self.tolerance * self.size)
        below = self._ranks - 1 + allowed
        up_to = np.where(self._tied, _UNLIMITED, below)  # without ties, at most one member is at the value
        self._size = self.size
        self._most = np.concatenate([up_to, below[self._tied]])
        self._least = np.concatenate([self._ranks - allowed, np.full(self._most.size - up_to.size, -1)])

    def _move(self, members: Floats) -> None:
        """Replace the values that are off by more than half of what is allowed."""
        count = self._ranks.size
        self._up_to = self.counts[:count].copy()
        self._below = self._up_to.copy()  # at most
        self._below[self._tied] = self.counts[count:]
        off = np.maximum(self._ranks - self._up_to, 0) + np.minimum(self._ranks - 1 - self._below, 0)
        which = np.flatnonzero(np.abs(off) > self.tolerance * self.size / 2)
        steps = np.rint(off[which] * (self._ordered.size / self.size)).astype(np.int64)
        places = self._ordered.searchsorted(self._values[which]) + steps
        self._place(which, np.clip(places, 0, self._ordered.size - 1), members)

    def _place(self, which: Ints, places: Ints, members: Floats) -> None:
        """Take the values at these places of the old order for some of the levels."""
        ordered, last = self._ordered, self._ordered.size - 1
        values = ordered[places]
        tied = (places > 0) & (ordered[np.maximum(places - 1, 0)] == values)
        tied |= (places < last) & (ordered[np.minimum(places + 1, last)] == values)
        found = _count_up_to(members, np.concatenate([values, _before(values[tied])]))
        self._values[which], self._tied[which] = values, tied
        self._up_to[which], self._below[which[tied]] = found[: which.size], found[which.size :]
        self.points = np.concatenate([self._values, _before(self._values[self._tied])])
        self.counts = np.concatenate([self._up_to, self._below[self._tied]])
        self._set_limits()


def _before(values: Floats) -> Floats:
    """The largest numbers below the values."""
    return np.nextafter(values, -np.inf)


def _count_up_to(values: Floats, points: Floats) -> Ints:
    if arrays.serves():
        return arrays.count_up_to(values, points)
    found: Ints = np.sort(values).searchsorted(points, side="right")
    return found
