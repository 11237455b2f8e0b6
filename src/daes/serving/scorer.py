"""A frozen model that scores rows in this process: dicts, Arrow tables or batches in, probabilities out."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.model import CTRModel
from daes.model.whole import whole_scores
from daes.serving.compiled import CompiledScores
from daes.serving.rows import RowError, hash_category, prepare
from daes.stream.arrow import pa
from daes.stream.batch import Batch, batch_from_table
from daes.stream.schema import Schema, no_such_column

_PROBE_ROWS = 64
_SAME_LOGIT = 1e-3


class Scorer:
    """Scores rows with a frozen model. It never changes, so that any number of threads may use it.

    To replace a model, make a scorer of the new one and replace the reference: calls in progress finish with the old
    one.

    Args:
        model: the model; it is frozen (`CTRModel.freeze`) and put in eval mode.
        compiled: code for models of this configuration (`CompiledScores`); its scores are compared with the model's.
        missing, missing_categories: texts that meant a missing number and a missing category in training, as in
            `CsvSource`. In rows and tables they, and numbers equal to them, are missing too.

    >>> from daes.model import CTRModel
    >>> model = CTRModel(Schema("click", ("price",), ("city",)), backbone="fnn", sizes=10)
    >>> scorer = Scorer(model)
    >>> scorer.score_rows([{"price": 1.5, "city": "Bern"}, {"city": "Rome"}]).shape
    (2,)
    """

    def __init__(
        self,
        model: CTRModel,
        *,
        compiled: CompiledScores | None = None,
        missing: Sequence[str] = (),
        missing_categories: Sequence[str] = (),
    ) -> None:
        self.model = model.eval().freeze()
        self._missing_texts = tuple(missing)
        self._missing_numbers = _numbers_among(missing)
        self._missing_hashes = np.array([hash_category(text) for text in missing_categories], np.int64)
        if model.categorical is not None:
            model.categorical.strict = False  # an unseen id has the row of unseen ids, as in an exported model
        self.schema = Schema(None, model.schema.numerical, model.schema.categorical)
        self._names = frozenset((*self.schema.numerical, *self.schema.categorical))
        self._accepted = self._names | {
            name for name in (model.schema.label, model.schema.time, model.schema.weight) if name is not None
        }
        self._whole = whole_scores(model)
        self._compiled: CompiledScores | None = None
        self._tensors: Mapping[str, Tensor] = {}
        if compiled is not None:
            self._use(compiled)

    def with_code(self, compiled: CompiledScores) -> "Scorer":
        """The same scorer with compiled code; an error if its scores differ from the model's."""
        made = copy(self)
        made._use(compiled)
        return made

    @property
    def is_compiled(self) -> bool:
        """Whether machine code computes the scores."""
        return self._compiled is not None

    def score_rows(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """The probability of a click for each row, (B,); see `daes.serving.rows` for the accepted values."""
        return self.score(self.read_rows(rows))

    def score_table(self, table: Any) -> NDArray[np.float64]:
        """The probability of a click for each row of an Arrow table or record batch, (B,)."""
        return self.score(self.read_table(table))

    def score(self, batch: Batch) -> NDArray[np.float64]:
        """The probability of a click for each row of a batch, (B,)."""
        return torch.sigmoid(self.logits(batch).double()).numpy()

    def logits(self, batch: Batch) -> Tensor:
        """Logits (B,) as the model computes them."""
        if self._whole is not None and (self._compiled is None or len(batch) <= self._whole.max_loop_rows):
            return torch.from_numpy(self._whole(batch.numerical, batch.categorical))
        numerical, categorical = torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical)
        if self._compiled is None or not len(batch):
            with torch.inference_mode():
                logits: Tensor = self.model(numerical, categorical)
                return logits
        return self._compiled(self._tensors, [part for part in (numerical, categorical) if part.shape[1]])

    def read_rows(self, rows: Sequence[Mapping[str, Any]]) -> Batch:
        """Rows as a batch; a column that is left out is missing.

        A column that the model does not know is a `RowError`, since its name may be misspelled; label, time and weight
        of training are accepted and not used.
        """
        for index, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise RowError(index, "", f"must be an object with a value for each column, got {type(row).__name__}")
            if not row.keys() <= self._accepted:
                unknown = next(name for name in row if name not in self._accepted)
                raise RowError(index, str(unknown), self._unknown(unknown))
        numbers, hashes = prepare(rows, self.schema.numerical, self.schema.categorical, self._missing_texts)
        with np.errstate(over="ignore"):
            numerical = np.array(numbers, np.float64).astype(np.float32)
        numerical = numerical.reshape(len(numbers), self.schema.num_numerical)
        categorical = np.array(hashes, np.int64).reshape(len(hashes), self.schema.num_categorical)
        return self._with_missing(Batch(numerical, categorical))

    def read_table(self, table: Any) -> Batch:
        """An Arrow table or record batch as a batch; its columns follow the same rules as those of rows."""
        for name in table.schema.names:
            if name not in self._accepted:
                raise ValueError(self._unknown(name))
        for name in self._names - set(table.schema.names):
            table = table.append_column(name, pa.nulls(table.num_rows))
        return self._with_missing(batch_from_table(table, self.schema))

    def _with_missing(self, batch: Batch) -> Batch:
        """The batch with missing values where it has values that meant a missing one in training."""
        if not self._missing_numbers.size and not self._missing_hashes.size:
            return batch
        numerical, categorical = batch.numerical, batch.categorical
        if self._missing_numbers.size:
            numerical = np.where(np.isin(numerical, self._missing_numbers), np.float32(np.nan), numerical)
        if self._missing_hashes.size:
            categorical = np.where(np.isin(categorical, self._missing_hashes), 0, categorical)
        return Batch(numerical, categorical)

    def _unknown(self, name: Any) -> str:
        return no_such_column([str(name)], (*self.schema.numerical, *self.schema.categorical))

    def _use(self, compiled: CompiledScores) -> None:
        tensors = compiled.tensors(self.model)
        probe = probe_batch(self.model)
        expected = self.logits(probe)
        self._compiled, self._tensors = compiled, tensors
        found = self.logits(probe)
        difference = float((found - expected).abs().max())
        if not difference <= _SAME_LOGIT:
            raise ValueError(f"compiled scores must equal those of the model, the logits differ by {difference:.3g}")


def _numbers_among(texts: Sequence[str]) -> NDArray[np.float32]:
    numbers = []
    for text in texts:
        with suppress(ValueError):
            numbers.append(float(text))
    return np.array(numbers, np.float32)


def probe_batch(model: CTRModel) -> Batch:
    """Rows to test a model with: numbers from far below to far above its knots, missing values, random ids."""
    schema, random = model.schema, np.random.default_rng(0)
    numerical = random.normal(size=(_PROBE_ROWS, schema.num_numerical)) * np.geomspace(1e-3, 1e6, _PROBE_ROWS)[:, None]
    knots = None if model.numerical is None else getattr(model.numerical.distributions, "knots", None)
    if knots is not None:
        knot_index = random.integers(0, knots.shape[1], (_PROBE_ROWS // 2, schema.num_numerical))
        numerical[::2] = knots.cpu().numpy().T[knot_index, np.arange(schema.num_numerical)]
    numerical[random.random(numerical.shape) < 0.1] = np.nan
    categorical = random.integers(1, 2**63, (_PROBE_ROWS, schema.num_categorical))
    categorical[random.random(categorical.shape) < 0.1] = 0
    return Batch(numerical.astype(np.float32), categorical)
