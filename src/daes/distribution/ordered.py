"""A sorted view of a sample whose slots are overwritten now and then."""

import numpy as np

from daes.distribution.base import Floats
from daes.distribution.schedule import Ints


class OrderedView:
    """Keeps the members of a sample in order, redoing only what changed.

    `mark` says which slots were written. `read` gives the sorted members; up to `tolerance`·n writes may still be
    left out, which moves no rank by more than `tolerance`.

    Which slot a value sits in does not matter for its rank: the values that left are struck out of the sorted array,
    the new ones take their places, and one merging pass (a stable sort of an almost sorted array) puts them in order.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must lie in [0, 1), got {tolerance}")
        self.tolerance = tolerance
        self.reset()

    def reset(self) -> None:
        """Forget the order: the sample was replaced as a whole."""
        self._ordered: Floats | None = None
        self._seen: Floats | None = None  # the members as they were when last put in order, by slot
        self._dirty: list[Ints] = []
        self.pending = 0
        self._never_read = True

    @property
    def age(self) -> int:
        """How many writes the order last read lags behind, −1 if it was never read."""
        return -1 if self._never_read else self.pending

    def restore(self, age: int) -> None:
        """Let what was read from an earlier view of the same members stand as long as it would have there."""
        self.reset()
        self._never_read, self.pending = age < 0, max(age, 0)

    def mark(self, slots: Ints) -> None:
        """Say that these slots were written."""
        self.pending += slots.size
        if self._ordered is not None:
            self._dirty.append(slots)

    def due(self, size: int) -> bool:
        """Whether reading `size` members would put them in order anew."""
        return self._never_read or self.pending > self.tolerance * size

    def read(self, members: Floats) -> Floats:
        """The sorted members. `members` may have grown since, never shrunk."""
        if self._ordered is None or self.due(members.size):
            self._refresh(members)
        assert self._ordered is not None
        return self._ordered

    def _refresh(self, members: Floats) -> None:
        if self._ordered is None or self._seen is None or self.pending * 2 > members.size:
            self._ordered, self._seen = np.sort(members), members.copy()
        else:
            flags = np.zeros(members.size, bool)  # quicker than to look for duplicates
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
        self.pending = 0
        self._never_read = False


def _ranks_of(values: Floats, ordered: Floats) -> Ints:
    """Distinct places in `ordered` that hold the sorted `values`, equal values taking consecutive places."""
    first = values.searchsorted(values, side="left")
    places: Ints = ordered.searchsorted(values, side="left") + np.arange(values.size) - first
    return places
