"""A sorted view of a sample whose slots are overwritten one by one."""

import numpy as np

from daes.distribution.base import Floats, Ints


class OrderedView:
    """Keeps the members of a sample sorted, updating only what changed.

    `mark` records which slots were written. `read` returns the sorted members; up to `tolerance`·n writes may be
    missing from it, which moves no rank by more than `tolerance`. `age` is the number of writes since the last read, −1
    before the first.

    The rank of a value does not depend on its slot: overwritten values are replaced in the sorted array by the new
    ones, and one merging pass (a stable sort of an almost sorted array) restores the order.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must lie in [0, 1), got {tolerance}")
        self.tolerance = tolerance
        self.reset()

    def reset(self, age: int = -1) -> None:
        """Drop the order, since all members were replaced; `age` is that of the view of the new members."""
        self._ordered: Floats | None = None
        self._seen: Floats | None = None  # the members by slot when they were last sorted
        self._dirty: list[Ints] = []
        self.age = age

    def mark(self, slots: Ints) -> None:
        """Record that these slots were written."""
        if self.age >= 0:
            self.age += slots.size
        if self._ordered is None:
            return
        self._dirty.append(slots)
        if self.age * 2 > self._ordered.size:  # sorting anew is as fast
            self.reset(self.age)

    def due(self, size: int) -> bool:
        """Whether reading `size` members would sort them again."""
        return self.age < 0 or self.age > self.tolerance * size

    def read(self, members: Floats) -> Floats:
        """The sorted members. `members` may have grown since the last read, not shrunk."""
        if self._ordered is None or self.due(members.size):
            self._refresh(members)
        assert self._ordered is not None
        return self._ordered

    def _refresh(self, members: Floats) -> None:
        if self._ordered is None or self._seen is None:
            self._ordered, self._seen = np.sort(members), members.copy()
        else:
            flags = np.zeros(members.size, bool)  # faster than np.unique
            flags[np.concatenate(self._dirty)] = True
            written = np.flatnonzero(flags)
            old = self._ordered.size
            overwritten = written[: int(written.searchsorted(old))]
            fresh = np.sort(members[written])
            ordered = np.concatenate([self._ordered, fresh[overwritten.size :]])
            ordered[_ranks_of(np.sort(self._seen[overwritten]), self._ordered)] = fresh[: overwritten.size]
            ordered.sort(kind="stable")
            if members.size > old:
                self._seen = members.copy()
            else:
                self._seen[written] = members[written]
            self._ordered = ordered
        self._dirty = []
        self.age = 0


def _ranks_of(values: Floats, ordered: Floats) -> Ints:
    """Distinct indices into `ordered` that hold the sorted `values`; equal values have consecutive indices."""
    first = values.searchsorted(values, side="left")
    places: Ints = ordered.searchsorted(values, side="left") + np.arange(values.size) - first
    return places
