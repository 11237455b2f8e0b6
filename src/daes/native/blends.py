"""The layer that embeds numbers (DAES): two neighbouring rows of a table blended, by compiled loops."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from daes import native
from daes.native.tensors import SIDE, by_rows, refuse_second_derivatives

Places = tuple[Tensor, Tensor, Tensor, Tensor]
"""Values (B, q), and the knots (q, K + 1), centre and scale (q,) of their features: of these there is no gradient."""


def _outputs(
    ctx: Any, rows: int, table: Tensor, linear: Tensor | None, with_plain: bool
) -> tuple[Tensor, Tensor | None]:
    """Fields (rows, q, d), and plain inputs (rows, 2q) where they are wanted, or the linear path reads them."""
    q, _, dim = table.shape
    plain = torch.empty(rows, 2 * q) if with_plain or linear is not None else None
    ctx.has_linear = linear is not None
    ctx.set_materialize_grads(False)
    if plain is not None:
        ctx.mark_non_differentiable(plain)
    return torch.empty(rows, q, dim), plain


class _Blend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, places: Places, table: Tensor, linear: Tensor | None, missing: Tensor, with_plain: bool
    ) -> tuple[Tensor, Tensor | None]:
        table, (values, knots, *_) = table.contiguous(), places
        (rows, q), (_, basis, dim) = values.shape, table.shape
        fields, plain = _outputs(ctx, rows, table, linear, with_plain)
        lower, upper = torch.empty(rows, q, dtype=torch.int32), torch.empty(rows, q)
        where = values, rows, q, knots, knots.shape[1] - 1, *places[2:]
        weights = table, basis - 1, dim, linear, missing
        native._library.daes_blend(*where, *weights, fields, q * dim, plain, 2 * q, lower, upper)
        ctx.save_for_backward(plain, lower, upper)
        ctx.shape = table.shape
        return fields, plain

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Any) -> Any:
        refuse_second_derivatives()
        if gradient is None:
            return (None,) * 5
        plain, lower, upper = ctx.saved_tensors
        gradient, stride = by_rows(gradient)
        q, basis, dim = ctx.shape
        table, missing = torch.zeros(ctx.shape), torch.zeros(q, dim)
        linear = torch.zeros(q, dim) if ctx.has_linear else None
        native._library.daes_blend_backward(
            gradient, stride, lower.shape[0], q, basis - 1, dim, plain, 2 * q, lower, upper, table, linear, missing
        )
        return None, table, linear, missing, None


def blend(
    places: Places, table: Tensor, linear: Tensor | None, missing: Tensor, *, with_plain: bool
) -> tuple[Tensor, Tensor | None]:
    """`DAES.outputs`: fields (B, q, d), and scores and standardised values (B, 2q), or None if they are not wanted.

    The vector of a value is blended of two neighbouring rows of its feature in the table (q, M + 1, d), plus its
    standardised value times `linear`.
    """
    fields, plain = _Blend.apply(  # type: ignore[no-untyped-call]
        places, table, linear, missing, with_plain
    )
    return fields, plain if with_plain else None


class _Gate(ctypes.Structure):
    """`gate` of `kernels/gate.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("q", "R", "d", "sums", "contexts")),
        ("beta", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("table", "gates", "order", "ends", "scratch")),
    )


class _GatedBlend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        places: Places,
        vectors: Tensor,
        index: Tensor,
        projection: Tensor,
        beta: float,
        table: Tensor,
        sums: bool,
        linear: Tensor | None,
        missing: Tensor,
        with_plain: bool,
    ) -> tuple[Tensor, Tensor | None]:
        table, projection, (values, knots, *_) = table.contiguous(), projection.flatten(0, 1), places
        (rows, q), (_, basis, dim), contexts = values.shape, table.shape, vectors.shape[0]
        blocks = -(-rows // SIDE)
        gates = torch.empty(contexts, q * basis)
        torch.mm(vectors, projection.t(), out=gates)
        order, ends = torch.empty(rows, dtype=torch.int32), torch.empty(contexts, dtype=torch.int32)
        lower, upper = torch.empty(blocks, q, SIDE, dtype=torch.int32), torch.empty(blocks, q, SIDE)
        fields, plain = _outputs(ctx, rows, table, linear, with_plain)
        scratch = torch.empty(q, basis + sums, dim)
        gate = ctypes.byref(_gate(table, gates, order, ends, scratch, beta))
        where = values, rows, knots, knots.shape[1] - 1, *places[2:]
        native._library.daes_gated_blend(gate, index, *where, linear, missing, fields, plain, lower, upper)
        ctx.save_for_backward(vectors, projection, table, gates, order, ends, plain, lower, upper)
        ctx.beta, ctx.scratch = beta, scratch
        return fields, plain

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: Any) -> Any:
        refuse_second_derivatives()
        if gradient is None:
            return (None,) * 10
        vectors, projection, table, gates, order, ends, plain, lower, upper = ctx.saved_tensors
        gradient, stride = by_rows(gradient)
        to_table, to_logits = torch.zeros_like(table), torch.empty_like(gates)
        missing = torch.zeros(table.shape[0], table.shape[2])
        linear = torch.zeros_like(missing) if ctx.has_linear else None
        gate = ctypes.byref(_gate(table, gates, order, ends, ctx.scratch, ctx.beta))
        native._library.daes_gated_blend_backward(
            gate, gradient, stride, plain, lower, upper, to_table, to_logits, linear, missing
        )
        to_vectors = to_logits @ projection
        to_projection = (to_logits.t() @ vectors).view(*table.shape[:2], -1)
        return None, to_vectors, None, to_projection, None, to_table, None, linear, missing, None


def _gate(table: Tensor, gates: Tensor, order: Tensor, ends: Tensor, scratch: Tensor, beta: float) -> _Gate:
    pointers = [one.data_ptr() for one in (table, gates, order, ends, scratch)]
    return _Gate(*table.shape, scratch.shape[1] - table.shape[1], ends.shape[0], beta, *pointers)


def gated_blend(
    places: Places,
    context: tuple[Tensor, Tensor],
    projection: Tensor,
    beta: float,
    table: Tensor,
    linear: Tensor | None,
    missing: Tensor,
    *,
    sums: bool,
    with_plain: bool,
) -> tuple[Tensor, Tensor | None]:
    """`blend` of tables that a gate makes for contexts: vectors e (contexts, c), and that of each row (B,).

    Rows of the table (q, R, d) are multiplied by β·sigmoid(W e) + (1 − β), W (q, R, c); with `sums` values are blended
    of their sums from 0 on, R + 1 rows.
    """
    vectors, index = context
    vectors = vectors.to(table.dtype)  # within autocast they may be of another one
    fields, plain = _GatedBlend.apply(  # type: ignore[no-untyped-call]
        places, vectors, index, projection, beta, table, sums, linear, missing, with_plain
    )
    return fields, plain if with_plain else None
