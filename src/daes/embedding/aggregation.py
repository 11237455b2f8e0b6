"""Softmax-weighted sum of meta-embeddings: the last step of several neural methods."""

import torch
from torch import Tensor


def aggregate(scores: Tensor, table: Tensor) -> Tensor:
    """Σ_i softmax_i(scores) E_i per feature.

    The batch is the last dimension of `scores`: on a CPU a softmax over the middle dimension is then more than ten
    times as fast as over a last dimension of size ten.

    **Shape.** scores (q, M, B), table (q, M, d) → (B, q, d), in the dtype of the table.

    >>> aggregate(torch.zeros(1, 2, 3), torch.tensor([[[1.0], [3.0]]])).flatten()
    tensor([2., 2., 2.])
    """
    weights = torch.softmax(scores, 1).to(table.dtype)
    return torch.einsum("qmb,qmd->bqd", weights, table)
