"""Field-aware modulation: categorical context reweights the encoding of a number.

    gate:  w = β·(v ⊙ sigmoid(W e_f)) + (1 − β)·v               W: (M, c) per feature
    tran:  w = β·sigmoid(reshape(W e_f, M×M) v) + (1 − β)·v     W: (M, M, c) per feature

Neither builds a matrix per row: if rows share contexts, what depends only on the context is computed once per distinct
context; otherwise `tran` sums over the components of v, one at a time. In memory the batch is the last dimension, as in
`daes.embedding.interpolation`.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from daes.choices import check_choice
from daes.embedding.base import Context

CONTEXT_POOLS = ("mean", "sum", "concat")
"""Ways to combine the embeddings of several context fields into one vector."""


def gate(weights: Tensor, context: Tensor | Context, projection: Tensor, beta: float) -> Tensor:
    """w = β·(v ⊙ sigmoid(W e_f)) + (1 − β)·v.

    **Shape.** weights v (B, q, M), context (B, c) or `Context` of U vectors, projection W (q, M, c) → (B, q, M).
    """
    vectors = context.vectors if isinstance(context, Context) else context
    features, rows, _ = projection.shape
    factor = beta * torch.sigmoid(F.linear(projection.flatten(0, 1), vectors)) + (1.0 - beta)
    if isinstance(context, Context):
        factor = factor.index_select(1, context.index)
    return weights * factor.view(features, rows, -1).permute(2, 0, 1)


def tran_matrices(vectors: Tensor, projection: Tensor) -> Tensor:
    """The transposed matrices of `tran`: contexts (U, c), W (q, M, M, c) → reshape(W e_f)ᵀ, (U, q, M, M)."""
    return F.linear(vectors, projection.flatten(0, 2)).view(-1, *projection.shape[:3]).transpose(2, 3)


def tran(weights: Tensor, context: Tensor | Context, projection: Tensor, beta: float) -> Tensor:
    """w = β·sigmoid(reshape(W e_f, M×M) v) + (1 − β)·v.

    **Shape.** weights v (B, q, M), context (B, c) or `Context` of U vectors, projection W (q, M, M, c) → (B, q, M).
    """
    if isinstance(context, Context) and _worth_sharing(context, weights):
        product = _shared_product(weights, context, projection)
    else:
        vectors = context.vectors[context.index] if isinstance(context, Context) else context
        product = _rowwise_product(weights, vectors, projection)
    return beta * torch.sigmoid(product) + (1.0 - beta) * weights


def _worth_sharing(context: Context, weights: Tensor) -> bool:
    # To group the rows by context would stall a device, and a graph cannot.
    if torch.compiler.is_compiling() or weights.device.type != "cpu":
        return False
    return 0 < context.vectors.shape[0] * 4 <= weights.shape[0]


def _shared_product(weights: Tensor, context: Context, projection: Tensor) -> Tensor:
    """(W e_f) v with one matrix W e_f per distinct context, which multiplies all rows of that context together."""
    features, rows, columns, _ = projection.shape
    matrices = tran_matrices(context.vectors, projection).mT.to(weights.dtype)
    order = torch.argsort(context.index)
    counts = torch.bincount(context.index, minlength=context.vectors.shape[0]).tolist()
    ordered = weights.permute(1, 2, 0).flatten(0, 1).index_select(1, order).view(features, columns, -1)
    products = [matrix @ group for matrix, group in zip(matrices, torch.split(ordered, counts, 2), strict=True)]
    product = torch.cat(products, 2).flatten(0, 1).index_select(1, torch.argsort(order))
    return product.view(features, rows, -1).permute(2, 0, 1)


def _rowwise_product(weights: Tensor, context: Tensor, projection: Tensor) -> Tensor:
    """(W e_f) v per row, summed over the components of v, so that no (B, q, M, M) is in memory, nor in backward."""
    features, rows, _, _ = projection.shape
    total = weights.new_zeros(features, rows, weights.shape[0])
    for matrix, weight in zip(projection.unbind(2), weights.permute(1, 2, 0).unbind(1), strict=True):
        part = F.linear(matrix.flatten(0, 1), context).view_as(total)
        total = torch.addcmul(total, part, weight.unsqueeze(1))
    return total.permute(2, 0, 1)


def pool_context(vectors: Tensor, how: str) -> Tensor:
    """One context vector from the embeddings of several fields: (U, n, d) → (U, d), or (U, n·d) for "concat"."""
    check_choice("context_pool", how, CONTEXT_POOLS)
    if how == "concat":
        return vectors.flatten(1)
    return vectors.mean(1) if how == "mean" else vectors.sum(1)
