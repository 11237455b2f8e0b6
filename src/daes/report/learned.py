"""What a model learned about each numerical feature: its embedding along the distribution, the effect of context."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.embedding.categorical import CategoricalEmbedding
from daes.embedding.modulation import pool_context
from daes.embedding.vocabulary import FIRST, MISSING, UNSEEN
from daes.model import CTRModel
from daes.report.evidence import EvidenceCurve, combination_table, evidence_curves
from daes.report.run_record import Floats, RunRecord
from daes.table import Table

LEVELS: Floats = np.arange(41) / 40
"""The quantiles at which a feature is evaluated: from its smallest to its largest value in steps of 2.5 %."""

MOST_RESPONSES = 200
"""Maximum number of features with a computed response: each one costs a pass over all features."""

_CATEGORIES = 8


@dataclass(frozen=True, eq=False)
class Learned:
    """A model at G quantiles of each feature's distribution.

    **Shape.** `values` (q, G): the feature's quantiles at `LEVELS`, NaN for a feature that was never seen. `embedding`
    (q, G, d), None if the method has no vector per feature. `response` (q, G): the predicted probability at each of
    these values, with the other numbers at their medians and every category unknown; `missing_response` (q,): the same
    with this feature missing. Both are NaN for a feature whose response was not computed.
    """

    names: tuple[str, ...]
    values: Floats
    embedding: Floats | None
    response: Floats
    missing_response: Floats

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each feature has any value, (q,)."""
        return np.asarray(np.isfinite(self.values).all(axis=1))


@dataclass(frozen=True, eq=False)
class Modulation:
    """How context changes the encoding.

    **Shape.** C contexts named `labels`; `shift` (q, C, G): the embedding's coordinate on the feature's first principal
    direction, minus its mean over the contexts; `reach` (q,): the mean length of the change by context over the mean
    length of the embedding.
    """

    labels: tuple[str, ...]
    shift: Floats
    reach: Floats


@dataclass(frozen=True, eq=False)
class ModelFindings:
    """What a model learned, or the reason why there is nothing to show."""

    learned: Learned | None = None
    modulation: Modulation | None = None
    evidence: tuple[EvidenceCurve, ...] = ()
    combinations: Table | None = None
    reason: str = ""


def quantile_grid(model: CTRModel, run: RunRecord) -> Floats | None:
    """The values at `LEVELS` of each feature, (q, G), from the method's own knots or the quantiles stored by the run.

    None if there are neither.
    """
    if model.numerical is None:
        return None
    knots = getattr(model.numerical, "knots", None)
    if isinstance(knots, Tensor):
        quantiles = knots.detach().cpu().double().numpy()
        levels = np.linspace(0.0, 1.0, quantiles.shape[1])
    elif run.quantiles is not None:
        levels, quantiles = run.quantiles.levels, run.quantiles.values[-1]
    else:
        return None
    return np.stack([np.interp(LEVELS, levels, feature) for feature in quantiles])


@torch.no_grad()
def evaluate_features(model: CTRModel, values: Floats) -> Learned:
    """Evaluate the model along each feature's values (q, G).

    Memory grows linearly with the features: the response is computed one feature at a time, and only for the
    `MOST_RESPONSES` features whose embeddings vary most along their distributions.
    """
    assert model.numerical is not None
    model.eval()
    features, points = values.shape
    grid = torch.from_numpy(values.T.astype(np.float32)).to(model.device)
    vectors = model.numerical(grid)
    per_feature = vectors.shape[1] == features and model.numerical.num_outputs == features
    embedding = vectors.permute(1, 0, 2).double().cpu().numpy() if per_feature else None

    response = np.full((features, points + 1), np.nan)
    unknown = torch.zeros(points + 1, model.schema.num_categorical, dtype=torch.int64, device=model.device)
    median = grid[points // 2]
    for feature in _most_varied(values, embedding):
        rows = median.repeat(points + 1, 1)
        rows[:points, feature] = grid[:, feature]
        rows[points, feature] = torch.nan
        response[feature] = torch.sigmoid(model(rows, unknown).double()).cpu().numpy()
    return Learned(model.schema.numerical, values, embedding, response[:, :points], response[:, points])


def _most_varied(values: Floats, embedding: Floats | None) -> list[int]:
    """At most `MOST_RESPONSES` seen features, those whose vectors vary most along the distribution first."""
    seen = np.flatnonzero(np.isfinite(values).all(axis=1))
    if embedding is not None:
        variance = embedding[seen].var(axis=1).sum(axis=1)
        seen = seen[np.argsort(-variance, kind="stable")]
    found: list[int] = seen[:MOST_RESPONSES].tolist()
    return found


def read_findings(folder: Path, run: RunRecord) -> ModelFindings:
    """What the saved model of a run learned."""
    if not folder.is_dir():
        return ModelFindings(reason="The model is not in the folder.")
    model = CTRModel.from_pretrained(folder)
    found = ModelFindings(evidence=tuple(evidence_curves(model)), combinations=combination_table(model))
    if model.numerical is None:
        return replace(found, reason="There is no numerical feature.")
    values = quantile_grid(model, run)
    if values is None:
        return replace(found, reason="Neither the method nor the run stored the distribution of the features.")
    return replace(found, learned=evaluate_features(model, values), modulation=evaluate_contexts(model, values))


@torch.no_grad()
def evaluate_contexts(model: CTRModel, values: Floats) -> Modulation | None:
    """Evaluate the encoding in C contexts, one category changed at a time; None for a method without context.

    The contexts of a field are its categories with the longest vectors, which have been learned most, combined with the
    mean vectors of such categories of the other fields. The model knows categories by number only.
    """
    method, table = model.numerical, model.categorical
    if method is None or table is None or not model.context or not method.uses_context:
        return None
    vectors, labels = _contexts(model, table)
    contexts = pool_context(vectors, getattr(method, "context_pool", "mean"))
    grid = torch.from_numpy(values.T.astype(np.float32)).to(model.device)

    def encoded(context: Tensor) -> Floats:
        """(q, G, d) in one context."""
        found: Floats = method(grid, context.expand(len(grid), *context.shape)).double().permute(1, 0, 2).cpu().numpy()
        return found

    mean = encoded(contexts[0])
    if len(mean) != len(values):
        return None
    # Contexts are encoded one at a time, twice, because the encodings of all would take too much memory.
    for context in contexts[1:]:
        mean += encoded(context)
    mean /= len(labels)
    directions = np.stack([principal_direction(feature) for feature in mean])
    length = np.linalg.norm(mean, axis=-1).mean(axis=-1)
    shift, change = np.empty((len(values), len(labels), len(grid))), np.zeros(len(values))
    for index, context in enumerate(contexts):
        difference = encoded(context) - mean
        shift[:, index] = np.einsum("qgd,qd->qg", difference, directions)
        change += np.linalg.norm(difference, axis=-1).mean(axis=-1) / len(labels)
    reach = np.divide(change, length, out=np.zeros_like(change), where=length > 0)
    return Modulation(labels, shift, reach)


def _contexts(model: CTRModel, table: CategoricalEmbedding) -> tuple[Tensor, tuple[str, ...]]:
    """Vectors (C, n, d) of the context fields, and their labels."""
    starts = table._offsets.tolist()
    kept = []
    for name in model.context:
        field = table.names.index(name)
        rows = table.weight[starts[field] : starts[field] + FIRST + table.sizes[field]]
        longest = torch.argsort(rows.norm(dim=1), descending=True, stable=True)[:_CATEGORIES].sort().values
        kept.append((name, longest.tolist(), rows[longest]))
    means = torch.stack([rows.mean(0) for _, _, rows in kept])
    vectors, labels = [], []
    for field, (name, numbers, rows) in enumerate(kept):
        for number, row in zip(numbers, rows, strict=True):
            changed = means.clone()
            changed[field] = row
            vectors.append(changed)
            what = {MISSING: "missing", UNSEEN: "unseen"}.get(number, f"#{number - FIRST}")
            labels.append(f"{name} {what}")
    return torch.stack(vectors), tuple(labels)


def principal_direction(vectors: Floats) -> Floats:
    """The direction along which vectors (G, d) vary most, (d,), pointing from the first towards the last.

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
    """Each feature's coordinate on its first principal direction, centred, and its share of the variance.

    **Shape.** (q, G, d) → (q, G), (q,).
    """
    centred = embedding - embedding.mean(axis=1, keepdims=True)
    directions = np.stack([principal_direction(feature) for feature in embedding])
    coordinates = np.einsum("qgd,qd->qg", centred, directions)
    total = np.square(centred).sum(axis=(1, 2))
    carried = np.square(coordinates).sum(axis=1)
    return coordinates, np.divide(carried, total, out=np.zeros_like(carried), where=total > 0)
