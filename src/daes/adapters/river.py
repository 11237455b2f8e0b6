"""A classifier for river's streams, evaluation and metrics."""

from collections.abc import Sequence
from typing import Any

from daes.classifier import StreamingClassifier
from daes.distribution.base import check_positive
from daes.extras import require
from daes.stream.arrow import pa
from daes.stream.schema import Schema

require("river")
from river.base import MiniBatchClassifier  # noqa: E402
from sklearn.base import clone  # noqa: E402


class RiverClassifier(MiniBatchClassifier):  # type: ignore[misc]
    """`StreamingClassifier` as a `river.base.MiniBatchClassifier`.

    Rows of `learn_one` are collected and learned `batch_size` at a time; in between, rows are scored by the model as it
    was after the last batch. The first batch determines the columns and which of them are numbers. A column that a row
    lacks is missing, and further columns are ignored. Before the first batch the score is `{}`, which river's
    evaluation skips.

    Labels are True and False, or 1 and 0.

    Args:
        classifier: an unfitted `StreamingClassifier`, which is copied; None for one with default settings.
        batch_size: number of rows that `learn_one` learns together.

    >>> model = RiverClassifier(batch_size=4)
    >>> for row in range(8):
    ...     model.learn_one({"price": float(row), "city": "Bern"}, row % 2 == 0)
    >>> sorted(model.predict_proba_one({"price": 3.0}))
    [False, True]
    """

    def __init__(self, classifier: StreamingClassifier | None = None, batch_size: int = 256) -> None:
        check_positive(batch_size=batch_size)
        self.classifier = classifier
        self.batch_size = batch_size
        self._model: StreamingClassifier = clone(StreamingClassifier() if classifier is None else classifier)
        self._waiting: list[tuple[dict[Any, Any], bool]] = []

    @property
    def _multiclass(self) -> bool:
        return False

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Add a row; once there are `batch_size` of them, learn from them."""
        self._waiting.append((dict(x), _label(y)))
        if len(self._waiting) >= self.batch_size:
            self._learn_waiting()

    def predict_proba_one(self, x: dict[Any, Any], **_: Any) -> dict[bool, float]:
        """The probabilities of no click and of a click; `{}` before the first batch."""
        if not hasattr(self._model, "model_"):
            return {}
        no, yes = self._model.predict_proba(self._table([x]))[0].tolist()
        return {False: no, True: yes}

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn from a DataFrame of rows and a Series of labels, after the rows that wait."""
        if self._waiting:
            self._learn_waiting()
        self._learn(X.to_dict("records"), [_label(one) for one in y.tolist()])

    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities of no click and of a click, as a DataFrame; empty before the first batch."""
        pandas = require("pandas")
        if not hasattr(self._model, "model_"):
            return pandas.DataFrame(index=X.index)
        return pandas.DataFrame(
            self._model.predict_proba(self._table(X.to_dict("records"))), index=X.index, columns=[False, True]
        )

    def _learn_waiting(self) -> None:
        rows, labels = zip(*self._waiting, strict=True)
        self._waiting = []
        self._learn(rows, labels)

    def _learn(self, rows: Sequence[dict[Any, Any]], labels: Sequence[bool]) -> None:
        self._model.partial_fit(self._table(rows), list(labels), classes=[False, True])

    def _table(self, rows: Sequence[dict[Any, Any]]) -> Any:
        """Rows as a pyarrow Table; with the model's columns once it has some."""
        rows = [{str(name): value for name, value in row.items()} for row in rows]  # river also numbers features
        if not hasattr(self._model, "schema_"):
            names = list(dict.fromkeys(name for row in rows for name in row))
            return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})
        schema: Schema = self._model.schema_
        columns = {}
        for name in self._model._columns_:
            values = [row.get(name) for row in rows]
            columns[name] = _column(name, values, pa.float64() if name in schema.numerical else None)
        return pa.table(columns)


def _label(y: Any) -> bool:
    if y not in (0, 1):
        raise ValueError(f"y must be True or False, or 1 or 0, got {y!r}")
    return bool(y)


def _column(name: str, values: Sequence[Any], kind: Any = None) -> Any:
    """Values as a pyarrow Array; None and NaN, which pandas has in columns of text too, are missing."""
    try:
        return pa.array(values, kind, from_pandas=True)
    except pa.ArrowException as error:
        raise TypeError(f"column {name!r} must have values of one type, got: {error}") from error
