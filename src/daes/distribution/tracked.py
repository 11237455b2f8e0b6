"""Quantiles of a sample that are read repeatedly, without sorting it each time."""

import numpy as np

from daes.distribution.base import Floats, Ints, just_below, rank_of
from daes.native import address, arrays


class TrackedQuantiles:
    """A value close to each of some quantiles of a sample; the number of members below it is updated with every write.

    A value serves as a quantile while its rank is within the tolerance. After that it is replaced: an earlier, sorted
    state of the sample gives the value as many ranks away as are missing, and the members up to it are counted. So the
    sample is sorted again only if its distribution changes.

    Args:
        levels: levels of the quantiles, (L,).
        tolerance: largest rank error, as a fraction of the members.
        ordered: the members, or nearly all of them, in ascending order.
        slots: array whose first `size` entries are the members.
        size: number of members.
    """

    MOST_LEVELS = 32
    """With more levels, sorting is as fast."""

    def __init__(self, levels: Floats, tolerance: float, ordered: Floats, slots: Floats, size: int) -> None:
        self.levels, self.tolerance, self.size = levels.copy(), tolerance, size
        self._ordered, self._slots = ordered, slots
        # One point per level, then the float just below each tied point; and the number of members up to each of these.
        self._points, self._counts = np.empty(2 * levels.size), np.zeros(2 * levels.size, np.int64)
        self._tied = np.zeros(levels.size, bool)
        self.num_points = levels.size
        self._key = levels.tobytes()
        self._addresses: arrays.Addresses | None = None
        self._place(np.arange(levels.size), rank_of(levels, ordered.size).astype(np.int64) - 1)

    def answers(self, levels: Floats) -> bool:
        """Whether these are the levels tracked."""
        return levels.ndim == 1 and levels.tobytes() == self._key

    def replace(self, added: Floats, removed: Floats) -> None:
        """Account for members that were removed and added."""
        points = self._points[: self.num_points]
        self._counts[: self.num_points] += _count_up_to(added, points) - _count_up_to(removed, points)
        self.size += added.size - removed.size

    def read(self) -> Floats | None:
        """A value with a rank within the tolerance for each level; None if the sample must be sorted for that."""
        num = self.levels.size
        if arrays.serves():
            self.num_points = arrays.follow(self.addresses, self.size, self._ordered.size, num, self.tolerance)
            return self._points[:num].copy() if self.num_points else None
        for turn in range(4):
            ranks = self._ranks()
            off = np.maximum(ranks - self._counts[:num], 0) + np.minimum(ranks - 1 - self._below(), 0)
            which = np.flatnonzero(np.abs(off) > int(self.tolerance * self.size))
            if not which.size:
                return self._points[:num].copy()
            self._move(which, off[which], turn)
        return None

    @property
    def addresses(self) -> arrays.Addresses:
        """Addresses of slots, earlier order, levels, ties, points and counts, for compiled loops."""
        if self._addresses is None:
            places = self._slots, self._ordered, self.levels, self._tied, self._points, self._counts
            self._addresses = arrays.Addresses(map(address, places))
        return self._addresses

    def _ranks(self) -> Ints:
        ranks: Ints = rank_of(self.levels, self.size).astype(np.int64)
        return ranks

    def _below(self) -> Ints:
        """Number of members below each point; for a point without ties one too many if it is itself a member."""
        below = self._counts[: self.levels.size].copy()
        below[self._tied] = self._counts[self.levels.size : self.num_points]
        return below

    def _move(self, which: Ints, off: Ints, turn: int) -> None:
        """Replace points whose ranks are off by `off`; steps become smaller with each turn."""
        steps = np.rint(off * (self._ordered.size / self.size) / (1 + turn)).astype(np.int64)
        places = self._ordered.searchsorted(self._points[which]) + steps
        self._place(which, np.clip(places, 0, self._ordered.size - 1))

    def _place(self, which: Ints, places: Ints) -> None:
        """Use the values at these places of the earlier order as the points of some levels."""
        ordered, last, below = self._ordered, self._ordered.size - 1, self._below()
        values = ordered[places]
        tied = (places > 0) & (ordered[np.maximum(places - 1, 0)] == values)
        tied |= (places < last) & (ordered[np.minimum(places + 1, last)] == values)
        found = _count_up_to(self._slots[: self.size], np.concatenate([values, just_below(values[tied])]))
        self._points[which], self._tied[which] = values, tied
        self._counts[which], below[which[tied]] = found[: which.size], found[which.size :]
        behind = slice(self.levels.size, self.levels.size + int(self._tied.sum()))
        self._points[behind] = just_below(self._points[: self.levels.size][self._tied])
        self._counts[behind] = below[self._tied]
        self.num_points = behind.stop


def _count_up_to(values: Floats, points: Floats) -> Ints:
    if arrays.serves():
        return arrays.count_up_to(values, points)
    found: Ints = np.sort(values).searchsorted(points, side="right")
    return found
