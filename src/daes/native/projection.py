"""A first layer that multiplies every different vector of a batch once: `projection` of `kernels/projection.h`."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from daes import native
from daes.native.evidence import Counts
from daes.native.products import floats
from daes.native.tensors import SIDE

_DISTINCT = 0.5
"""The largest part of a batch's ids that may be different: beyond it, rows are multiplied in less time."""
_DENSE = 0.4
"""The largest part of a field's ids that may be different: beyond it, the field of every row is multiplied forward."""
_MEMORY = ("firsts", "vectors", "dense", "weights", "projected", "gram", "rows", "order", "ends")


class _Projection(ctypes.Structure):
    """`projection` of `kernels/projection.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "width", "pairs", "logit", "most")),
        *((name, ctypes.c_void_p) for name in ("columns", *_MEMORY)),
    )


class Projection:
    """Memory for the projected vectors of batches of so many rows.

    Args:
        values: as of `Whole`.
        widths: of the inputs and of all layers.
        counts: what past clicks are counted in.
        rows: of a batch.
    """

    def __init__(self, values: Mapping[str, Any], widths: Sequence[int], counts: Counts, rows: int) -> None:
        self._q, self._p, dim, numbers = values["q"], values["p"], values["d"], values["M"] + 3
        self._rows, hidden = rows, _up(widths[1])
        self._most = int(_DISTINCT * rows * self._p)
        pairs = 0 if values["first_order"] is None else _up(dim)
        self.width = _up(hidden + pairs + 1, 16)
        columns, dense = _columns(values, widths[0], counts), 2 * self._q + counts.q
        vectors = self._q * numbers + self._most
        self.fields = 0, self._q + self._p
        self._firsts = np.zeros(self._q + self._p + 1, np.int64)
        self._kept = {
            "columns": columns,
            "firsts": torch.from_numpy(self._firsts),
            "vectors": floats(vectors, dim + 3),
            "dense": floats(rows, dense),
            "weights": floats(len(columns), self.width),
            "projected": floats(vectors, self.width),
            "gram": floats(self._q, numbers, numbers),
            "rows": floats(rows, self.width),
            "order": torch.zeros(rows * self._p + 8, dtype=torch.int32),
            "ends": torch.empty(vectors, dtype=torch.int32),
        }
        self._projection = _Projection(
            widths[1],
            self.width,
            hidden,
            hidden + pairs,
            max(numbers, int(_DENSE * rows)),
            **{name: one.data_ptr() for name, one in self._kept.items()},
        )
        self.address = ctypes.addressof(self._projection)
        self.rows = self._kept["rows"]
        """Where the gradients of hidden units are expected, in the first columns."""
        self._hidden, self._pairs, self._logit = widths[1], hidden if pairs else 0, hidden + pairs
        self.scratch = floats(2, SIDE, self.width + dim + 3)

    def holds(self, model: int, space: int, ids: int) -> bool:
        """Whether there is memory for this many distinct ids; if so, their fields are known from now on."""
        if ids > self._most:
            return False
        native._library.daes_group(model, space, self.address)
        return True

    def put_around(self, gradient: Tensor, sums: Tensor) -> None:
        """Put the gradients of logits (B,) beside those of hidden units, and of sums (B, d), if there are any."""
        self.rows[:, self._hidden :] = 0
        self.rows[:, self._logit] = gradient
        if self._pairs:
            torch.mul(sums, gradient.unsqueeze(1), out=self.rows[:, self._pairs : self._pairs + sums.shape[1]])

    def halves(self, by_row: int, by_vector: int) -> list[tuple[int, int]]:
        """The fields in two parts of about the same work, as a row and a vector of a field have; all numbers in one."""
        numbers = 3 * self._q + 10  # two vectors of each, and dense inputs
        rows = np.concatenate([np.zeros(self._q), numbers + np.arange(self._p + 1)])
        done = by_row * self._rows * rows + by_vector * self._firsts
        middle = max(self._q, int(np.searchsorted(done, done[-1] / 2)))
        return [(0, middle), (middle, self._q + self._p)]


def _columns(values: Mapping[str, Any], inputs: int, counts: Counts) -> Tensor:
    """Which columns of the first layer are rows of the weights of `projection`; -1 for none."""
    q, p, dim = values["q"], values["p"], values["d"]
    evidence = inputs - counts.q - 2 * counts.ids
    found = torch.full((q + p, dim + 3), -1)
    found[:, dim + 2] = -2
    found[:, :dim] = torch.arange((q + p) * dim).view(q + p, dim)
    if counts.ids:
        found[q:, dim : dim + 2] = evidence + counts.q + torch.arange(2 * p).view(2, p).t()
    plain = evidence - 2 * q + torch.arange(2 * q) if values["plain"] else torch.full((2 * q,), -1)
    return torch.cat([found.flatten(), plain, evidence + torch.arange(counts.q)])


def _up(size: int, step: int = 8) -> int:
    """The next multiple of a step."""
    return -(-size // step) * step
