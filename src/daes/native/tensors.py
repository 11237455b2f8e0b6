"""The loops of `kernels.c` on tensors."""

import ctypes
from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native


def serves(*tensors: Tensor | None) -> bool:
    """Whether compiled loops may be used: they are there, the tensors lie in memory row by row, nothing is traced.

    What they write into is of torch's default type.
    """
    if native._library is None or torch.compiler.is_compiling() or torch.get_default_dtype() != torch.float32:
        return False
    for one in tensors:  # noqa: SIM110 (several times as quick as `all`, for every part of every step)
        if one is not None and not (one.is_cpu and one.is_contiguous()):
            return False
    return True


def within(rows: Tensor, limit: int) -> bool:
    """Whether all numbers of rows are of rows that there are: at least 0, below the limit."""
    return bool(native._library.daes_within(rows.data_ptr(), rows.numel(), limit))


def hash_rows(ids: Tensor, sizes: Tensor, offsets: Tensor) -> Tensor:
    """`CategoricalEmbedding.rows` of hashed ids (B, p)."""
    rows = torch.empty_like(ids)
    native._library.daes_hash_rows(
        ids.data_ptr(), sizes.data_ptr(), offsets.data_ptr(), ids.shape[0], ids.shape[1], rows.data_ptr()
    )
    return rows


def refuse_second_derivatives() -> None:
    """Called in a backward, which is recorded itself only where it is to be differentiated again."""
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
        native._library.daes_look_up(table.data_ptr(), places.data_ptr(), places.numel(), 1, dim, out.data_ptr(), dim)
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
    gradient, stride = _by_rows(gradient)
    rows, fields, dim = gradient.shape
    distinct, sums = torch.empty(2 * rows * fields, dtype=torch.int64), torch.empty(rows * fields, dim)
    found = native._library.daes_add_up(
        gradient.data_ptr(),
        stride,
        places.data_ptr(),
        rows,
        fields,
        dim,
        len(slots),
        slots.data_ptr(),
        distinct.data_ptr(),
        sums.data_ptr(),
    )
    return distinct[:found], sums[:found]


def _by_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """The tensor (B, n, d), each row of which lies in memory as a whole, and how far apart the rows are."""
    if tensor.stride(2) != 1 or tensor.stride(1) != tensor.shape[2]:
        tensor = tensor.contiguous()
    return tensor, tensor.stride(0)


def look_up(table: Tensor, places: Tensor, slots: Tensor) -> Tensor:
    """`F.embedding(places, table, sparse=True)` with a gradient that is summed up; `slots` are -1, one a row."""
    found: Tensor = _LookUp.apply(table, places, slots)  # type: ignore[no-untyped-call]
    return found


def adagrad_rows(table: Tensor, sums: Tensor, rows: Tensor, gradient: Tensor, rate: float, eps: float) -> None:
    """Adagrad on the rows (n,) of a table by their gradients (n, d)."""
    native._library.daes_adagrad_rows(
        table.data_ptr(),
        sums.data_ptr(),
        rows.data_ptr(),
        gradient.data_ptr(),
        rows.shape[0],
        table.shape[1],
        rate,
        eps,
    )


def norm(tensors: Sequence[Tensor]) -> float:
    """The Euclidean norm of all numbers of these tensors."""
    count = len(tensors)
    pointers = (ctypes.c_void_p * count)(*[one.data_ptr() for one in tensors])
    sizes = (ctypes.c_int64 * count)(*[one.numel() for one in tensors])
    squares: float = native._library.daes_squares(pointers, sizes, count)
    return sqrt(squares)


def evidence(
    numbers: Tensor,
    rows: Tensor,
    edges: Tensor,
    bins: int,
    number_counts: Tensor,
    row_counts: Tensor,
    prior: float,
    strength: float,
) -> Tensor:
    """`EvidenceInputs.forward` of numbers (B, q) and rows (B, p), without pairs."""
    count, q, p = rows.shape[0], numbers.shape[1], rows.shape[1]
    odds, out = torch.empty(q, bins + 1), torch.empty(count, q + 2 * p)
    native._library.daes_evidence(
        numbers.data_ptr(),
        rows.data_ptr(),
        count,
        q,
        p,
        edges.data_ptr(),
        bins,
        number_counts.data_ptr(),
        row_counts.data_ptr(),
        prior,
        strength,
        odds.data_ptr(),
        out.data_ptr(),
    )
    return out


def count(
    numbers: Tensor | None,
    rows: Tensor | None,
    labels: Tensor,
    edges: Tensor,
    bins: int,
    total: Tensor,
    number_counts: Tensor,
    row_counts: Tensor,
) -> None:
    """Add labelled rows to the total and the counts of numbers and of table rows; None for what is not counted."""
    native._library.daes_count(
        None if numbers is None else numbers.data_ptr(),
        None if rows is None else rows.data_ptr(),
        labels.data_ptr(),
        labels.shape[0],
        0 if numbers is None else numbers.shape[1],
        0 if rows is None else rows.shape[1],
        edges.data_ptr(),
        bins,
        total.data_ptr(),
        number_counts.data_ptr(),
        row_counts.data_ptr(),
    )


def recall(
    numbers: Tensor,
    rows: Tensor,
    edges: Tensor,
    bins: int,
    errors: Tensor,
    now: int,
    half_life: float,
    shrinkage: float,
) -> tuple[Tensor, Tensor]:
    """`EvidenceInputs.cells` of numbers (B, q) and rows (B, p), and what `RecentErrors` say of them.

    `shrinkage` is a·p̄·(1 − p̄).
    """
    count, q, p = rows.shape[0], numbers.shape[1], rows.shape[1]
    cells, z = torch.empty(count, 1 + q + p, dtype=torch.int64), torch.empty(count, 1 + q + p)
    native._library.daes_recall(
        numbers.data_ptr(),
        rows.data_ptr(),
        count,
        q,
        p,
        edges.data_ptr(),
        bins,
        errors.data_ptr(),
        now,
        half_life,
        shrinkage,
        cells.data_ptr(),
        z.data_ptr(),
    )
    return cells, z


def note(cells: Tensor, labels: Tensor, logits: Tensor, errors: Tensor, clock: Tensor, half_life: float) -> None:
    """`RecentErrors.update`."""
    native._library.daes_note(
        cells.data_ptr(),
        *cells.shape,
        labels.data_ptr(),
        logits.data_ptr(),
        errors.data_ptr(),
        clock.data_ptr(),
        half_life,
    )


def keep(
    numbers: Tensor,
    rows: Tensor,
    labels: Tensor,
    positions: NDArray[np.int64],
    targets: NDArray[np.int64],
    seen: int,
    sample: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Put the rows that are accepted after `seen` others into the slots `targets` of a sample of rows."""
    native._library.daes_keep(
        numbers.data_ptr(),
        rows.data_ptr(),
        labels.data_ptr(),
        labels.shape[0],
        numbers.shape[1],
        rows.shape[1],
        positions.ctypes.data,
        targets.ctypes.data,
        positions.size,
        seen,
        *[one.data_ptr() for one in sample],
    )


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        knots: Tensor,
        centre: Tensor,
        scale: Tensor,
        index: Tensor | None,
        table: Tensor,
        linear: Tensor | None,
        missing: Tensor,
        with_plain: bool,
    ) -> tuple[Tensor, Tensor | None]:
        table = table.contiguous()
        (rows, q), (basis, dim) = values.shape, table.shape[-2:]
        fields = torch.empty(rows, q, dim)
        plain = torch.empty(rows, 2 * q) if with_plain or linear is not None else None
        lower, upper = torch.empty(rows, q, dtype=torch.int32), torch.empty(rows, q)
        native._library.daes_blend(
            values.data_ptr(),
            rows,
            q,
            knots.data_ptr(),
            knots.shape[1] - 1,
            centre.data_ptr(),
            scale.data_ptr(),
            None if index is None else index.data_ptr(),
            table.data_ptr(),
            basis - 1,
            dim,
            None if linear is None else linear.data_ptr(),
            missing.data_ptr(),
            fields.data_ptr(),
            q * dim,
            None if plain is None else plain.data_ptr(),
            2 * q,
            lower.data_ptr(),
            upper.data_ptr(),
        )
        ctx.save_for_backward(plain, lower, upper, index)
        ctx.shape, ctx.has_linear = table.shape, linear is not None
        ctx.set_materialize_grads(False)
        if plain is not None:
            ctx.mark_non_differentiable(plain)
        return fields, plain

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Any) -> Any:
        refuse_second_derivatives()
        if gradient is None:
            return (None,) * 9
        plain, lower, upper, index = ctx.saved_tensors
        gradient, stride = _by_rows(gradient)
        q, basis, dim = ctx.shape[-3:]
        table, missing = torch.zeros(ctx.shape), torch.zeros(q, dim)
        linear = torch.zeros(q, dim) if ctx.has_linear else None
        native._library.daes_blend_backward(
            gradient.data_ptr(),
            stride,
            lower.shape[0],
            q,
            None if index is None else index.data_ptr(),
            basis - 1,
            dim,
            None if plain is None else plain.data_ptr(),
            2 * q,
            lower.data_ptr(),
            upper.data_ptr(),
            table.data_ptr(),
            None if linear is None else linear.data_ptr(),
            missing.data_ptr(),
        )
        return None, None, None, None, None, table, linear, missing, None


def blend(
    values: Tensor,
    knots: Tensor,
    centre: Tensor,
    scale: Tensor,
    index: Tensor | None,
    table: Tensor,
    linear: Tensor | None,
    missing: Tensor,
    *,
    with_plain: bool,
) -> tuple[Tensor, Tensor | None]:
    """`DAES.outputs`: fields (B, q, d), and scores and standardised values (B, 2q), or None if they are not wanted.

    The vector of a value is blended of two neighbouring rows of its feature in the table (q, M + 1, d), or in that of
    its context `index` (B,) out of (contexts, q, M + 1, d), plus its standardised value times `linear`.
    """
    fields, plain = _Blend.apply(  # type: ignore[no-untyped-call]
        values, knots, centre, scale, index, table, linear, missing, with_plain
    )
    return fields, plain if with_plain else None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, factors: Tensor, sums: bool) -> Tensor:
        table, factors = table.contiguous(), factors.contiguous()
        ctx.save_for_backward(table, factors)
        ctx.sums = sums
        (q, rows, dim), contexts = table.shape, factors.shape[0]
        out = torch.empty(contexts, q, rows + sums, dim)
        native._library.daes_gate(table.data_ptr(), factors.data_ptr(), contexts, q, rows, dim, sums, out.data_ptr())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        refuse_second_derivatives()
        table, factors = ctx.saved_tensors
        gradient = gradient.contiguous()
        to_table, to_factors, scratch = torch.zeros_like(table), torch.empty_like(factors), torch.empty(table.shape[2])
        native._library.daes_gate_backward(
            gradient.data_ptr(),
            table.data_ptr(),
            factors.data_ptr(),
            factors.shape[0],
            *table.shape,
            ctx.sums,
            scratch.data_ptr(),
            to_table.data_ptr(),
            to_factors.data_ptr(),
        )
        return to_table, to_factors, None


def gated(table: Tensor, factors: Tensor, *, sums: bool) -> Tensor:
    """Tables of contexts: table (q, M, d) times factors (contexts, q, M); with `sums` their prefix sums from 0 on."""
    factors = factors.to(table.dtype)  # within autocast they are of another one
    found: Tensor = _Gated.apply(table, factors, sums)  # type: ignore[no-untyped-call]
    return found


class Writes:
    """What was written into samples of q features since they were last in order, and what it replaced."""

    ROOM = 4096
    """Writes noted for each feature."""

    def __init__(self, num_features: int) -> None:
        self._noted = np.empty((2, num_features, self.ROOM), np.float32)
        self._scratch = np.empty(2 * self.ROOM, np.int64)
        self.added, self.removed = (part.ctypes.data for part in self._noted)

    def refresh(
        self,
        features: NDArray[np.int64],
        ordered: NDArray[np.float32],
        rows: NDArray[np.int64],
        count: Tensor,
        pending: Tensor,
        levels: NDArray[np.float64],
        knots: tuple[Tensor, Tensor, Tensor],
    ) -> None:
        """Inner knots, centre and scale of some features, from sorted samples and pending writes.

        The samples are rows of `ordered` (q + 1, m + ROOM), in the order of `rows` (q + 1,); the last one is free.
        """
        inner = knots[0].shape[1] - 2
        native._library.daes_refresh(
            features.ctypes.data,
            features.size,
            ordered.ctypes.data,
            rows.ctypes.data,
            rows.size - 1,
            ordered.shape[1],
            ordered.shape[1] - self.ROOM,
            count.data_ptr(),
            pending.data_ptr(),
            self.added,
            self.removed,
            self.ROOM,
            self._scratch.ctypes.data,
            levels.ctypes.data,
            inner + 1,
            levels.size - inner,
            *[one.data_ptr() for one in knots],
        )


def observe(
    values: Tensor,
    features: NDArray[np.int64],
    positions: NDArray[np.int64],
    targets: NDArray[np.int64],
    slots: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    knots: Tensor,
    *,
    ends: bool,
    tolerance: float,
    writes: Writes,
) -> NDArray[np.int64]:
    """Values (B, q) into the slots (q, m + 1) of the features (n,) that follow one schedule of acceptances.

    `positions` and `targets` are those of the acceptances, ascending; `statistics` are count, skipped, pending, minimum
    and maximum (q,). With `ends` the outer knots follow. Returns the features whose knots are to be refreshed.
    """
    due = np.empty(features.size, np.int64)
    found = native._library.daes_observe(
        values.data_ptr(),
        values.shape[0],
        values.shape[1],
        features.ctypes.data,
        features.size,
        positions.ctypes.data,
        targets.ctypes.data,
        positions.size,
        slots.data_ptr(),
        slots.shape[1] - 1,
        *[one.data_ptr() for one in statistics],
        knots.data_ptr(),
        knots.shape[1] - 1,
        ends,
        tolerance,
        writes.added,
        writes.removed,
        writes.ROOM,
        due.ctypes.data,
    )
    return due[:found]
