"""The acceptances of a schedule that lie ahead, looked up by stream position on the host or on a device."""

import numpy as np
import torch
from torch import Tensor

from daes.distribution.schedule import Acceptances, Ints, Schedule

_NEVER = np.iinfo(np.int64).max

_ROOM = 8
"""Entries on a device per slot of the reservoir, of which the first t rows of a stream need 1 + log(t / slots)."""


class AcceptanceTable:
    """What a schedule accepts after a position that features may reach at different times.

    Features whose values are missing at times are behind the others on the same schedule. The table keeps the
    acceptances between the feature that is farthest behind and the one that is farthest ahead.

    Args:
        schedule: where the acceptances come from; no one else may take from it.
        start: the position before which nothing will be asked for.
    """

    def __init__(self, schedule: Schedule, start: int) -> None:
        self._schedule = schedule
        self._taken = start
        schedule.take(start)
        self._table = Acceptances(np.empty(0, np.int64), np.empty(0, np.int64))
        self._on_device: tuple[Tensor, Tensor, Tensor] | None = None
        self._shipped_to = 0

    def between(self, first: int, last: int) -> Acceptances:
        """The acceptances at positions first + 1 … last."""
        self._take(last)
        positions, slots = self._table
        if not positions.size or positions[-1] <= first or positions[0] > last:
            return Acceptances(positions[:0], slots[:0])
        begin, end = positions.searchsorted([first, last], side="right")
        return Acceptances(positions[begin:end], slots[begin:end])

    def reaching(self, first: int, last: int) -> Acceptances:
        """At least the acceptances at positions first + 1 … last; nothing before them will be asked for any more."""
        if last > self._taken:
            self.forget(first)
            self._take(last)
        return self._table

    def forget(self, position: int) -> None:
        """Nothing at or before this position will be asked for any more."""
        positions, slots = self._table
        if positions.size and positions[0] <= position:
            begin = int(positions.searchsorted(position, side="right"))
            self._table = Acceptances(positions[begin:], slots[begin:])

    def slots_of(self, positions: Tensor, valid: Tensor, ends: Tensor, end: int, scratch: int) -> Tensor:
        """The slots that values at these positions go to, on their device; `scratch` for those that are not accepted.

        Of two values of one batch that go to one slot only the later one is let through: a device may write them in
        any order.

        **Shape.** positions and valid (q, B), ends (q, 1): each feature's position after the batch → (q, B).

        Args:
            end: a position that no feature has passed yet.
        """
        table, slots, overwritten = self.shipped(end, positions.device)
        entry = torch.searchsorted(table, positions)
        accepted = valid & (table[entry] == positions) & (overwritten[entry] > ends)
        return torch.where(accepted, slots[entry], scratch)

    def shipped(self, end: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """On a device: positions, slots, and the position at which each slot is overwritten next, as far as `end`.

        Behind the last acceptance stand entries that no position reaches, so that every search ends at one. There is
        room for a hundred million rows of a stream: until then the tensors stay where they are.
        """
        if self._on_device is None or end > self._shipped_to:
            self._take(2 * end)
            self._shipped_to = self._taken
            positions, slots = self._table
            arrays = positions, slots, _overwritten_at(positions, slots)
            capacity = 0 if self._on_device is None else len(self._on_device[0])
            if positions.size >= capacity:
                capacity = max(2 * positions.size, _ROOM * self._schedule.size)
                self._on_device = tuple(  # type: ignore[assignment]
                    torch.full((capacity,), empty, device=device) for empty in (_NEVER, 0, _NEVER)
                )
            assert self._on_device is not None
            for tensor, array, empty in zip(self._on_device, arrays, (_NEVER, 0, _NEVER), strict=True):
                tensor[array.size :] = empty  # there may have been more entries before, of which some were forgotten
                # The driver stages copies from pageable memory before it returns: the arrays need not outlive this.
                tensor[: array.size].copy_(torch.from_numpy(array), non_blocking=True)
        return self._on_device

    @property
    def on_device(self) -> list[Tensor]:
        """The tensors that `shipped` returned last."""
        return [] if self._on_device is None else list(self._on_device)

    def _take(self, end: int) -> None:
        if end <= self._taken:
            return
        # An eighth of the stream ahead, so that the table is rarely extended.
        self._taken = max(end + end // 8, self._schedule.size)
        new = self._schedule.take(self._taken)
        if new.slots.size:
            self._table = Acceptances(*(np.concatenate(pair) for pair in zip(self._table, new, strict=True)))


def _overwritten_at(positions: Ints, slots: Ints) -> Ints:
    """For each acceptance the position of the next one that goes to the same slot."""
    order = np.lexsort((positions, slots))
    same = slots[order][1:] == slots[order][:-1]
    following = np.full(positions.size, _NEVER)
    following[order[:-1][same]] = positions[order[1:][same]]
    return following
