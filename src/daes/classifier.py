"""A scikit-learn classifier: `CTRModel` and its training step behind `fit`, `partial_fit` and `predict_proba`."""

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from math import ceil
from os import PathLike
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import check_positive
from daes.extras import require
from daes.metrics import LogLoss
from daes.metrics.base import sigmoid
from daes.stream.batch import Batch, batch_from_table
from daes.stream.schema import Schema, infer_schema
from daes.stream.source import as_table
from daes.training.config import TrainConfig, suggest_batch_size
from daes.training.environment import find_device

if TYPE_CHECKING:
    import torch

    from daes.backbone import Backbone
    from daes.embedding import NumericalEmbedding
    from daes.evidence import Evidence
    from daes.model import CTRModel

# scikit-learn takes as long to import as torch: torch is imported when training starts.
require("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets, unique_labels  # noqa: E402
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data  # noqa: E402

FORMAT = "daes.classifier"
VERSION = 1
WEIGHT_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": "sample_weight is not equivalent to removing/repeating samples."
}
"""The check of scikit-learn's `check_estimator` that is expected to fail, with scikit-learn's own reason."""

_SCORED_AT_ONCE = 65_536
_RANDOM_STATE = RLock()
"""Torch has one random state for all threads, so only one of them trains a classifier at a time."""


@dataclass(eq=False, repr=False)
class StreamingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts clicks from the rows of a table: a `CTRModel` with scikit-learn's conventions.

    `fit` trains from scratch; `partial_fit` continues with the next rows of a stream. Rows are a pandas or polars
    frame, an Arrow table, or an array, whose columns are all numerical. In a table, columns of numbers are numerical
    and those of strings or categories are categorical, unless `numerical` and `categorical` say otherwise; columns of
    timestamps and columns without a name are not used. Any value may be missing.

    `sample_weight` weights the loss of a row; rows of weight 0 are left out. A weight of 2 is not the same as two rows:
    distributions and evidence count rows, and batches are made of rows. This is the one check of scikit-learn's
    `check_estimator` that is expected to fail, as for scikit-learn's own `SGDClassifier`:
    `check_estimator(StreamingClassifier(), expected_failed_checks=WEIGHT_CHECKS)`.

    Args:
        method: the method for numbers: a name in `daes.embedding.METHODS`, or a module, which is copied. An offline
            method is fitted on the first rows.
        backbone: the interaction: a name in `daes.backbone.BACKBONES`, or a module, which is copied.
        numerical: names of the numerical columns; None to choose by type.
        categorical: names of the categorical columns; None to choose by type.
        time: name of the column by which rows are sorted before training; not a feature. None to keep their order.
        exclude: names of columns that are not used.
        dim: the dimension of embeddings; None for that of the given modules, otherwise 16.
        evidence: what past clicks say about values and ids as further inputs: True, an `Evidence` or its arguments.
        epochs: maximum number of passes of `fit` over its rows; `partial_fit` makes one pass.
        patience: `fit` stops after this many epochs in a row without a lower LogLoss on the last rows, which are held
            out for validation, and goes back to the best epoch. None to learn from all rows in all epochs.
        validation_fraction: the share of these last rows.
        batch_size: rows per step; None to choose by the number of rows (`suggest_batch_size`).
        learning_rate: step size; None for the optimiser's default.
        optimizer: "adam", "adamw", "adagrad" or "sgd".
        l2: λ of the loss, BCE + λ‖Θ‖².
        context: categorical fields that modulate numbers: "smallest", "ranked", names or None.
        method_options: further arguments of the method.
        backbone_options: further arguments of the backbone.
        categorical_options: further arguments of `CategoricalEmbedding`.
        amp: compute in bfloat16 where that is safe.
        bad_batch: what to do with a batch whose loss or gradient is not finite: "stop" with an error, or "skip" it.
        device: "cpu", "cuda", or "auto" for a CUDA device if there is one.
        random_state: seed of the weights and of dropout; a NumPy `RandomState` or None draws one.

    Attributes:
        model_: the `CTRModel`.
        schema_: its `Schema`.
        classes_: the two labels, the second one being the click.
        step_: its `TrainingStep`; `step_.bad_batches` are the skipped batches, with their rows in X.
        validation_loss_: LogLoss on the last rows after each epoch of `fit`; empty without `patience`.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"price": [1.0, 9.0, None, 7.0] * 50, "city": ["A", "B", "A", None] * 50})
    >>> clicks = [0, 1, 0, 1] * 50
    >>> model = StreamingClassifier(batch_size=20, epochs=5, learning_rate=0.01).fit(rows, clicks)
    >>> model.predict(rows[:4]).tolist()
    [0, 1, 0, 1]
    >>> model.partial_fit(rows[:20], clicks[:20]).predict_proba(rows[:2]).shape
    (2, 2)
    """

    method: "str | NumericalEmbedding" = "daes"
    backbone: "str | Backbone" = "deepfm"
    _: KW_ONLY
    numerical: Sequence[str] | None = None
    categorical: Sequence[str] | None = None
    time: str | None = None
    exclude: Sequence[str] = ()
    dim: int | None = None
    evidence: "Evidence | Mapping[str, Any] | bool" = True
    epochs: int = 1
    patience: int | None = None
    validation_fraction: float = 0.1
    batch_size: int | None = None
    learning_rate: float | None = TrainConfig.learning_rate
    optimizer: str = TrainConfig.optimizer
    l2: float = 0.0
    context: str | Sequence[str] | None = "smallest"
    method_options: Mapping[str, Any] | None = None
    backbone_options: Mapping[str, Any] | None = None
    categorical_options: Mapping[str, Any] | None = None
    amp: bool = False
    bad_batch: Literal["stop", "skip"] = "stop"
    device: str = "auto"
    random_state: int | np.random.RandomState | None = 0

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train from scratch on rows X with labels y; if this fails, the estimator is not fitted."""
        check_positive(epochs=self.epochs)
        if self.patience is not None:
            check_positive(patience=self.patience)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction}")
        self._reset()
        return self._learn(X, y, None, sample_weight, epochs=self.epochs, patience=self.patience)

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Continue with the next rows of a stream. The first call needs `classes` if its y may lack one of them."""
        return self._learn(X, y, classes, sample_weight)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The logit of a click for each row."""
        check_is_fitted(self, "model_")
        return self._logits(self._batch(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, (B, 2)."""
        click = sigmoid(self.decision_function(X))
        return np.stack([1.0 - click, click], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class of each row."""
        clicked = self.decision_function(X) > 0
        chosen: NDArray[Any] = self.classes_[clicked.astype(int)]
        return chosen

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The increase of LogLoss on the last rows learned from when a column of X is permuted, (columns of X,).

        `daes.training.feature_importance` has more: errors, AUC, evidence, other rows.
        """
        from daes.training.importance import feature_importance

        check_is_fitted(self, "model_")
        last_rows = self._recent_.sample()
        assert last_rows is not None
        rises = {column.name: column.logloss for column in feature_importance(self.model_, last_rows).columns}
        return np.nan_to_num([rises.get(name, 0.0) for name in self._columns_])

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file: the classifier that `load` reads scores and continues the same way."""
        from daes.storage.state_file import write_state

        check_is_fitted(self, "model_")
        config, training = self.model_.config, self.step_.config
        parameters = self.get_params(deep=False)
        for name, value in parameters.items():
            if hasattr(value, "tolist"):  # names as an array or an index
                parameters[name] = value.tolist()
        for name in ("optimizer", "learning_rate", "amp", "bad_batch"):  # of the step, whatever was set since
            parameters[name] = getattr(training, name)
        # A module is saved by its registered name and its options, as CTRModel.save_pretrained does.
        self.model_.check_registered()
        for given, name in (("method", "embedding"), ("backbone", "backbone")):
            if not isinstance(parameters[given], str):
                parameters[given], parameters[f"{given}_options"] = config[name], config[f"{name}_options"]
        parameters["evidence"] = config["evidence"] or False
        if isinstance(self.random_state, np.random.RandomState):
            parameters["random_state"] = None
        state = {
            "format": FORMAT,
            "version": VERSION,
            "parameters": parameters,
            "schema": self.schema_.to_json(),
            "model": config,
            "classes": [self.classes_.dtype.str, self.classes_.tolist()],
            "columns": self._columns_,
            "named": hasattr(self, "feature_names_in_"),
            "validation_loss": self.validation_loss_,
            "batch_size": training.batch_size,
            "step": self.step_.state_dict(),
            "random": self._random_,
            "recent": self._recent_.state_dict(),
        }
        write_state(path, state)

    @classmethod
    def load(cls, path: str | PathLike[str], *, device: str = "auto") -> Self:
        """Read a classifier that `save` wrote."""
        from daes.model import CTRModel
        from daes.storage.nested_state import StateError
        from daes.storage.state_file import read_state

        try:
            state = read_state(path)
        except StateError as error:
            raise ValueError(f"{path} is not a saved classifier: {error}") from error
        if not isinstance(state, dict) or (state.get("format"), state.get("version")) != (FORMAT, VERSION):
            raise ValueError(f"{path} must hold a classifier of version {VERSION}, which it does not")
        made = cls(**{**state["parameters"], "device": device})
        made.schema_ = Schema.from_json(state["schema"])
        kind, classes = state["classes"]
        made.classes_ = np.array(classes, dtype=kind)
        made._columns_ = state["columns"]
        made.n_features_in_ = len(made._columns_)
        if state["named"]:
            made.feature_names_in_ = np.array(made._columns_, dtype=object)
        model = CTRModel(made.schema_, **state["model"]).to(find_device(device))
        made._start(model, state["batch_size"])
        made.step_.load_state_dict(state["step"])
        made.validation_loss_, made._random_ = state["validation_loss"], state["random"]
        made._recent_.load_state_dict(state["recent"])
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_class = False
        return tags

    def _reset(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            del self.__dict__[name]

    def _learn(self, *rows: Any, epochs: int = 1, patience: int | None = None) -> Self:
        """Learn from rows, given as for `_labelled`; if this fails the first time, the estimator is not fitted."""
        fitted = hasattr(self, "step_")
        try:
            self._learn_epochs(self._labelled(*rows), epochs, patience)
        except BaseException:
            if not fitted:
                self._reset()
            raise
        return self

    def _learn_epochs(self, batch: Batch, epochs: int, patience: int | None) -> None:
        """Pass over the rows several times; the global random state does not change."""
        import torch

        from daes.training.step import random_state, set_random_state

        device = torch.device(find_device(self.device))
        split = len(batch) - (ceil(self.validation_fraction * len(batch)) if patience else 0)
        if not split:
            raise ValueError(f"X must have more rows than those held out for validation, got {len(batch)} rows")
        learned, valid = batch[:split], batch[split:]
        size = suggest_batch_size(split) if self.batch_size is None else self.batch_size
        with _RANDOM_STATE, torch.random.fork_rng([device] if device.type == "cuda" else []):
            if hasattr(self, "step_"):
                set_random_state(self._random_, device)
            else:
                torch.manual_seed(_seed(self.random_state))
                self._build(learned, device, size)
            self._recent_.update(learned)
            best: dict[str, Any] = {}
            for epoch in range(epochs):
                self._learn_epoch(learned, size, epoch)
                if not patience:
                    continue
                self.validation_loss_.append(self._loss(valid))
                if not best or self.validation_loss_[-1] < min(self.validation_loss_[:-1]):
                    best = {"epoch": epoch, "state": deepcopy(self.step_.state_dict())}
                elif epoch - best["epoch"] >= patience:
                    break
            if best:
                self.step_.load_state_dict(best["state"])
            self._random_: dict[str, torch.Tensor] = random_state(device)

    def _learn_epoch(self, batch: Batch, size: int, epoch: int) -> None:
        """One pass over the rows; distributions and vocabularies observe them in the first epoch only."""
        self.step_.observing = epoch == 0
        if epoch:  # the counts of the previous epoch include each row's own label
            self.model_.evidence.reset()
        for start in range(0, len(batch), size):
            self.step_.learn(batch[start : start + size], start)
        self.step_.observing = True

    def _build(self, batch: Batch, device: "torch.device", batch_size: int) -> None:
        from daes.model import CTRModel

        model = CTRModel.from_sample(
            self.schema_,
            batch,
            embedding=deepcopy(self.method),
            backbone=deepcopy(self.backbone),
            dim=self.dim,
            context=self.context,
            evidence=self.evidence,
            l2=self.l2,
            embedding_options=self.method_options,
            backbone_options=self.backbone_options,
            categorical_options=self.categorical_options,
        )
        self._start(model.to(device), batch_size)
        self.validation_loss_: list[float] = []

    def _start(self, model: "CTRModel", batch_size: int) -> None:
        from daes.training.importance import RecentRows
        from daes.training.step import TrainingStep

        config = TrainConfig(
            batch_size=batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            amp=self.amp,
            bad_batch=self.bad_batch,
        )
        self.model_ = model
        self.step_ = TrainingStep(model, config)
        self._recent_ = RecentRows(self.schema_.num_numerical + self.schema_.num_categorical, config.window)

    def _logits(self, batch: Batch) -> NDArray[np.float64]:
        starts = range(0, len(batch), _SCORED_AT_ONCE)
        with self.model_.lock:  # all rows are scored by the same model, though another thread may be learning
            parts = [self.step_.score(batch[start : start + _SCORED_AT_ONCE]) for start in starts]
        return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)

    def _loss(self, batch: Batch) -> float:
        """The LogLoss of rows that are not learned from; infinite if it is not defined."""
        assert batch.label is not None
        loss = LogLoss()
        loss.update(self._logits(batch), batch.label, batch.weight)
        found = loss.compute()
        return found if np.isfinite(found) else float("inf")

    def _labelled(self, X: Any, y: ArrayLike, classes: ArrayLike | None, sample_weight: ArrayLike | None) -> Batch:
        """The rows with their labels, in the order in which they are learned from."""
        first = not hasattr(self, "classes_")
        batch = self._batch(X, reset=first, time=self.time)
        if not len(batch):
            raise ValueError("X must have at least one row, got 0 sample(s)")
        if y is None:
            raise ValueError("y must have a label for each row: requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        try:
            check_classification_targets(labels)
        except TypeError as error:
            kinds = sorted({type(label).__name__ for label in labels.tolist()})
            if len(kinds) < 2:
                raise
            raise ValueError(f"y must have a label for each row, all of one type, got {', '.join(kinds)}") from error
        if len(labels) != len(batch):
            raise ValueError(f"y must have {len(batch)} labels, one per row, got {len(labels)}")
        given = None if classes is None else np.unique(np.asarray(classes))
        if first:
            self.classes_ = _two_classes(unique_labels(labels) if given is None else given)
        elif given is not None and not np.array_equal(given, self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_.tolist()}, got {given.tolist()}")
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise ValueError(
                f"y must be one of the classes {self.classes_.tolist()}, got {labels[unknown].tolist()[0]!r}"
            )
        weight = None
        if sample_weight is not None:
            given = np.asarray(sample_weight, np.float32)
            if given.shape not in ((), (len(batch),)):
                raise ValueError(f"sample_weight must have {len(batch)} numbers, one per row, got shape {given.shape}")
            weight = np.broadcast_to(given, (len(batch),)).copy()
            bad = weight[~(np.isfinite(weight) & (weight >= 0))]
            if bad.size:
                raise ValueError(f"sample_weight must be finite and not negative, got {bad[0]}")
            if not weight.any():
                raise ValueError("sample_weight must not be zero for every row")
        clicks = (labels == self.classes_[-1]).astype(np.float32)
        rows = Batch(batch.numerical, batch.categorical, clicks, weight)
        if batch.time is not None:
            rows = rows[np.argsort(batch.time, kind="stable")]
        return rows if rows.weight is None else rows[np.flatnonzero(rows.weight)]

    def _batch(self, X: Any, *, reset: bool = False, time: str | None = None) -> Batch:
        """The rows as a batch, with the times in column `time` if given; `reset` infers the schema from them."""
        if _is_table(X):
            table = as_table(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset:
                self._columns_: list[str] = table.schema.names
                self.schema_ = self._infer_schema(table)
            return batch_from_table(table, replace(self.schema_, time=time), require_label=False)
        for name in ("numerical", "categorical", "time", "exclude"):
            if getattr(self, name):
                raise ValueError(f"{name} needs a table with named columns; X is a {type(X).__name__}")
        array = validate_data(
            self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan", ensure_min_samples=1
        )
        array = check_array(array, dtype=np.float32, ensure_all_finite=False)
        if not reset and self.schema_.numerical != tuple(self._columns_):
            raise ValueError(f"X must be a table with the columns {self._columns_} as before, got {type(X).__name__}")
        if reset:
            self._columns_ = [f"x{i}" for i in range(array.shape[1])]
            self.schema_ = Schema(None, tuple(self._columns_), ())
        return Batch(np.require(array, requirements=["C", "W"]), np.empty((len(array), 0), np.int64))

    def _infer_schema(self, table: Any) -> Schema:
        inferred = infer_schema(
            table.schema,
            numerical=self.numerical,
            categorical=self.categorical,
            time=self.time,
            exclude=self.exclude,
            labelled=False,  # the labels are y: a column of X that is called label is a feature
        )
        used = {*inferred.columns, *self.exclude}
        empty = [column.name for column in table.schema if str(column.type) == "null" and column.name not in used]
        if empty and (self.numerical is None or self.categorical is None):
            warnings.warn(
                f"{', '.join(map(repr, empty))} without a value in the first rows: left out of the model; to use later "
                "values, list all columns in numerical or categorical",
                stacklevel=2,
            )
        return replace(inferred, time=None)


def _seed(given: int | np.random.RandomState | None) -> int:
    """A given seed, or one drawn in scikit-learn's way."""
    if isinstance(given, int | np.integer):
        return int(given)
    return int(check_random_state(given).randint(np.iinfo(np.int32).max))


def _is_table(rows: Any) -> bool:
    module = type(rows).__module__.partition(".")[0]
    return hasattr(rows, "__arrow_c_stream__") if module != "pandas" else hasattr(rows, "columns")


def _two_classes(classes: NDArray[Any]) -> NDArray[Any]:
    if classes.size > 2:
        raise ValueError(
            f"Only binary classification is supported. y must have two classes, got {classes.size} classes"
        )
    if classes.size < 2:
        raise ValueError(
            f"y must have two classes (or pass classes to partial_fit), got only one class, {classes.tolist()}"
        )
    return classes
