"""What a model learned about each number: its embedding along the feature's distribution, and what context changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.embedding.modulation import pool_context
from daes.model import CTRModel

Floats = NDArray[np.float64]

LEVELS: Floats = np.arange(41) / 40
"""Where a feature is looked at: its smallest value, each 2.5 % quantile, its largest value."""


@dataclass(frozen=True, eq=False)
class Learned:
    """A model at G places of each feature's distribution.

    **Shape.** `values` (q, G): the feature's quantiles at `LEVELS`, NaN for a feature that was never seen. `embedding`
    (q, G, d), None where the method has no vector a feature. `response` (q, G): the predicted probability with this
    feature there, the other numbers at their medians and every category unknown; `missing_response` (q,): with this
    feature missing.
    """

    names: tuple[str, ...]
    values: Floats
    embedding: Floats | None
    response: Floats
    missing_response: Floats

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Features with any value, (q,)."""
        found: NDArray[np.bool_] = np.isfinite(self.values).all(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Modulation:
    """How context changes the encoding.

    **Shape.** C contexts named `labels`; `shift` (q, C, G): the embedding's coordinate on the feature's first principal
    direction, less its mean over the contexts; `reach` (q,): the mean length of what context changes over the mean
    length of the embedding.
    """

    labels: tuple[str, ...]
    shift: Floats
    reach: Floats


def quantile_grid(model: CTRModel, quantiles: Floats | None = None, levels: Floats | None = None) -> Floats | None:
    """The values at `LEVELS` of each feature, (q, G).

    They are read off `quantiles` (q, L) at `levels` (L,), or else off the knots that the method itself keeps; None
    where there is neither.
    """
    if model.numerical is None:
        return None
    if quantiles is None or levels is None:
        knots = getattr(model.numerical, "knots", None)
        if not isinstance(knots, Tensor):
            return None
        quantiles = knots.detach().cpu().double().numpy()
        levels = np.linspace(0.0, 1.0, quantiles.shape[1])
    return np.stack([np.interp(LEVELS, levels, feature) for feature in quantiles])


@torch.no_grad()
def look(model: CTRModel, values: Floats) -> Learned:
    """Evaluate the model along each feature's values (q, G)."""
    assert model.numerical is not None
    model.eval()
    features, places = values.shape
    grid = torch.from_numpy(values.T.astype(np.float32)).to(model.device)
    vectors = model.numerical(grid)
    per_feature = vectors.shape[1] == features and model.numerical.num_outputs == features
    embedding = vectors.permute(1, 0, 2).double().cpu().numpy() if per_feature else None

    median = grid[places // 2]
    rows = median.repeat(features * (places + 1), 1).view(features, places + 1, features)
    for feature in range(features):
        rows[feature, :places, feature] = grid[:, feature]
        rows[feature, places, feature] = torch.nan
    flat = rows.view(-1, features)
    unknown = torch.zeros(len(flat), model.schema.num_categorical, dtype=torch.int64, device=model.device)
    response = torch.sigmoid(model(flat, unknown).double()).view(features, places + 1).cpu().numpy()
    return Learned(model.schema.numerical, values, embedding, response[:, :places], response[:, places])


@torch.no_grad()
def look_at_contexts(
    model: CTRModel, values: Floats, ids: NDArray[np.int64], labels: Sequence[str]
) -> Modulation | None:
    """Evaluate the encoding in each of C contexts; None for a method that has no context or too few of them.

    **Shape.** values (q, G); ids (C, n), the hashed categories of the n context fields.
    """
    method, table = model.numerical, model.categorical
    if method is None or table is None or not model.context or not method.uses_context or len(ids) < 2:
        return None
    fields = [model.schema.categorical.index(name) for name in model.context]
    rows = torch.zeros(len(ids), model.schema.num_categorical, dtype=torch.int64)
    rows[:, fields] = torch.from_numpy(ids)
    model.eval()
    vectors = table(rows.to(model.device))[:, fields]
    context = pool_context(vectors, getattr(method, "context_pool", "mean"))
    grid = torch.from_numpy(values.T.astype(np.float32)).to(model.device)
    places = len(grid)
    encoded = method(grid.repeat(len(ids), 1), context.repeat_interleave(places, 0))
    if encoded.shape[1] != len(values):
        return None
    found = encoded.view(len(ids), places, len(values), -1).permute(2, 0, 1, 3).double().cpu().numpy()
    mean = found.mean(axis=1, keepdims=True)
    directions = np.stack([principal_direction(feature[0]) for feature in mean])
    length = np.linalg.norm(mean[:, 0], axis=-1).mean(axis=-1)
    change = np.linalg.norm(found - mean, axis=-1).mean(axis=(1, 2))
    reach = np.divide(change, length, out=np.zeros_like(change), where=length > 0)
    return Modulation(tuple(labels), np.einsum("qcgd,qd->qcg", found - mean, directions), reach)


def principal_direction(vectors: Floats) -> Floats:
    """The direction along which vectors (G, d) vary most, (d,), pointing where they go from first to last.

    >>> principal_direction(np.array([[1.0, 0.0], [0.0, 0.0], [-3.0, 0.0]]))
    array([-1.,  0.])
    """
    centred = vectors - vectors.mean(axis=0)
    if not np.isfinite(centred).all() or not centred.any():
        return np.zeros(vectors.shape[1])
    direction: Floats = np.linalg.svd(centred, full_matrices=False)[2][0]
    rise = (vectors[-1] - vectors[0]) @ direction
    sign = np.sign(rise) if abs(rise) > 1e-12 else np.sign(direction[np.argmax(np.abs(direction))])
    return np.asarray(direction * sign + 0.0)


def principal_coordinates(embedding: Floats) -> tuple[Floats, Floats]:
    """Each feature's coordinate on its first principal direction, centred, and the part of the variance it carries.

    **Shape.** (q, G, d) → (q, G), (q,).
    """
    centred = embedding - embedding.mean(axis=1, keepdims=True)
    directions = np.stack([principal_direction(feature) for feature in embedding])
    coordinates = np.einsum("qgd,qd->qg", centred, directions)
    total = np.square(centred).sum(axis=(1, 2))
    carried = np.square(coordinates).sum(axis=1)
    return coordinates, np.divide(carried, total, out=np.zeros_like(carried), where=total > 0)
