"""Loops of `kernels.c` that count past clicks, look them up and note errors, on tensors that stay where they are."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native
from daes.native.arrays import address


class _Cells(ctypes.Structure):
    """`found_cells` of `kernels.c`."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("bins", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("cells", "slots", "odds", "sure", "errors", "sums")),
    )


class Found:
    """Where a batch is looked up: its rows of the categorical table, and its cells of what past clicks are counted in.

    Args:
        rows: the rows (B, p), or where they are written.
        numbers: how many numbers are counted.
    """

    def __init__(self, rows: Tensor, numbers: int) -> None:
        self.rows = rows
        count = rows.shape[0] * (numbers + rows.shape[1])
        self._memory = (
            torch.empty(2 * count, dtype=torch.int64),
            torch.empty(count, dtype=torch.int32),
            *torch.empty(2, count, dtype=torch.float32).unbind(),
            torch.empty(2 * count, dtype=torch.float32),
            torch.empty(8 * count, dtype=torch.float64),
        )
        self._cells = _Cells(0, 0, *[one.data_ptr() for one in self._memory])
        self.address = ctypes.addressof(self._cells)

    @property
    def ids(self) -> int:
        """How many different rows there are, once a batch was looked up."""
        count: int = self._cells.count - self._cells.bins
        return count


class _Evidence(ctypes.Structure):
    """`evidence` of `kernels.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("q", "p", "ids", "bins", "table_rows")),
        *((name, ctypes.c_void_p) for name in ("edges", "total", "number_counts", "row_counts", "errors", "clock")),
        ("slots", ctypes.c_void_p),
        ("strength", ctypes.c_double),
        ("half_life", ctypes.c_double),
        ("waiting", ctypes.c_int64),
    )


class Counts:
    """What past clicks are counted in, as compiled loops see it.

    Args:
        q: numerical features that are counted.
        p: categorical fields, which are counted if the table of their counts has rows.
        bins: of a number.
        table_rows: rows of the categorical table.
        strength: as of `Evidence`.
        tensors: `edges`, `total`, `number_counts` and `row_counts` of `EvidenceInputs`; then `errors` and `clock` of
            `RecentErrors`, if errors are to be noted.
        half_life: as of `RecentErrors`.
    """

    def __init__(
        self,
        q: int,
        p: int,
        bins: int,
        table_rows: int,
        strength: float,
        tensors: Sequence[Tensor],
        half_life: float = 1.0,
    ) -> None:
        self.q = q
        self.ids = p if len(tensors[3]) else 0
        """Categorical fields that are counted."""
        self._slots = torch.full((q * (bins + 1) + table_rows,), -1, dtype=torch.int32)
        self._tensors = list(tensors)
        self._pointers = [one.data_ptr() for one in tensors]
        errors = [] if len(tensors) > 4 else [None, None]
        self._evidence = _Evidence(
            q,
            p,
            bool(self.ids),
            bins,
            table_rows,
            *self._pointers,
            *errors,
            self._slots.data_ptr(),
            strength,
            half_life,
        )
        self.address = ctypes.addressof(self._evidence)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a model has its own

    def are_in(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these tensors are those that are counted in, and where they were."""
        return [one.data_ptr() for one in tensors] == self._pointers

    def wait(self, rows: int) -> None:
        """Let errors be so much older, as `RecentErrors.waiting` says."""
        self._evidence.waiting = rows

    def inputs(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """`EvidenceInputs.forward` of numbers (B, q) and rows (B, p), without pairs."""
        return self._look_up(native._library.daes_evidence, numbers, rows, self.q + 2 * self.ids)

    def recall(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """`EvidenceInputs.recent_errors` of numbers (B, q) and rows (B, p)."""
        return self._look_up(native._library.daes_recall, numbers, rows, 2 * (1 + self.q + self.ids))

    def _look_up(self, loop: Any, numbers: Tensor, rows: Tensor, width: int) -> Tensor:
        found, out = Found(rows, self.q), torch.empty(rows.shape[0], width)
        loop(self.address, found.address, numbers.data_ptr(), rows.data_ptr(), rows.shape[0], out.data_ptr())
        return out

    def count(
        self,
        numbers: Tensor,
        rows: Tensor,
        labels: Tensor,
        logits: Tensor | None = None,
        found: Found | None = None,
        *,
        numbers_too: bool = True,
    ) -> None:
        """Count labelled rows, and note the errors of their logits. Where they were `found`, they need no search."""
        where = found or Found(rows, self.q)
        native._library.daes_count(
            self.address,
            where.address,
            numbers.data_ptr(),
            rows.data_ptr(),
            labels.data_ptr(),
            None if logits is None else logits.data_ptr(),
            labels.shape[0],
            numbers_too,
            found is not None,
        )


class _Sample(ctypes.Structure):
    """`row_sample` of `kernels.c`."""

    _fields_ = (
        ("q", ctypes.c_int64),
        ("p", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("numbers", "missing", "places", "labels", "seen")),
    )


class SampledRows:
    """A sample of rows, as compiled loops see it.

    Args:
        tensors: `numerical`, `missing`, `categorical`, `label` and `seen` of `RowSample`.
    """

    def __init__(self, *tensors: Tensor) -> None:
        self._tensors = tensors
        pointers = [one.data_ptr() for one in tensors]
        self._sample = _Sample(tensors[0].shape[1], tensors[2].shape[1], *pointers)
        self._address = ctypes.addressof(self._sample)

    def keep(
        self,
        numbers: Tensor,
        rows: Tensor,
        labels: Tensor,
        positions: NDArray[np.int64],
        targets: NDArray[np.int64],
    ) -> None:
        """See the next rows, of which those at the `positions` go to the slots `targets`."""
        count = positions.size
        native._library.daes_keep(
            self._address,
            numbers.data_ptr(),
            rows.data_ptr(),
            labels.data_ptr(),
            labels.shape[0],
            address(positions) if count else None,
            address(targets) if count else None,
            count,
        )
