"""Field-aware modulation: categorical context reweights the encoding of a number.

    gate:  w = β·(v ⊙ sigmoid(W e_f)) + (1 − β)·v               W: (M, c) a feature
    tran:  w = β·sigmoid(reshape(W e_f, M×M) v) + (1 − β)·v     W: (M, M, c) a feature

Neither builds a matrix a sample: where rows share contexts, what depends on the context alone is computed once a
distinct context; where they do not, `tran` sums over the components of v, one at a time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from daes.embedding.base import Context


def gate(weights: Tensor, context: Tensor | Context, projection: Tensor, beta: float) -> Tensor:
    """w = β·(v ⊙ sigmoid(W e_f)) + (1 − β)·v.

    **Shape.** weights v (B, q, M), context (B, c) or `Context` of U vectors, projection W (q, M, c) → (B, q, M).
    """
    vectors = context.vectors if isinstance(context, Context) else context
    features, rows, _ = projection.shape
    opening = torch.sigmoid(F.linear(vectors, projection.flatten(0, 1)))
    factor = (beta * opening + (1.0 - beta)).view(vectors.shape[0], features, rows)
    return weights * (factor[context.index] if isinstance(context, Context) else factor)


def tran(weights: Tensor, context: Tensor | Context, projection: Tensor, beta: float) -> Tensor:
    """w = β·sigmoid(reshape(W e_f, M×M) v) + (1 − β)·v.

    **Shape.** weights v (B, q, M), context (B, c) or `Context` of U vectors, projection W (q, M, M, c) → (B, q, M).
    """
    if isinstance(context, Context):
        if context.vectors.shape[0] * 4 > weights.shape[0]:
            context = context.vectors[context.index]
        else:
            product = _shared_product(weights, context, projection)
    if not isinstance(context, Context):
        if torch.compiler.is_compiling():
            product = torch.einsum("bqn,bc,qmnc->bqm", weights, context, projection)
        else:
            product = _RowwiseProduct.apply(weights, context, projection)  # type: ignore[no-untyped-call]
    return beta * torch.sigmoid(product) + (1.0 - beta) * weights


def _shared_product(weights: Tensor, context: Context, projection: Tensor) -> Tensor:
    """(W e_f) v with the matrices W e_f made once a distinct context, rows of one context multiplied together."""
    features, rows, columns, _ = projection.shape
    matrices = F.linear(context.vectors, projection.flatten(0, 2)).view(-1, features, rows, columns)
    order = torch.argsort(context.index)
    counts = torch.bincount(context.index, minlength=context.vectors.shape[0]).tolist()
    groups = torch.split(weights[order], counts)
    products = [torch.einsum("bqn,qmn->bqm", group, matrix) for group, matrix in zip(groups, matrices, strict=True)]
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel(), device=order.device)
    return torch.cat(products)[back]


class _RowwiseProduct(torch.autograd.Function):
    """(W e_f) v a row, summed over the components of v so that no (B, q, M, M) is ever held, in backward neither."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, context: Tensor, projection: Tensor) -> Tensor:
        ctx.save_for_backward(weights, context, projection)
        features, rows, columns, _ = projection.shape
        total = weights.new_zeros(weights.shape[0], features, rows)
        for column in range(columns):
            part = F.linear(context, projection[:, :, column].flatten(0, 1)).view_as(total)
            total.addcmul_(part, weights[:, :, column, None])
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        weights, context, projection = ctx.saved_tensors
        (gradient,) = gradients
        features, rows, columns, _ = projection.shape
        weights_grad = torch.empty_like(weights) if ctx.needs_input_grad[0] else None
        context_grad = torch.zeros_like(context)
        projection_grad = torch.empty_like(projection)
        for column in range(columns):
            matrix = projection[:, :, column].flatten(0, 1)
            scaled = (gradient * weights[:, :, column, None]).flatten(1)
            context_grad.addmm_(scaled, matrix)
            projection_grad[:, :, column] = (scaled.t() @ context).view(features, rows, -1)
            if weights_grad is not None:
                part = F.linear(context, matrix).view_as(gradient)
                weights_grad[:, :, column] = (gradient * part).sum(-1)
        return weights_grad, context_grad, projection_grad


def pool_context(vectors: Tensor, how: str) -> Tensor:
    """One context vector from the embeddings of several fields: (U, n, d) → (U, d), or (U, n·d) for "concat"."""
    if how == "mean":
        return vectors.mean(1)
    if how == "sum":
        return vectors.sum(1)
    if how == "concat":
        return vectors.flatten(1)
    raise ValueError(f"context_pool must be 'mean', 'sum' or 'concat', however: context_pool={how!r}")
