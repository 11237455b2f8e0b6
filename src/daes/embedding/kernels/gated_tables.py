"""The table of each context under a gate: meta-embeddings times factors, (β·sigmoid(W c) + 1 − β)_i E_i.

A dozen operations of torch on tensors this small take longer to start than to compute. Nothing is added atomically, so
that two runs give the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from daes.embedding.kernels.launching import on_its_device

_BLOCK = 32
_PROGRAMS = 4224


@triton.jit
def _factors(vectors, weight, u, contexts, beta, C: tl.constexpr, CP: tl.constexpr):
    """Vectors of contexts, their factors for one row of a table, and the slope of these."""
    c = tl.arange(0, CP)[None, :]
    v = tl.load(vectors + u[:, None] * C + c, mask=(u < contexts)[:, None] & (c < C), other=0.0)
    sigmoid = tl.sigmoid(tl.sum(v * weight, 1))
    return v, beta * sigmoid + (1.0 - beta), beta * sigmoid * (1.0 - sigmoid)


@triton.jit
def _forward(
    vectors, projection, table, out, contexts, n, beta,
    C: tl.constexpr, CP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    u = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, CP)[None, :]
    d = tl.arange(0, DP)[None, :]
    weight = tl.load(projection + row * C + c, mask=c < C, other=0.0)
    _, factor, _ = _factors(vectors, weight, u, contexts, beta, C, CP)
    vector = factor[:, None] * tl.load(table + row * D + d, mask=d < D, other=0.0)
    tl.store(out + (u[:, None] * n + row) * D + d, vector, mask=(u < contexts)[:, None] & (d < D))


@triton.jit
def _backward(
    gradient, vectors, projection, table, sums, changes, slopes, contexts, n, splits, beta,
    C: tl.constexpr, CP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    split = tl.program_id(1)
    c = tl.arange(0, CP)[None, :]
    d = tl.arange(0, DP)[None, :]
    weight = tl.load(projection + row * C + c, mask=c < C, other=0.0)
    vector = tl.load(table + row * D + d, mask=d < D, other=0.0)
    total = tl.zeros([DP], tl.float32)
    change = tl.zeros([CP], tl.float32)
    for start in range(split * BLOCK, contexts, splits * BLOCK):
        u = (start + tl.arange(0, BLOCK)).to(tl.int64)
        valid = u < contexts
        g = tl.load(gradient + (u[:, None] * n + row) * D + d, mask=valid[:, None] & (d < D), other=0.0)
        v, factor, slope = _factors(vectors, weight, u, contexts, beta, C, CP)
        total += tl.sum(factor[:, None] * g, 0)
        slope = slope * tl.sum(g * vector, 1)
        change += tl.sum(slope[:, None] * v, 0)
        tl.store(slopes + u * n + row, slope, mask=valid)
    tl.store(sums + (split * n + row) * D + tl.arange(0, DP), total, mask=tl.arange(0, DP) < D)
    tl.store(changes + (split * n + row) * C + tl.arange(0, CP), change, mask=tl.arange(0, CP) < C)


@torch.library.custom_op("daes::gate_tables", mutates_args=())
@on_its_device
def gate_tables(vectors: Tensor, projection: Tensor, table: Tensor, beta: float) -> Tensor:
    """The table of each context: (β·sigmoid(W c) + 1 − β)_i E_i.

    **Shape.** vectors (U, c), projection (q, R, c), table (q, R, d) → (U, q, R, d).
    """
    contexts, n = len(vectors), table.shape[0] * table.shape[1]
    out = torch.empty(contexts, *table.shape, dtype=table.dtype, device=table.device)
    if contexts:
        _forward[(n, triton.cdiv(contexts, _BLOCK))](
            vectors.contiguous(), projection.contiguous(), table.contiguous(), out, contexts, n, beta,
            **_shape(projection, table),
        )  # fmt: skip
    return out


@torch.library.custom_op("daes::gate_tables_backward", mutates_args=())
@on_its_device
def gate_tables_backward(
    gradient: Tensor, vectors: Tensor, projection: Tensor, table: Tensor, beta: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of vectors, projection and table."""
    contexts, n, width = len(vectors), table.shape[0] * table.shape[1], projection.shape[2]
    splits = max(1, min(triton.cdiv(contexts, 8 * _BLOCK), _PROGRAMS // n))
    sums = gradient.new_empty(splits, *table.shape)
    changes = gradient.new_empty(splits, *projection.shape)
    slopes = gradient.new_empty(contexts, n)
    _backward[(n, splits)](
        gradient.contiguous(), vectors.contiguous(), projection.contiguous(), table.contiguous(), sums, changes, slopes,
        contexts, n, splits, beta, **_shape(projection, table),
    )  # fmt: skip
    return slopes @ projection.reshape(n, width), _total(changes), _total(sums)


def _total(parts: Tensor) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(0)


@gate_tables.register_fake
def _(vectors, projection, table, *rest):
    return table.new_empty(vectors.shape[0], *table.shape)


@gate_tables_backward.register_fake
def _(gradient, vectors, projection, table, *rest):
    return vectors.new_empty(vectors.shape), projection.new_empty(projection.shape), table.new_empty(table.shape)


def _keep(ctx, inputs, output):
    *tensors, ctx.beta = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, gradient):
    return (*gate_tables_backward(gradient, *ctx.saved_tensors, ctx.beta), None)


gate_tables.register_autograd(_differentiate, setup_context=_keep)


def _shape(projection: Tensor, table: Tensor) -> dict[str, int]:
    width, dim = projection.shape[2], table.shape[2]
    return {
        "C": width,
        "CP": triton.next_power_of_2(width),
        "D": dim,
        "DP": triton.next_power_of_2(dim),
        "BLOCK": _BLOCK,
        "num_warps": 1,
    }
