"""Boosted trees, retrained on all past rows along the stream."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.experiments.rivals.base import Floats, Rival, register_rival
from daes.extras import require
from daes.registry import Reference
from daes.stream.batch import Batch
from daes.stream.schema import Schema

_CATEGORIES = 254
"""Number of most frequent values of a field that get a code of their own; LightGBM's histograms have 255 bins."""


@register_rival(
    "lightgbm",
    title="LightGBM, retrained as the stream goes",
    short="LightGBM",
    order=1,
    reference=Reference(
        "Guolin Ke et al.", "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", "NeurIPS", 2017
    ),
)
class RetrainedTrees(Rival):
    """LightGBM, retrained from scratch on all past rows after every sixteenth of the stream.

    It gets the same columns, encoded without the labels: numbers as they are, missing or not; each categorical field as
    a categorical feature, with a code for each of its 254 most frequent past values and one for all others; and for a
    field with more values than that also how often the row's value was seen in the past. Rows before the first training
    are scored by the click rate so far.

    Args:
        parts: number of parts of the stream; the trees are retrained after each but the last.
        trees: number of trees.
        learning_rate, num_leaves, min_child_samples: as in LightGBM.
        threads: LightGBM's threads; with one, the trees are the same on every run.
    """

    def __init__(
        self,
        schema: Schema,
        total_rows: int | None,
        *,
        parts: int = 16,
        trees: int = 200,
        learning_rate: float = 0.05,
        num_leaves: int = 31,
        min_child_samples: int = 20,
        threads: int = 1,
    ) -> None:
        super().__init__(schema, total_rows)
        if parts < 2 or trees < 1:
            raise ValueError(f"parts must be two or more and trees positive, got {parts} and {trees}")
        self.parts = parts
        self.trees = trees
        self._parameters = {
            "objective": "binary",
            "learning_rate": learning_rate,
            "num_leaves": num_leaves,
            "min_child_samples": min_child_samples,
            "num_threads": threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            "seed": 0,
        }
        self._clicks, self._others = 1.0, 1.0  # weights of the rows so far, starting with one click in two rows
        self._past: list[Batch] = []
        self._rows = 0
        self._fields: list[_Field] = []
        self._booster: Any = None

    def score(self, batch: Batch) -> NDArray[np.float32]:
        if self._booster is None:
            return np.full(len(batch), np.log(self._clicks / self._others), np.float32)
        scores = self._booster.predict(self._table(batch), raw_score=True, num_threads=self._parameters["num_threads"])
        return np.asarray(scores, np.float32)

    def learn(self, batch: Batch) -> None:
        self._past.append(batch)
        assert batch.label is not None
        weights = np.ones(len(batch)) if batch.weight is None else batch.weight.astype(np.float64)
        self._clicks += float(weights @ batch.label)
        self._others += float(weights @ (1 - batch.label))
        before, self._rows = self._rows, self._rows + len(batch)
        if self.total_rows is not None:
            part = self.total_rows / self.parts
            if self._rows // part > before // part and self._rows < self.total_rows:
                self.finish()

    def finish(self) -> None:
        """Train on all rows so far; with one class there is nothing to learn."""
        past = Batch.concat(self._past)
        self._past = [past]
        assert past.label is not None
        if np.ptp(past.label) == 0:
            return
        self._fields = [_Field.of(column) for column in past.categorical.T]
        lightgbm = require("lightgbm")
        numbers = self.schema.num_numerical
        data = lightgbm.Dataset(
            self._table(past),
            label=past.label,
            weight=past.weight,
            categorical_feature=list(range(numbers, numbers + self.schema.num_categorical)),
            free_raw_data=True,
        )
        self._booster = lightgbm.train(self._parameters, data, num_boost_round=self.trees)

    def _table(self, batch: Batch) -> Floats:
        """Numbers, codes of categories, and how often the values of large fields were seen: (B, columns)."""
        numbers = batch.numerical.astype(np.float64)
        numbers[~np.isfinite(numbers)] = np.nan
        fields = list(zip(self._fields, batch.categorical.T, strict=True))
        codes = [field.look_up(column, field.codes, _CATEGORIES) for field, column in fields]
        counts = [field.look_up(column, field.counts, 0) for field, column in fields if field.is_large]
        return np.column_stack([numbers, *codes, *counts])

    @property
    def size(self) -> int:
        return 0 if self._booster is None else sum(t["num_leaves"] for t in self._booster.dump_model()["tree_info"])


@dataclass(frozen=True)
class _Field:
    """The past values of a field in ascending order, the count and the code of each; code 0 is the most frequent.

    The first value is 0, which stands for a missing value; its count and its code are NaN.
    """

    values: NDArray[np.int64]
    counts: Floats
    codes: Floats

    @classmethod
    def of(cls, column: NDArray[np.int64]) -> "_Field":
        values, counts = np.unique(column[column != 0], return_counts=True)
        codes = np.empty(values.size)
        codes[np.argsort(-counts, kind="stable")] = np.minimum(np.arange(values.size), _CATEGORIES)
        return cls(np.append(0, values), np.append(np.nan, counts), np.append(np.nan, codes))

    @property
    def is_large(self) -> bool:
        """Whether it has values without a code of their own."""
        return self.values.size - 1 > _CATEGORIES

    def look_up(self, column: NDArray[np.int64], numbers: Floats, unknown: float) -> Floats:
        """The number of each value of a column: one of `numbers`, or `unknown` for a value not seen in the past."""
        index = np.minimum(np.searchsorted(self.values, column), self.values.size - 1)
        return np.where(self.values[index] == column, numbers[index], unknown)
