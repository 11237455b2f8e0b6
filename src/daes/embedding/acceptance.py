"""The acceptances of a schedule ahead of the stream, looked up by stream position on the host or on a device."""

import numpy as np
import torch
from torch import Tensor

from daes.distribution.base import Ints
from daes.distribution.schedule import Acceptances, Schedule

_NEVER = np.iinfo(np.int64).max

_CAPACITY = 8
"""Entries on a device per slot of the reservoir; the first t rows of a stream need 1 + log(t / slots) of them."""

_PADDING = (_NEVER, 0, _NEVER)
"""Entries behind the last acceptance on a device, which no position reaches, so that every search ends at one."""


class AcceptanceTable:
    """The acceptances of a schedule that several features follow, each at its own position.

    A feature with missing values falls behind the others on the same schedule. The table keeps the acceptances between
    the feature farthest behind and the one farthest ahead.

    Args:
        schedule: source of the acceptances, used by this table only.
        start: no acceptance at or before this position will be requested.
    """

    def __init__(self, schedule: Schedule, start: int) -> None:
        self._schedule = schedule
        self._taken = start
        schedule.take(start)
        self._table = Acceptances(np.empty(0, np.int64), np.empty(0, np.int64))
        self.on_device: list[Tensor] = []
        """The tensors that `to_device` last returned."""
        self._sent_to = 0

    def between(self, first: int, last: int) -> Acceptances:
        """The acceptances at positions first + 1 … last."""
        self._take(last)
        positions, slots = self._table
        if not positions.size or positions[-1] <= first or positions[0] > last:  # usually saves the search
            return Acceptances(positions[:0], slots[:0])
        begin, end = positions.searchsorted([first, last], side="right")
        return Acceptances(positions[begin:end], slots[begin:end])

    def reaching(self, first: int, last: int) -> Acceptances:
        """At least the acceptances at positions first + 1 … last; none before them may be requested later."""
        if last > self._taken:
            self.forget(first)
            self._take(last)
        return self._table

    def forget(self, position: int) -> None:
        """Drop the acceptances up to this position, which may not be requested later."""
        positions, slots = self._table
        if positions.size and positions[0] <= position:
            begin = int(positions.searchsorted(position, side="right"))
            self._table = Acceptances(positions[begin:], slots[begin:])

    def slots_of(self, positions: Tensor, valid: Tensor, ends: Tensor, end: int, scratch: int) -> Tensor:
        """The slot of each value, on the device of `positions`; `scratch` for a value that is not accepted.

        If two values of a batch go to one slot, only the later one is accepted: a device may write them in any order.

        **Shape.** positions and valid (q, B), ends (q, 1): each feature's position after the batch → (q, B).

        Args:
            end: a position that no feature has passed yet.
        """
        table, slots, overwritten = self.to_device(end, positions.device)
        entry = torch.searchsorted(table, positions)
        accepted = valid & (table[entry] == positions) & (overwritten[entry] > ends)
        return torch.where(accepted, slots[entry], scratch)

    def to_device(self, end: int, device: torch.device) -> list[Tensor]:
        """On a device: positions, slots, and the position at which each slot is overwritten next, up to `end`.

        The tensors have capacity for a hundred million rows of a stream and keep their addresses until then.
        """
        if not self.on_device or end > self._sent_to:
            self._take(2 * end)
            self._sent_to = self._taken
            positions, slots = self._table
            arrays = positions, slots, _overwritten_at(positions, slots)
            if not self.on_device or positions.size >= len(self.on_device[0]):
                capacity = max(2 * positions.size, _CAPACITY * self._schedule.size)
                self.on_device = [torch.full((capacity,), padding, device=device) for padding in _PADDING]
            for tensor, array, padding in zip(self.on_device, arrays, _PADDING, strict=True):
                tensor[array.size :] = padding  # there may have been more entries before some were dropped
                # The driver stages copies from pageable memory before it returns: the arrays need not outlive this.
                tensor[: array.size].copy_(torch.from_numpy(array), non_blocking=True)
        return self.on_device

    def _take(self, end: int) -> None:
        if end <= self._taken:
            return
        # An eighth of the stream ahead, so that the table is rarely extended.
        self._taken = max(end + end // 8, self._schedule.size)
        new = self._schedule.take(self._taken)
        if new.slots.size:
            self._table = Acceptances(*(np.concatenate(pair) for pair in zip(self._table, new, strict=True)))


def _overwritten_at(positions: Ints, slots: Ints) -> Ints:
    """For each acceptance, the position of the next one that goes to the same slot; positions ascend."""
    order = _in_order(slots)
    same = slots[order][1:] == slots[order][:-1]
    following = np.full(positions.size, _NEVER)
    following[order[:-1][same]] = positions[order[1:][same]]
    return following


def _in_order(slots: Ints) -> Ints:
    """The order that sorts slots, equal ones as they are; NumPy sorts 16 bits in a quarter of the time of 64."""
    order = np.arange(slots.size)
    for bits in range(0, int(slots.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((slots >> bits).astype(np.uint16)[order], kind="stable")]
    return order
