"""The position of a value among knots, the weights computed from it, and weighted sums of rows of a table.

Knots q_0 ≤ q_1 ≤ … ≤ q_K cut a feature's range. The thermometer vector of x has the components

    v_i = clamp((x − q_i) / (q_{i+1} − q_i), 0, 1)    if q_{i+1} > q_i
    v_i = 1 if x ≥ q_i else 0                         if q_{i+1} = q_i

that is, ones before the bin of x, a fraction in it, zeros after it. Their sum is the coordinate of x, between 0 and K,
and coordinate / K is its rank, the right-continuous CDF at ties.

Weights have the shape (B, q, M). In memory the batch is the last dimension, so that inner loops run over the rows of a
batch and not over ten components: on a CPU that is nearly twice as fast.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from daes.distribution.base import inverted_cdf
from daes.embedding import kernels
from daes.embedding.search import count_below

Basis = Literal["thermometer", "hat"]


def thermometer(values: Tensor, knots: Tensor) -> Tensor:
    """The thermometer vectors of values.

    **Shape.** values (B, q), knots (q, K+1) → (B, q, K), 0 where knots are NaN (nothing observed yet).

    >>> thermometer(torch.tensor([[0.0], [15.0], [99.0]]), torch.tensor([[0.0, 0.0, 10.0, 20.0]]))
    tensor([[[1.0000, 0.0000, 0.0000]],
    <BLANKLINE>
            [[1.0000, 1.0000, 0.5000]],
    <BLANKLINE>
            [[1.0000, 1.0000, 1.0000]]])
    """
    x, edges = values.T.contiguous().unsqueeze(1), knots.unsqueeze(-1)
    # The difference of halves cannot overflow, and halving is exact.
    left = edges[:, :-1] / 2
    width = edges[:, 1:] / 2 - left
    wide = width > 0
    inside = ((x / 2 - left) / torch.where(wide, width, 1.0)).clamp(0.0, 1.0)
    vectors = torch.where(wide, inside, (x >= edges[:, :-1]).to(values.dtype))
    return vectors.permute(2, 0, 1)


def coordinate(values: Tensor, knots: Tensor) -> Tensor:
    """The sum of the thermometer vector, found by search without building it.

    **Shape.** values (B, q), knots (q, K+1) → (B, q), in [0, K]; 0 where knots are NaN.

    >>> coordinate(torch.tensor([[0.0], [15.0], [99.0]]), torch.tensor([[0.0, 0.0, 10.0, 20.0]]))
    tensor([[1.0000],
            [2.5000],
            [3.0000]])
    """
    last = knots.shape[1] - 1
    knots = torch.where(torch.isnan(knots), torch.inf, knots)
    passed = count_below(knots, values, inclusive=True)
    if torch.compiler.is_exporting():
        return _looked_up(passed, values, knots)
    place = (passed - 1).clamp(0, last - 1)
    flat = (place + torch.arange(knots.shape[0], device=knots.device) * (last + 1)).flatten()
    ends = knots.flatten() / 2  # the difference of halves cannot overflow
    left = ends.index_select(0, flat).view(place.shape)
    width = ends.index_select(0, flat + 1).view(place.shape) - left
    inside = (values / 2 - left) / torch.where(width > 0, width, 1.0)
    result = torch.where(passed > last, float(last), place + inside)
    return torch.where(passed == 0, 0.0, result)


def _looked_up(passed: Tensor, values: Tensor, knots: Tensor) -> Tensor:
    """The coordinate of values that have passed `passed` knots, with few operations, which cost most when exported."""
    num_features, last = knots.shape[0], knots.shape[1] - 1
    # Tables by the number of knots passed, 0 to K + 1: the knot on the left, the distance to the next, its coordinate.
    # Before the first and after the last knot, the knot on the left is as large as possible.
    farthest = torch.full_like(knots[:, :1], torch.finfo(knots.dtype).max / 2)
    left = torch.cat([farthest, knots[:, :-1].clamp(max=torch.finfo(knots.dtype).max) / 2, farthest], 1)
    width = knots[:, 1:] / 2 - knots[:, :-1] / 2
    width = torch.nn.functional.pad(torch.where(width > 0, width, 1.0), (1, 1), value=1.0)
    start = torch.arange(-1, last + 1, dtype=knots.dtype, device=knots.device).clamp(min=0).repeat(num_features, 1)
    at = passed + torch.arange(num_features, device=knots.device) * (last + 2)
    inside = (values / 2 - _look_up(left, at)) / _look_up(width, at)
    return _look_up(start, at) + inside.clamp(0.0, 1.0)


def _look_up(table: Tensor, at: Tensor) -> Tensor:
    return torch.nn.functional.embedding(at, table.reshape(-1, 1)).squeeze(-1)


def basis_weights(coordinate: Tensor, num_bins: int, basis: Basis) -> Tensor:
    """The weights of a coordinate in [0, M] on a basis.

    `thermometer`: v_i = clamp(coordinate − i, 0, 1), i < M. `hat`: a local basis of M+1 rows, which interpolates
    linearly between the two nearest, max(0, 1 − |coordinate − i|), i ≤ M. Both span the same piecewise linear functions
    (up to a constant).

    **Shape.** (B, q) → (B, q, M) or (B, q, M+1).
    """
    rows = num_bins if basis == "thermometer" else num_bins + 1
    steps = torch.arange(rows, dtype=coordinate.dtype, device=coordinate.device)
    offsets = coordinate.T.contiguous().unsqueeze(1) - steps.unsqueeze(-1)
    weights = offsets.clamp(0.0, 1.0) if basis == "thermometer" else (1.0 - offsets.abs()).clamp(min=0.0)
    return weights.permute(2, 0, 1)


def weighted_sum(weights: Tensor, table: Tensor) -> Tensor:
    """Σ_i w_i E_i per feature: (B, q, M) and (q, M, d) → (B, q, d), one matrix product per feature.

    In training a product with a two-hot matrix is several times as fast as a look-up of two rows: its backward is a
    product too, whereas that of a look-up scatters.
    """
    if kernels.usable(weights, table) and kernels.fit(table):
        found: Tensor = kernels.mix(weights, table, None, beta=1.0, squash=False)
        return found
    return torch.einsum("bqm,qmd->bqd", weights.to(table.dtype), table)


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


def blend_rows(table: Tensor, basis: Basis) -> Tensor:
    """Rows such that the embedding of a value is a blend of two neighbours: (…, M, d) or (…, M+1, d) → (…, M+1, d).

    For the hat basis these are the meta-embeddings, for the thermometer basis their prefix sums, starting with 0.

    >>> blend_rows(torch.tensor([[1.0], [2.0], [3.0]]), "thermometer").flatten()
    tensor([0., 1., 3., 6.])
    """
    if basis == "hat":
        return table
    return torch.nn.functional.pad(table.cumsum(-2), (0, 0, 1, 0))


def blend(coordinate: Tensor, rows: Tensor) -> Tensor:
    """The blend of the two rows next to each coordinate in [0, M], by look-ups: for exported programs.

    **Shape.** coordinate (B, q), rows (q, M+1, d) of `blend_rows` → (B, q, d).

    >>> blend(torch.tensor([[0.25], [2.0]]), torch.tensor([[[0.0], [1.0], [3.0]]])).flatten()
    tensor([0.2500, 3.0000])
    """
    first = coordinate.long()
    share = coordinate - first
    at = first + torch.arange(rows.shape[0], device=rows.device) * rows.shape[1]
    change = torch.nn.functional.pad(rows.diff(dim=1), (0, 0, 0, 1))
    low, more = (torch.nn.functional.embedding(at, table.flatten(0, 1)) for table in (rows, change))
    return low + share.unsqueeze(-1).to(rows.dtype) * more


def value_at(places: Tensor, knots: Tensor) -> Tensor:
    """The values at these places in [0, K]: the inverse of `coordinate` where that has one, in double precision.

    **Shape.** places (N,), knots (q, K+1) → (q, N).

    >>> value_at(torch.tensor([0.5, 3.0]), torch.tensor([[0.0, 10.0, 20.0, 40.0]]))
    tensor([[ 5., 40.]], dtype=torch.float64)
    """
    left = places.double().floor().clamp(max=knots.shape[1] - 2).long()
    return torch.lerp(knots[:, left].double(), knots[:, left + 1].double(), places.double() - left)


def offline_knots(values: Tensor, num_bins: int) -> Tensor:
    """Smallest value, i/M quantiles and largest value of each feature of a data set: (N, q) → (q, M+1).

    Missing and infinite values are ignored; the knots of a feature without any other value are NaN.
    """
    columns = values.detach().double().cpu().numpy()
    knots = np.full((columns.shape[1], num_bins + 1), np.nan)
    for feature, column in enumerate(columns.T):
        ordered = np.sort(column[np.isfinite(column)])
        if ordered.size:
            knots[feature] = inverted_cdf(ordered, np.arange(num_bins + 1) / num_bins)
    return torch.from_numpy(knots)
