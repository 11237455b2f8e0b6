"""Which columns the predictions of a model depend on: permutation importance on recent rows, and evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daes.metrics import exact_auc
from daes.metrics.base import check_rows
from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.training.scoring import logits

MOST_COLUMNS = 200
"""The largest number of columns that are permuted one by one."""

_CHUNK = 8192


@dataclass(frozen=True)
class ColumnImportance:
    """What the predictions lose without a column.

    Args:
        name: the column.
        kind: "numerical" or "categorical".
        logloss: the rise of LogLoss when the column's values are permuted among the rows; NaN for a column that was
            only permuted together with others.
        error: the standard error of `logloss`.
        auc: the fall of AUC; NaN if it is not defined.
        evidence: how much past clicks say about the column alone: the root mean square of its log odds. None for a
            model that does not count them.
    """

    name: str
    kind: Literal["numerical", "categorical"]
    logloss: float
    error: float
    auc: float
    evidence: float | None = None


@dataclass(frozen=True)
class Importance:
    """The importance of every column, the most important one first.

    Args:
        rows: number of rows scored.
        logloss, auc: of the model on the unchanged rows.
        columns: one entry per column.
    """

    rows: int
    logloss: float
    auc: float
    columns: Sequence[ColumnImportance]


def feature_importance(model: CTRModel, batch: Batch, *, seed: int = 0) -> Importance:
    """Permutation importance of every column, categories included, on labelled rows.

    A column is permuted among the rows, which keeps its distribution but breaks its relation to the label and to the
    other columns, and the rows are scored again. Columns with the same information can replace each other, so that each
    of them has little importance. Of more than `MOST_COLUMNS` columns, only those of the most important groups are
    permuted one by one.

    Args:
        model: a trained model.
        batch: rows with labels, such as the last ones of the stream (`RecentRows`).
        seed: seed of the permutations.

    >>> import torch
    >>> from daes.stream.schema import Schema
    >>> rng = np.random.default_rng(0)
    >>> batch = Batch(rng.normal(size=(2000, 2)).astype(np.float32), np.empty((2000, 0), np.int64))
    >>> batch = Batch(batch.numerical, batch.categorical, (batch.numerical[:, 1] > 0).astype(np.float32))
    >>> _ = torch.manual_seed(0)
    >>> model = CTRModel(Schema("click", ("noise", "signal"), ()), "fe", "lr", dim=2)
    >>> optimizer = torch.optim.Adam(model.parameters(), 0.1)
    >>> for _ in range(20):
    ...     optimizer.zero_grad()
    ...     model.loss(batch).backward()
    ...     optimizer.step()
    >>> [column.name for column in feature_importance(model, batch).columns]
    ['signal', 'noise']
    """
    if batch.label is None or not len(batch):
        raise ValueError(f"batch must have rows with labels, got {len(batch)} rows")
    scored = _ScoredRows(model, batch, seed)
    names = (*model.schema.numerical, *model.schema.categorical)
    evidence = _evidence(model)
    measured = {place: scored.without([place]) for place in _candidates(len(names), scored)}
    columns = []
    for place, name in enumerate(names):
        loss, error, auc = measured.get(place, (np.nan, np.nan, np.nan))
        kind: Literal["numerical", "categorical"] = "numerical" if place < model.schema.num_numerical else "categorical"
        columns.append(ColumnImportance(name, kind, loss, error, auc, evidence.get(name)))
    columns.sort(key=lambda column: -np.nan_to_num(column.logloss, nan=-np.inf))
    return Importance(len(batch), scored.logloss, scored.auc, tuple(columns))


class _ScoredRows:
    """Rows with their scores, and the loss of accuracy when columns are permuted."""

    def __init__(self, model: CTRModel, batch: Batch, seed: int) -> None:
        assert batch.label is not None
        self.model, self.batch, self.label = model, batch, batch.label
        self.random = np.random.default_rng(seed)
        scores = self._scores(batch)
        rows = check_rows(scores, batch.label, batch.weight)
        self.losses, self.weight = rows.losses, rows.weights
        self.logloss = float(np.average(self.losses, weights=self.weight))
        self.auc = exact_auc(scores, batch.label, batch.weight)

    def without(self, columns: Sequence[int]) -> tuple[float, float, float]:
        """The rise of LogLoss, its standard error, and the fall of AUC when these columns are permuted together."""
        order = self.random.permutation(len(self.batch))
        numerical, categorical = self.batch.numerical.copy(), self.batch.categorical.copy()
        first_category = numerical.shape[1]
        for column in columns:
            is_number = column < first_category
            matrix, place = (numerical, column) if is_number else (categorical, column - first_category)
            matrix[:, place] = matrix[order, place]
        scores = self._scores(Batch(numerical, categorical))
        rise = check_rows(scores, self.label, self.batch.weight).losses - self.losses
        mean = float(np.average(rise, weights=self.weight))
        share = self.weight / self.weight.sum()
        error = float(np.sqrt(np.square(share * (rise - mean)).sum()))
        return mean, error, self.auc - exact_auc(scores, self.label, self.batch.weight)

    def _scores(self, batch: Batch) -> NDArray[np.float64]:
        """Logits; 0 for a row that cannot be scored."""
        parts = [logits(self.model, batch[start : start + _CHUNK]) for start in range(0, len(batch), _CHUNK)]
        scores: NDArray[np.float64] = np.nan_to_num(np.concatenate(parts), nan=0.0)
        return scores


def _candidates(columns: int, scored: _ScoredRows) -> list[int]:
    """The columns to permute one by one: all of them, or at most `MOST_COLUMNS`, found by halving.

    The columns are permuted in groups, and the half of the groups with the largest rise of LogLoss is kept.
    """
    places = np.arange(columns)
    while len(places) > MOST_COLUMNS:
        groups = np.array_split(places, max(MOST_COLUMNS // 4, 2))
        groups.sort(key=lambda group: -scored.without(group.tolist())[0])
        places = np.sort(np.concatenate(groups[: len(groups) // 2]))
    found: list[int] = places.tolist()
    return found


def _evidence(model: CTRModel) -> dict[str, float]:
    """How much past clicks say about each column, by name; empty for a model that does not count them."""
    schema, evidence = model.schema, model.evidence
    names = [*(schema.numerical if evidence.options.numbers else ())]
    names += [*(schema.categorical if evidence.options.categories else ())]
    return dict(zip(names, evidence.strength_by_column().tolist(), strict=True))


class RecentRows:
    """A callback of `StreamTrainer` that keeps evenly spaced rows of the last `window` ones, with labels.

    It needs a fixed amount of memory. Give it to the trainer as `extra` too, so that it is in the checkpoints.

    Args:
        columns: features per row; with more columns fewer rows are kept, since importance scores them once per column.
        window: number of last rows to choose from.

    >>> recent = RecentRows(columns=10, window=40_000)
    >>> for start in range(0, 100_000, 1000):
    ...     values = np.arange(start, start + 1000, dtype=np.float32)
    ...     recent.update(Batch(values[:, None], np.empty((1000, 0), np.int64), np.zeros(1000, np.float32)))
    >>> rows = recent.sample().numerical[:, 0]
    >>> len(rows), int(rows[0]), int(rows[-1])
    (1250, 60000, 99968)
    """

    apart = True
    """See `BatchCallback`."""

    def __init__(self, columns: int, window: int) -> None:
        self.most = min(max(60_000 // max(columns, 1), 200), 2_000)
        self.window = window
        self.rows = 0
        self._spacing = 1
        self._places: list[NDArray[np.int64] | range] = []
        self._parts: list[Batch] = []
        self._kept = 0  # rows of all parts
        self._copied_at = 0  # from this row on, parts are views of batches of the stream

    def __call__(self, _trainer: Any, batch: Batch, _logits: Any) -> None:
        self.update(batch)

    def update(self, batch: Batch) -> None:
        """Add the next rows of the stream; those without a label or with weight 0 are not kept."""
        first = -self.rows % self._spacing
        if batch.label is not None and first < len(batch):
            picked = batch[first :: self._spacing]
            places: NDArray[np.int64] | range = range(self.rows + first, self.rows + len(batch), self._spacing)
            if picked.weight is not None:
                weighs = picked.weight > 0
                picked, places = picked[weighs], np.array(places)[weighs]
            if len(picked):
                self._places.append(places)
                self._parts.append(picked)
                self._kept += len(picked)
        self.rows += len(batch)
        if self._kept > 2 * self.most:
            self._thin()
        elif self.rows - self._copied_at >= _CHUNK:
            self._copy()

    def _copy(self) -> None:
        """Copy the rows out of the batches of which they are views, so that these can be freed."""
        parts = self._parts
        if any(part.weight is not None for part in parts):  # a `partial_fit` may have weights, and the next one none
            ones = np.ones(max(map(len, parts)), np.float32)
            parts = [replace(part, weight=ones[: len(part)]) if part.weight is None else part for part in parts]
        if parts:
            self._places, self._parts = [np.concatenate(self._places)], [Batch.concat(parts)]
        self._copied_at = self.rows

    def sample(self) -> Batch | None:
        """The rows that are kept, in the order of the stream; None if there are none."""
        self._thin()
        return self._parts[0] if self._parts and len(self._parts[0]) else None

    def _thin(self) -> None:
        """Drop rows before the window, and every other row while there are too many."""
        self._copy()
        if not self._parts:
            return
        places, rows = np.asarray(self._places[0]), self._parts[0]
        kept = places >= self.rows - self.window
        while kept.sum() > self.most:
            self._spacing *= 2
            kept &= places % self._spacing == 0
        self._places, self._parts, self._kept = [places[kept]], [rows[kept]], int(kept.sum())

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue with the same rows."""
        self._copy()
        return {
            "rows": self.rows,
            "spacing": self._spacing,
            "places": np.concatenate([np.empty(0, np.int64), *self._places]),
            "kept": self._parts[0].arrays() if self._parts else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        self.rows, self._spacing = state["rows"], state["spacing"]
        self._places = [state["places"]] if state["kept"] else []
        self._parts = [Batch(**state["kept"])] if state["kept"] else []
        self._kept = sum(map(len, self._parts))
        self._copied_at = self.rows
