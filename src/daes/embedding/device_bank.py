"""Reservoirs that live on the accelerator, so that observing a batch never stalls it."""

from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from daes.distribution import JumpReservoir, ReservoirBank
from daes.distribution.schedule import Schedule

_MOST_BATCHES = 16


class DeviceBank:
    """The reservoirs of a `ReservoirBank` as tensors on a device: the same samples, bit for bit, without a stall.

    When a value is accepted is decided ahead of the stream, so the host can ship the schedule before it is needed. The
    device finds each value's position in its feature's stream (a running count of the finite ones), looks it up in the
    schedule and writes it to its slot. Shapes never depend on the data and nothing is read back.

    The host does not know the counts, only that they cannot exceed the rows it sent, which bounds what it must ship.
    The sample is put in order again when a feature without missing values would have passed `tolerance`, and every 16
    batches at the latest: so the tolerance holds for features whose share of missing values is steady.

    `load` takes over from a bank and `unload` gives back to it, which does read the device.

    **Shape.** `update` takes (B, q) on the device; `quantile` takes levels (L,) and gives (q, L); `count`, `minimum`
    and `maximum` are (q,) tensors.

    Args:
        bank: the bank to take over from; its features must follow one schedule (`DeviceBank.fits`).
        device: where the tensors shall be.
        dtype: the precision of the sample, that of the values.
    """

    def __init__(self, bank: ReservoirBank, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        if not self.fits(bank):
            raise ValueError("bank must hold reservoirs that follow one schedule and do not adapt")
        self.size = bank.size
        self.tolerance = bank.estimators[0].tolerance
        self._seed, self._skip = bank.estimators[0].seed, bank.estimators[0].skip
        self.device, self.dtype = device, dtype
        self.load(bank)

    @staticmethod
    def fits(bank: Any) -> TypeGuard[ReservoirBank]:
        """Whether a bank's features follow one schedule, so that the device can."""
        return isinstance(bank, ReservoirBank) and bank.shared and all(r.schedule.pristine for r in bank.estimators)

    def load(self, bank: ReservoirBank) -> None:
        """Take over the bank's samples and counts."""
        slots = np.zeros((bank.num_features, self.size + 1))  # the last column takes what is not accepted
        for feature, reservoir in enumerate(bank.estimators):
            members = reservoir.sample
            slots[feature, : members.size] = members
        self._slots = torch.as_tensor(slots, dtype=self.dtype, device=self.device)
        self.count = torch.as_tensor(bank.count, device=self.device)
        self.skipped = torch.as_tensor(bank.skipped, device=self.device)
        self.minimum = torch.as_tensor(bank.minimum, dtype=self.dtype, device=self.device)
        self.maximum = torch.as_tensor(bank.maximum, dtype=self.dtype, device=self.device)
        self._rows = int(bank.count.max())
        self._schedule = self._new_schedule()
        self._positions = torch.empty(0, dtype=torch.int64, device=self.device)
        self._targets = torch.empty(0, dtype=torch.int64, device=self.device)
        self._entries = np.empty(0, np.int64)
        self._shipped = 0
        self._ordered: Tensor | None = None
        self._writes = -1  # of a feature without missing values, since the sample was put in order
        self._batches = 0
        self._ship(self._rows)

    def unload(self, bank: ReservoirBank) -> None:
        """Give samples and counts back to the bank. Waits for the device."""
        counts, skipped = self.count.tolist(), self.skipped.tolist()
        low, high = self.minimum.double().tolist(), self.maximum.double().tolist()
        slots = self._slots.double().cpu().numpy()
        for feature, reservoir in enumerate(bank.estimators):
            schedule = self._new_schedule()
            schedule.take(counts[feature])
            state = {
                **reservoir.state_dict(),
                "count": counts[feature],
                "skipped": skipped[feature],
                "minimum": low[feature],
                "maximum": high[feature],
                "sample": slots[feature, : min(counts[feature], self.size)],
                **{f"schedule.{name}": value for name, value in schedule.state_dict().items()},
            }
            reservoir.load_state_dict(state)
        bank.share()

    def update(self, values: Tensor) -> None:
        """Observe a batch (B, q) on the device."""
        values = values.to(self.dtype)
        before, self._rows = self._rows, self._rows + values.shape[0]
        self._ship(self._rows)
        first, last = np.searchsorted(self._entries, [before, self._rows], side="right")
        if self._writes >= 0:
            self._writes += int(last - first)
            self._batches += 1
        columns = values.t()
        finite = torch.isfinite(columns)
        positions = finite.cumsum(1) + self.count.unsqueeze(1)
        entry = torch.searchsorted(self._positions, positions).clamp(max=self._positions.numel() - 1)
        accepted = finite & (self._positions[entry] == positions)
        slot = torch.where(accepted, self._targets[entry], self.size)
        # Two values of one batch may go to one slot: the later entry of the schedule wins, on any device.
        latest = torch.full_like(self._slots, -1, dtype=torch.int64).scatter_reduce_(1, slot, entry, "amax")
        slot = torch.where(latest.gather(1, slot) == entry, slot, self.size)
        self._slots.scatter_(1, slot, columns)
        self.count += finite.sum(1)
        self.skipped += (~finite).sum(1)
        low, high = torch.where(finite, columns, torch.inf).amin(1), torch.where(finite, columns, -torch.inf).amax(1)
        # A feature without a finite value has no range: NaN, which fmin and fmax ignore.
        self.minimum = torch.fmin(self.minimum, torch.where(low <= high, low, torch.nan))
        self.maximum = torch.fmax(self.maximum, torch.where(low <= high, high, torch.nan))

    def quantile(self, levels: Tensor) -> Tensor:
        """Quantiles of every feature, (q, L), NaN where nothing was seen."""
        ordered, filled = self._order()
        rank = torch.ceil(levels * filled)
        rank = torch.where((rank - 1) / filled >= levels, rank - 1, rank)
        picked = ordered.gather(1, (rank.long() - 1).clamp(min=0))
        return torch.where(filled > 0, picked, torch.nan)

    @property
    def due(self) -> bool:
        """Whether reading would put the sample in order anew."""
        most = self.tolerance * min(self._rows, self.size)
        return self._writes < 0 or self._writes > most or self._batches >= _MOST_BATCHES

    @property
    def age(self) -> tuple[int, int]:
        """How many writes and batches the order last read lags behind; −1 writes if it was never read."""
        return self._writes, self._batches

    def restore_age(self, age: tuple[int, int]) -> None:
        """Let what was read from an earlier bank of the same sample stand as long as it would have there."""
        self._writes, self._batches = age

    def _order(self) -> tuple[Tensor, Tensor]:
        """The sorted samples (q, m) and how many values of each there were when they were sorted (q, 1)."""
        if self._ordered is None or self.due:
            self._filled = self.count.clamp(max=self.size).unsqueeze(1)
            most = min(self._rows, self.size)  # slots are filled from the first on
            taken = torch.arange(most, device=self.device) < self._filled
            self._ordered = torch.where(taken, self._slots[:, :most], torch.inf).sort(1).values
            self._writes = self._batches = 0
        return self._ordered, self._filled

    def _ship(self, end: int) -> None:
        """See to it that the device has the schedule up to position `end`, and some way on."""
        if end < self._shipped:
            return
        self._shipped = max(2 * end, self.size)
        positions, targets = self._schedule.take(self._shipped)
        self._entries = np.concatenate([self._entries, positions])
        # Copies from pageable memory are staged by the driver before it returns, so the arrays need not outlive this.
        self._positions = torch.cat([self._positions, torch.from_numpy(positions).to(self.device, non_blocking=True)])
        self._targets = torch.cat([self._targets, torch.from_numpy(targets).to(self.device, non_blocking=True)])

    def _new_schedule(self) -> Schedule:
        return JumpReservoir(self.size, self._skip, self._seed).schedule
