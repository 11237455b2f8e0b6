"""The compiled loops on tensors."""

import ctypes
from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native

SIDE = 64
"""Rows that loops work on at a time: `SIDE` of `kernels/places.h`."""


def serves(*tensors: Tensor | None) -> bool:
    """Whether compiled loops may be used: they exist, the tensors are contiguous, and nothing is traced.

    Their results have torch's default type and are on its default device.
    """
    if native._library is None or torch.compiler.is_compiling() or torch.get_default_dtype() != torch.float32:
        return False
    if _is_watched():
        return False
    for one in tensors:  # noqa: SIM110 (several times as quick as `all`, for every part of every step)
        if one is not None and not (one.is_cpu and one.is_contiguous()):
            return False
    return True


def _is_watched() -> bool:
    """Whether torch's functions do more than compute on the CPU: they are traced, faked or transformed.

    The loops would not be seen, or would write to the memory of tensors that have none.
    """
    modes, tracing = torch._C._len_torch_dispatch_stack(), torch._C._get_tracing_state() is not None
    if modes or tracing or torch._C._are_functorch_transforms_active():
        return True
    return torch._C._len_torch_function_stack() > 0 and torch.get_default_device().type != "cpu"


def within(rows: Tensor, limit: int) -> bool:
    """Whether all row numbers are valid: at least 0 and below the limit."""
    return bool(native._library.daes_within(rows, rows.numel(), limit))


def hash_rows(ids: Tensor, sizes: Tensor, offsets: Tensor) -> Tensor:
    """`CategoricalEmbedding.rows` of hashed ids (B, p)."""
    rows = torch.empty_like(ids)
    native._library.daes_hash_rows(ids, sizes, offsets, ids.shape[0], ids.shape[1], rows)
    return rows


def refuse_second_derivatives() -> None:
    """Raise an error in a backward pass that is itself recorded, to be differentiated again."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "compiled loops have no second derivatives: set DAES_NATIVE=0 in the environment to have them"
        )


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(places, slots)
        ctx.shape = table.shape
        dim = table.shape[1]
        out = torch.empty(*places.shape, dim)
        native._library.daes_look_up(table, places, places.numel(), 1, dim, out, dim)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        refuse_second_derivatives()
        places, slots = ctx.saved_tensors
        rows, sums = sum_rows(gradient, places, slots)
        sparse = torch.sparse_coo_tensor(rows.unsqueeze(0), sums, ctx.shape, is_coalesced=True, check_invariants=False)
        return sparse, None, None


def sum_rows(gradient: Tensor, places: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """The different places (B, p), ascending, and the sum of the gradients (B, p, d) of each; `slots` are -1."""
    gradient, stride = by_rows(gradient)
    rows, fields, dim = gradient.shape
    distinct, sums = torch.empty(2 * rows * fields, dtype=torch.int64), torch.empty(rows * fields, dim)
    found = native._library.daes_add_up(gradient, stride, places, rows, fields, dim, len(slots), slots, distinct, sums)
    return distinct[:found], sums[:found]


def by_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """The tensor (B, n, d) with contiguous rows, and the stride from one to the next."""
    if tensor.stride(2) != 1 or tensor.stride(1) != tensor.shape[2]:
        tensor = tensor.contiguous()
    return tensor, tensor.stride(0)


def look_up(table: Tensor, places: Tensor, slots: Tensor) -> Tensor:
    """`F.embedding(places, table, sparse=True)` with a gradient that is summed up; `slots` are -1, one per row."""
    found: Tensor = _LookUp.apply(table, places, slots)  # type: ignore[no-untyped-call]
    return found


def adagrad_rows(table: Tensor, sums: Tensor, rows: Tensor, gradient: Tensor, rate: float, eps: float) -> None:
    """Adagrad on the rows (n,) of a table by their gradients (n, d)."""
    native._library.daes_adagrad_rows(table, sums, rows, gradient, rows.shape[0], table.shape[1], rate, eps)


def pack(
    rows: Tensor, values: Tensor, factor: float, owners: int, each: int, ends: NDArray[np.int64], out: Tensor
) -> None:
    """Rows (n,) of a table and their values (n, d) times a factor, as entries (d + 2,) behind those of their owners.

    Row i is of owner i // each, or i % owners if `each` is 0. Entries are written to `out`
    from `ends` (owners,) on, which are advanced.
    """
    native._library.daes_pack(rows, values, *values.shape, factor, owners, each, ends, out)


def add_entries(messages: Sequence[Tensor], dim: int, first: int, slots: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of entries of `pack`, less `first`, and the sums of their values (m, dim); `slots` are -1."""
    counts = (ctypes.c_int64 * len(messages))(*[len(one) // (dim + 2) for one in messages])
    pointers = (ctypes.c_void_p * len(messages))(*[one.data_ptr() for one in messages])
    rows, sums = torch.empty(sum(counts), dtype=torch.int64), torch.empty(sum(counts), dim)
    found = native._library.daes_add_entries(pointers, counts, len(messages), dim, first, slots, rows, sums)
    return rows[:found], sums[:found]


def norm(tensors: Sequence[Tensor]) -> float:
    """The Euclidean norm of all numbers of these tensors."""
    count = len(tensors)
    pointers = (ctypes.c_void_p * count)(*[one.data_ptr() for one in tensors])
    sizes = (ctypes.c_int64 * count)(*[one.numel() for one in tensors])
    squares: float = native._library.daes_squares(pointers, sizes, count)
    return sqrt(squares)


def cross_entropy(logits: Tensor, label: Tensor, weight: Tensor | None) -> float:
    """`CTRModel.cross_entropy` of at least one row."""
    loss: float = native._library.daes_loss(logits, label, weight, logits.shape[0])
    return loss


class _Reservoirs(ctypes.Structure):
    """`reservoirs` of `kernels/reservoirs.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("q", "size", "K", "ends", "room", "least", "most", "part", "parts")),
        ("tolerance", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("slots", "count", "skipped", "pending", "minimum", "maximum", "knots")),
        ("added", ctypes.c_void_p),
        ("removed", ctypes.c_void_p),
    )


class Reservoirs:
    """The samples of q features, and what was written into them since they were last sorted.

    Args:
        slots: (q, m + 1).
        statistics: count, skipped, pending, minimum and maximum, (q,).
        knots: (q, K + 1).
        ends: whether the outer knots follow.
        tolerance: part of a sample that may change before knots are to be refreshed.
        part: with (r, n), features r, r + n, … are observed here; there must be some.
    """

    ROOM = 16_384
    """Writes noted for each feature."""

    def __init__(
        self,
        slots: Tensor,
        statistics: Sequence[Tensor],
        knots: Tensor,
        *,
        ends: bool,
        tolerance: float,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self._tensors, (features, size) = (slots, *statistics, knots), slots.shape
        self._noted = np.empty((2, features, self.ROOM), np.float32)
        self._changes, self._due = np.empty(4 * self.ROOM, np.int64), np.empty(features, np.int64)
        count = statistics[0][part[0] :: part[1]]
        self._all = _Reservoirs(
            features,
            size - 1,
            knots.shape[1] - 1,
            ends,
            self.ROOM,
            int(count.min()),
            int(count.max()),
            *part,
            tolerance,
            *[one.data_ptr() for one in self._tensors],
            *[part.ctypes.data for part in self._noted],
        )
        self._address = ctypes.addressof(self._all)

    @property
    def counts(self) -> tuple[int, int]:
        """The smallest and the largest of the counts of values seen."""
        return self._all.least, self._all.most

    def observe(
        self,
        values: Tensor,
        features: NDArray[np.int64],
        positions: NDArray[np.int64],
        targets: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Values (B, q) into the slots of the features (n,) that follow one schedule of acceptances.

        `positions` and `targets` are those of the acceptances, ascending. Returns the features whose knots are to be
        refreshed.
        """
        if not features.size:
            return self._due[:0]
        found = native._library.daes_observe(
            self._address, values, len(values), features, len(features), positions, targets, len(positions), self._due
        )
        return self._due[:found]

    def refresh(
        self,
        features: NDArray[np.int64],
        ordered: NDArray[np.float32],
        rows: NDArray[np.int64],
        levels: NDArray[np.float64],
        centre: Tensor,
        scale: Tensor,
    ) -> None:
        """Inner knots, centre and scale of some features, from sorted samples and pending writes.

        The samples are rows of `ordered` (q + 1, m + ROOM), in the order of `rows` (q + 1,); the last one is free.
        """
        all_, inner = self._all, self._all.K - 1
        written = all_.size, all_.count, all_.pending, all_.added, all_.removed, self.ROOM, self._changes
        quantiles = levels, inner + 1, levels.size - inner, all_.knots, centre, scale
        samples = ordered, rows, len(rows) - 1, ordered.shape[1]
        native._library.daes_refresh(features, len(features), *samples, *written, *quantiles)
