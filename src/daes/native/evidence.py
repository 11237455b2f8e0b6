"""Loops that count past clicks, look them up and note errors, on tensors that stay where they are."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native
from daes.native.threads import map_parts

_APART = 16
"""`APART` of `kernels/common.h`."""
_ERRORS = 12
"""The size of `row_errors` of `kernels/count.h`, in numbers of 32 bits."""


class _Cells(ctypes.Structure):
    """`found_cells` of `kernels/cells.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "count", "bins")),
        *((name, ctypes.c_void_p) for name in ("cells", "slots", "values", "odds", "sure", "errors", "sums")),
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
            torch.empty(count + _APART * (numbers + rows.shape[1]), dtype=torch.int32),
            *torch.empty(2, count, dtype=torch.float32).unbind(),
            torch.empty(2 * count, dtype=torch.float32),
            torch.empty(8 * count, dtype=torch.float64),
        )
        self._cells = _Cells(0, 0, 0, *[one.data_ptr() for one in self._memory])
        self.address = ctypes.addressof(self._cells)

    @property
    def ids(self) -> int:
        """The number of distinct rows of the batch that was looked up last."""
        count: int = self._cells.count - self._cells.bins
        return count


class _Evidence(ctypes.Structure):
    """`evidence` of `kernels/cells.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("q", "p", "ids", "bins", "table_rows")),
        *((name, ctypes.c_void_p) for name in ("edges", "total", "number_counts", "row_counts", "errors", "clock")),
        *((name, ctypes.c_void_p) for name in ("combined", "combined_errors", "combined_odds")),
        *((name, ctypes.c_int64) for name in ("num_combined", "combined_cells", "each")),
        ("slots", ctypes.c_void_p),
        ("strength", ctypes.c_double),
        ("half_life", ctypes.c_double),
        ("waiting", ctypes.c_int64),
    )


class Counts:
    """The counts of past clicks, as compiled loops access them.

    Args:
        q: numerical features that are counted.
        bins: of a number.
        table_rows: rows of the categorical table.
        tensors: `edges`, `total`, `number_counts` and `row_counts` of `EvidenceInputs`; `errors` and `clock` of
            `RecentErrors`, and `fields` and `errors` of `Combinations`, or None for each that does not exist.
        p: categorical fields, which are counted if the table of their counts has rows.
        strength: as of `Evidence`.
        half_life: as of `RecentErrors`.
        each: bins of a number that are one value in `Combinations`.
    """

    def __init__(
        self,
        q: int,
        bins: int,
        table_rows: int,
        tensors: Sequence[Tensor | None],
        p: int,
        strength: float,
        half_life: float,
        each: int,
    ) -> None:
        *_, row_counts, _, _, fields, errors = tensors
        self.q = q
        self.ids = p if row_counts is not None and len(row_counts) else 0
        """Categorical fields that are counted."""
        self.num_combined = 0 if fields is None else len(fields)
        """Pairs and triples of fields whose errors are noted."""
        self._slots = torch.full((q * (bins + 1) + table_rows,), -1, dtype=torch.int32)
        self._tensors = list(tensors)
        self._pointers = _pointers(tensors)
        *counted, combined = self._pointers
        frozen = errors is not None and errors.shape[2] == 1
        self._evidence = _Evidence(
            q,
            p,
            bool(self.ids),
            bins,
            table_rows,
            *counted,
            *((None, combined) if frozen else (combined, None)),
            self.num_combined,
            1 if errors is None else errors.shape[1],
            each,
            self._slots.data_ptr(),
            strength,
            half_life,
        )
        self.address = ctypes.addressof(self._evidence)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a model has its own

    @staticmethod
    def serves(q: int, bins: int, table_rows: int, tensors: Sequence[Tensor | None]) -> bool:
        """Whether the tensors are contiguous and have the right types and shapes."""
        *_, row_counts, _, _, _, combined = tensors
        rows = table_rows if row_counts is not None and len(row_counts) else 0
        known: list[tuple[tuple[int, ...], torch.dtype]] = [
            ((q, bins - 1), torch.float32),
            ((2,), torch.float64),
            ((q, bins + 1, 2), torch.float64),
            ((rows, 2), torch.float64),
            ((1 + q * (bins + 1) + rows, 5), torch.float64),
            ((), torch.int64),
        ]
        if combined is not None:
            count, cells, size = combined.shape
            frozen = size == 1
            known += [
                ((count, 3), torch.int64),
                ((count, cells, 1 if frozen else 2), torch.float32 if frozen else torch.float64),
            ]
        return all(
            one is None or (one.shape == shape and one.dtype == kind and native.serves(one))
            for one, (shape, kind) in zip(tensors, known, strict=False)
        )

    def are_in(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether these are the tensors that are counted in, at the same addresses as before."""
        return _pointers(tensors) == self._pointers

    def wait(self, rows: int) -> None:
        """Make errors older by as much as `RecentErrors.waiting`."""
        self._evidence.waiting = rows

    def inputs(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """`EvidenceInputs.forward` of numbers (B, q) and rows (B, p)."""
        return self._look_up(native._library.daes_evidence, numbers, rows, self.q + 2 * self.ids)

    def recall(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """`EvidenceInputs.recent_errors` of numbers (B, q) and rows (B, p)."""
        return self._look_up(native._library.daes_recall, numbers, rows, 2 * (1 + self.q + self.ids))

    def combine(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """z of `Combinations` of numbers (B, q) and rows (B, p)."""
        return self._look_up(native._library.daes_combine, numbers, rows, self.num_combined)

    def values(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """The values of the fields of numbers (B, q) and rows (B, p) in `Combinations`, modulo its cells; int32."""
        count = rows.shape[0]
        found = torch.empty(self.q + self.ids, count, dtype=torch.int32)

        def find(start: int, stop: int) -> None:
            native._library.daes_values(self.address, numbers, rows, count, start, stop, found)

        map_parts(count, find, [(0, count // 2), (count // 2, count)])
        return found.t()

    def _look_up(self, loop: Any, numbers: Tensor, rows: Tensor, width: int) -> Tensor:
        found, out = Found(rows, self.q), torch.empty(rows.shape[0], width)
        loop(self.address, found.address, numbers, rows, rows.shape[0], out)
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
            self.address, where.address, numbers, rows, labels, logits, labels.shape[0], numbers_too, found is not None
        )

    def note(
        self,
        numbers: Tensor,
        rows: Tensor,
        labels: Tensor,
        logits: Tensor | None,
        later: int,
        buffer: Callable[[int, Tensor], Tensor],
    ) -> Tensor:
        """Look up labelled rows, after which `later` ones come, for `count_columns`: (B, …) whole numbers.

        Args:
            buffer: makes a vector of so many numbers of the kind of a tensor.
        """
        count, columns = rows.shape[0], self.q + rows.shape[1]
        width = _ERRORS + 2 * columns
        noted = buffer(count * width, self._slots).view(count, width)
        cells = noted.data_ptr() + 4 * count * _ERRORS
        native._library.daes_note(
            self.address, numbers, rows, labels, logits, count, later, noted, cells, cells + 4 * count * columns
        )
        return noted

    def count_columns(
        self,
        noted: Sequence[Tensor],
        labels: Tensor,
        *,
        scored: bool,
        numbers_too: bool = True,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """Count all rows that several processes noted, one part after the other, with the labels of all.

        With the part (r, n), columns and combinations r, r + n, … are counted; none of them if r is n.
        """
        parts = (_Noted * len(noted))()
        for one, given in zip(parts, noted, strict=True):
            count, width = given.shape
            cells = given.data_ptr() + 4 * count * _ERRORS
            one.rows, one.errors, one.cells = count, given.data_ptr(), cells
            one.values = cells + 2 * count * (width - _ERRORS)
        rows = len(labels)
        distinct, sums = torch.empty(rows, dtype=torch.int64), torch.empty(rows, 8, dtype=torch.float64)
        native._library.daes_count_columns(
            self.address, ctypes.addressof(parts), len(parts), labels, scored, numbers_too, *part, distinct, sums
        )


class _Noted(ctypes.Structure):
    """`noted_rows` of `kernels/count_together.h`."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("errors", "cells", "values")),
    )


def _pointers(tensors: Sequence[Tensor | None]) -> list[int | None]:
    return [None if one is None else one.data_ptr() for one in tensors]


def tally(edges: Tensor, numbers: Tensor, labels: Tensor, columns: tuple[int, int], counts: Tensor) -> None:
    """Count views and clicks of some columns of numbers (B, q) in the bins that edges (q, bins − 1) cut.

    **Shape.** counts (q, bins + 1, 2); columns from the first to below the last.
    """
    native._library.daes_tally(edges, edges.shape[1] + 1, numbers, labels, *numbers.shape, *columns, counts)


class _Sample(ctypes.Structure):
    """`row_sample` of `kernels/choose.h`."""

    _fields_ = (
        ("q", ctypes.c_int64),
        ("p", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("numbers", "missing", "places", "labels", "logits", "seen")),
    )


class SampledRows:
    """A sample of rows, as compiled loops access it.

    Args:
        tensors: `numerical`, `missing`, `categorical`, `label`, `logit` and `seen` of `RowSample`.
    """

    def __init__(self, *tensors: Tensor) -> None:
        self._tensors = tensors
        pointers = [one.data_ptr() for one in tensors]
        self._sample = _Sample(tensors[0].shape[1], tensors[2].shape[1], *pointers)
        self._last = torch.empty(len(tensors[0]), dtype=torch.int32)
        self._address = ctypes.addressof(self._sample)

    def keep(
        self,
        numbers: Tensor,
        rows: Tensor,
        labels: Tensor,
        logits: Tensor | None,
        positions: NDArray[np.int64],
        targets: NDArray[np.int64],
        part: tuple[int, int] | None = None,
    ) -> None:
        """See the next rows, of which those at the `positions` go to the slots `targets`.

        With the part (n, m) these are the rows after the n first of m next ones; other processes see the others.
        """
        others = part or (0, len(labels))
        native._library.daes_keep(
            self._address,
            numbers,
            rows,
            labels,
            logits,
            len(labels),
            *others,
            positions,
            targets,
            len(positions),
            self._last,
        )
