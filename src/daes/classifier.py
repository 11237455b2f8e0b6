"""A scikit-learn classifier: `CTRModel` and its training step behind `fit`, `partial_fit` and `predict_proba`."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from daes.backbone import Backbone
from daes.embedding import NumericalEmbedding
from daes.extras import require
from daes.model import CTRModel
from daes.stream.batch import Batch, batch_from_table
from daes.stream.schema import Schema, infer_schema
from daes.stream.source import as_table
from daes.training.config import TrainConfig
from daes.training.environment import find_device
from daes.training.step import TrainingStep, random_state, set_random_state

require("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets, unique_labels  # noqa: E402
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data  # noqa: E402


class StreamingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts clicks from the rows of a table: a `CTRModel` with scikit-learn's conventions.

    `fit` trains from scratch; `partial_fit` continues with the next rows of a stream. Rows are a pandas or polars
    frame, an Arrow table, or an array, whose columns are all numerical. In a table, columns of numbers are numerical
    and those of strings or categories categorical, unless `numerical` and `categorical` say otherwise. Any value may be
    missing.

    Args:
        method: the method for numbers: a name of `daes.embedding.METHODS`, or a module, which is copied. An offline
            method is fitted on the first rows.
        backbone: the interaction: a name of `daes.backbone.BACKBONES`, or a module, which is copied.
        numerical: names of the numerical columns; None to choose by type.
        categorical: names of the categorical columns; None to choose by type.
        dim: the dimension of embeddings; that of the modules given, 16 otherwise.
        epochs: passes of `fit` over its rows; `partial_fit` makes one pass.
        batch_size: rows per step.
        learning_rate: step size.
        optimizer: "adam", "adamw", "adagrad" or "sgd".
        l2: λ of the loss, BCE + λ‖Θ‖².
        context: categorical fields that modulate numbers: "smallest", "ranked", names or None.
        method_options: further arguments of the method.
        backbone_options: further arguments of the backbone.
        categorical_options: further arguments of `CategoricalEmbedding`.
        amp: compute in bfloat16 where that is safe.
        bad_batch: what to do with a batch whose loss or gradient is not finite: "stop" with an error, or "skip" it.
        device: "cpu", "cuda", or "auto" for a CUDA device if there is one.
        random_state: seed of the weights and of dropout.

    Attributes:
        model_: the `CTRModel`.
        schema_: its `Schema`.
        classes_: the two labels, the second one being the click.
        step_: its `TrainingStep`; `step_.bad_batches` are the batches that were skipped, with their rows in X.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"price": [1.0, 9.0, None, 7.0] * 50, "city": ["A", "B", "A", None] * 50})
    >>> clicks = [0, 1, 0, 1] * 50
    >>> model = StreamingClassifier(batch_size=20, epochs=5, learning_rate=0.01).fit(rows, clicks)
    >>> model.predict(rows[:4]).tolist()
    [0, 1, 0, 1]
    >>> model.partial_fit(rows[:20], clicks[:20]).predict_proba(rows[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        method: str | NumericalEmbedding = "daes",
        backbone: str | Backbone = "deepfm",
        *,
        numerical: Sequence[str] | None = None,
        categorical: Sequence[str] | None = None,
        dim: int | None = None,
        epochs: int = 1,
        batch_size: int = 1024,
        learning_rate: float = 1e-3,
        optimizer: str = "adam",
        l2: float = 0.0,
        context: str | Sequence[str] | None = "smallest",
        method_options: Mapping[str, Any] | None = None,
        backbone_options: Mapping[str, Any] | None = None,
        categorical_options: Mapping[str, Any] | None = None,
        amp: bool = False,
        bad_batch: Literal["stop", "skip"] = "stop",
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.numerical = numerical
        self.categorical = categorical
        self.dim = dim
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.l2 = l2
        self.context = context
        self.method_options = method_options
        self.backbone_options = backbone_options
        self.categorical_options = categorical_options
        self.amp = amp
        self.bad_batch = bad_batch
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train from scratch on rows X with labels y."""
        if self.epochs < 1:
            raise ValueError(f"epochs must be positive, got {self.epochs}")
        self._reset()
        batch = self._labelled(X, y, sample_weight, classes=None)
        self._learn(batch, self.epochs)
        return self

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Continue with the next rows of a stream. The first call needs `classes` if its y may lack one of them."""
        self._learn(self._labelled(X, y, sample_weight, classes), epochs=1)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The logit of a click for each row."""
        check_is_fitted(self, "model_")
        batch = self._batch(X, reset=False)
        parts = [self.step_.score(batch[start : start + 65_536]) for start in range(0, len(batch), 65_536)]
        return np.concatenate(parts).astype(np.float64) if parts else np.empty(0)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, (B, 2)."""
        click = 1.0 / (1.0 + np.exp(-self.decision_function(X)))
        return np.stack([1.0 - click, click], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class of each row."""
        clicked = self.decision_function(X) > 0
        chosen: NDArray[Any] = self.classes_[clicked.astype(int)]
        return chosen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_class = False
        return tags

    def _reset(self) -> None:
        for name in ("model_", "schema_", "classes_", "step_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)

    def _learn(self, batch: Batch, epochs: int) -> None:
        """Passes over the rows; the global random state stays as it is."""
        device = torch.device(find_device(self.device))
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            if hasattr(self, "step_"):
                set_random_state(self._random_, device)
            else:
                torch.manual_seed(self.random_state)
                self._build(batch, device)
            for epoch in range(epochs):
                if epoch:  # no row may be learned with its own label, counted in the epoch before
                    self.model_.evidence.reset()
                for start in range(0, len(batch), self.batch_size):
                    self.step_.learn(batch[start : start + self.batch_size], start)
            self._random_: dict[str, torch.Tensor] = random_state(device)

    def _build(self, batch: Batch, device: torch.device) -> None:
        config = TrainConfig(
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            amp=self.amp,
            bad_batch=self.bad_batch,
        )
        self.model_ = CTRModel.from_sample(
            self.schema_,
            batch,
            embedding=deepcopy(self.method),
            backbone=deepcopy(self.backbone),
            dim=self.dim,
            context=self.context,
            l2=self.l2,
            embedding_options=self.method_options,
            backbone_options=self.backbone_options,
            categorical_options=self.categorical_options,
        ).to(device)
        self.step_ = TrainingStep(self.model_, config)

    def _labelled(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, classes: ArrayLike | None) -> Batch:
        first = not hasattr(self, "classes_")
        batch = self._batch(X, reset=first)
        if y is None:
            raise ValueError("y must have a label for each row: requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if len(labels) != len(batch):
            raise ValueError(f"y must have {len(batch)} labels, one per row, got {len(labels)}")
        if first:
            self.classes_ = _two_classes(unique_labels(labels) if classes is None else np.unique(np.asarray(classes)))
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            raise ValueError(f"y must be one of the classes {self.classes_.tolist()}, got {labels[unknown][0]!r}")
        weight = None
        if sample_weight is not None:
            weight = np.broadcast_to(np.asarray(sample_weight, np.float32), (len(batch),)).copy()
            if not (np.isfinite(weight).all() and (weight >= 0).all()):
                raise ValueError("sample_weight must be finite and not negative")
            if not weight.any():
                raise ValueError("sample_weight must not be zero for every row")
        return Batch(batch.numerical, batch.categorical, (labels == self.classes_[-1]).astype(np.float32), weight)

    def _batch(self, X: Any, *, reset: bool) -> Batch:
        """The rows as a batch; with `reset`, their schema becomes the model's."""
        if _is_table(X):
            table = as_table(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset:
                inferred = infer_schema(table.schema, numerical=self.numerical, categorical=self.categorical)
                # The labels are y, so a column of X with the name of a label is a feature.
                labels = () if inferred.label is None else (inferred.label,)
                self.schema_ = Schema(None, (*inferred.numerical, *labels), inferred.categorical)
            return batch_from_table(table, self.schema_, require_label=False)
        array = validate_data(
            self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan", ensure_min_samples=1
        )
        array = check_array(array, dtype=np.float32, ensure_all_finite=False)
        if reset:
            self.schema_ = Schema(None, tuple(f"x{i}" for i in range(array.shape[1])), ())
        return Batch(np.ascontiguousarray(array), np.empty((len(array), 0), np.int64))


def _is_table(rows: Any) -> bool:
    return hasattr(rows, "__arrow_c_stream__") or type(rows).__module__.partition(".")[0] == "pandas"


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
