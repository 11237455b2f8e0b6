"""A uniform sample of labelled rows, as tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from daes import native
from daes.distribution import JumpReservoir
from daes.distribution.schedule import Origin, make_schedule
from daes.embedding.acceptance import AcceptanceTable
from daes.embedding.precision import KeepsPrecision
from daes.native.evidence import SampledRows

UNSCORED = float(np.finfo(np.float32).max)
"""Stands for the logit of a row that has none."""


class RowSample(KeepsPrecision):
    """A uniform sample of the labelled rows of a stream (Li's Algorithm L): every row is in it with probability m/t.

    With each row its logit is kept, `UNSCORED` where none was given.

    Which rows are accepted does not depend on their values, so the host always knows, and nothing is read back from a
    device.

    **Shape.** `numerical` (m, q) with 0 where `missing` (m, q), `categorical` (m, p) int64, `label` (m,) uint8,
    `logit` (m,); of `count` rows seen the first `filled` entries are members.

    Args:
        size: the number m of rows kept.
        num_numerical: columns of numbers.
        num_categorical: columns of categories.
        seed: of the random numbers. Samples that will be merged need different seeds.
    """

    numerical: Tensor
    missing: Tensor
    categorical: Tensor
    label: Tensor
    logit: Tensor
    seen: Tensor
    restart: Tensor
    log_threshold: Tensor

    def __init__(self, size: int, num_numerical: int, num_categorical: int, seed: int = 0) -> None:
        super().__init__()
        self.size = size
        self.seed = seed
        self.register_buffer("numerical", torch.zeros(size, num_numerical, dtype=torch.float32))
        self.register_buffer("missing", torch.zeros(size, num_numerical, dtype=torch.bool))
        self.register_buffer("categorical", torch.zeros(size, num_categorical, dtype=torch.int64))
        self.register_buffer("label", torch.zeros(size, dtype=torch.uint8))
        self.register_buffer("logit", torch.zeros(size, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("restart", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("log_threshold", torch.zeros((), dtype=torch.float64))
        self._host: _Host | None = None

    @property
    def count(self) -> int:
        """Rows seen."""
        return self._known().count

    @property
    def filled(self) -> int:
        """Rows kept at present."""
        return min(self.count, self.size)

    def divide(self) -> list[Tensor]:
        """What several processes that keep one sample write into: all but their own counts of rows.

        These tensors may then be moved, before anything else is done with the sample.
        """
        self._host = None
        return [self.numerical, self.missing, self.categorical, self.label, self.logit]

    def rows(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The rows kept: numbers with NaN = missing, categories, labels, logits."""
        kept = slice(self.filled)
        numbers = self.numerical[kept].masked_fill(self.missing[kept], torch.nan)
        return numbers, self.categorical[kept], self.label[kept], self.logit[kept]

    def update(
        self,
        numerical: Tensor,
        categorical: Tensor,
        label: Tensor,
        logit: Tensor | None = None,
        *,
        part: tuple[int, int] | None = None,
    ) -> None:
        """Observe the next rows: numerical (B, q), categorical (B, p), label and logit (B,).

        With the part (n, m) these are the rows after the n first of m next ones: other processes observe the others, in
        memory that all share, which needs compiled loops.
        """
        host, rows = self._known(), label.shape[0] if part is None else part[1]
        start, table = host.count, host.table
        host.count += rows
        if host.compiled is not None and self._fits(numerical, categorical, label, logit):
            host.compiled.keep(numerical, categorical, label, logit, *table.reaching(start, start + rows), part)
            return
        if part is not None:
            raise ValueError(
                "several processes keep one sample only in float32, on the CPU, with the compiled loops (python -m "
                "daes.native)"
            )
        self.seen.add_(rows)
        accepted = table.between(start, start + rows)
        table.forget(start + rows)
        if not accepted.slots.size:
            return
        slots, chosen = accepted.slots, accepted.positions - (start + 1)
        if not (slots[1:] > slots[:-1]).all():  # as they are while the sample fills
            # Of several rows for one slot the last one stays: the first of each slot from behind.
            slots, last = np.unique(slots[::-1], return_index=True)
            chosen = chosen[::-1][last]
        where, source = (torch.from_numpy(index.copy()).to(label.device) for index in (slots, chosen))
        numbers = numerical[source].to(self.numerical.dtype)
        self.missing[where] = torch.isnan(numbers)
        self.numerical[where] = numbers.nan_to_num()
        self.categorical[where] = categorical[source].to(self.categorical.dtype)
        self.label[where] = (label[source] > 0).to(torch.uint8)
        self.logit[where] = UNSCORED if logit is None else logit[source].to(self.logit.dtype)

    def _fits(self, numerical: Tensor, categorical: Tensor, label: Tensor, logit: Tensor | None) -> bool:
        """Whether rows have the types and shapes that compiled loops take for granted."""
        rows = len(label)
        return (
            native.serves(numerical, categorical, label, logit)
            and categorical.dtype == torch.int64
            and all(one.dtype == torch.float32 for one in (numerical, label, logit) if one is not None)
            and numerical.shape == (rows, self.numerical.shape[1])
            and categorical.shape == (rows, self.categorical.shape[1])
            and all(one.shape == (rows,) for one in (label, logit) if one is not None)
        )

    def advance(self, rows: int) -> None:
        """The host's part of observing the next rows on a device."""
        host = self._known()
        host.count += rows
        host.table.to_device(host.count, self.label.device)

    @torch.no_grad()
    def update_ahead(self, numerical: Tensor, categorical: Tensor, label: Tensor, logit: Tensor | None = None) -> None:
        """The device's part of observing rows that `advance` was called for: it can be recorded."""
        from daes.embedding.kernels.sampling import keep

        positions, targets, following = self.recorded()
        members = self.numerical, self.missing, self.categorical, self.label, self.logit
        logit = torch.full_like(label, UNSCORED, dtype=torch.float32) if logit is None else logit
        keep(numerical, categorical, label, logit, self.seen, positions, targets, following, *members)
        self.seen += len(label)

    def recorded(self) -> list[Tensor]:
        """Tensors beside the buffers that a recording of `update_ahead` reads."""
        return [] if self._host is None else self._host.table.on_device

    def _known(self) -> "_Host":
        if self._host is None:
            count = int(self.seen)
            buffers = self.numerical, self.missing, self.categorical, self.label, self.logit, self.seen
            table = AcceptanceTable(make_schedule("exact", self.size, self.seed, self._origin()), count)
            compiled = SampledRows(*buffers) if native.serves(*buffers) else None
            self._host = _Host(count, table, compiled)
        return self._host

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        """Add the sample of a disjoint stream: this one becomes a uniform sample of both."""
        if (self.numerical.shape, self.categorical.shape) != (other.numerical.shape, other.categorical.shape):
            raise ValueError("both samples must have the same size and columns to merge")
        mine = self._indices(0)
        mine.merge(other._indices(self.size))
        chosen = torch.from_numpy(mine.sample.astype(np.int64)).to(self.label.device)
        for name in ("numerical", "missing", "categorical", "label", "logit"):
            ours = getattr(self, name)
            ours[: len(chosen)] = torch.cat([ours, getattr(other, name).to(ours)])[chosen]
        *restart, self.log_threshold[...] = mine.schedule.origin
        self.restart.copy_(torch.tensor(restart))
        self.seen.fill_(mine.count)
        self._host = None

    def reset(self) -> None:
        """Drop all rows."""
        for buffer in (self.seen, self.restart, self.log_threshold):
            buffer.zero_()
        self._host = None

    def _indices(self, first: int) -> JumpReservoir:
        """A reservoir of slot numbers in the state of this sample."""
        slots = np.arange(first, first + self.filled, dtype=np.float64)
        return JumpReservoir(self.size, seed=self.seed).restore(slots, self._origin(), self.count)

    def _origin(self) -> Origin:
        generation, position, filled = self.restart.tolist()
        return Origin(generation, position, filled, float(self.log_threshold))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._host = None
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._host = None


@dataclass
class _Host:
    """What the host knows beside the buffers: rows seen, the acceptances ahead, and where compiled loops keep rows."""

    count: int
    table: AcceptanceTable
    compiled: SampledRows | None

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy finds its own
