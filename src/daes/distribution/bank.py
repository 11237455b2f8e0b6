"""The distributions of several features at once, and their state as bytes."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import DistributionEstimator, Floats, Ints, State, check_levels, check_positive

_PLAIN = "__plain__"


class EstimatorBank:
    """One estimator per feature on (B, q) batches, with the methods of a `DistributionEstimator`.

    **Shape.** `update` takes (B, q), where NaN and ±inf are skipped; `quantile` takes levels (L,) and returns (q, L);
    `cdf` takes (B, q) and returns the same; `count`, `skipped`, `minimum` and `maximum` are (q,).

    Args:
        make: makes the estimator of feature f.
        num_features: number q of features.

    >>> from daes.distribution import OrderStatistics
    >>> bank = EstimatorBank(lambda feature: OrderStatistics([0.0, 0.5, 1.0]), num_features=2)
    >>> bank.update([[1.0, 10.0], [2.0, 20.0], [3.0, np.nan]])
    >>> bank.quantile([0.5, 1.0])
    array([[ 2.,  3.],
           [10., 20.]])
    """

    def __init__(self, make: Callable[[int], DistributionEstimator], num_features: int) -> None:
        check_positive(num_features=num_features)
        self.num_features = num_features
        self.estimators: Sequence[DistributionEstimator] = [make(feature) for feature in range(num_features)]

    @property
    def count(self) -> Ints:
        """Number of finite values of each feature, (q,)."""
        return np.array([estimator.count for estimator in self.estimators], np.int64)

    @property
    def skipped(self) -> Ints:
        """Number of skipped NaN and ±inf of each feature, (q,)."""
        return np.array([estimator.skipped for estimator in self.estimators], np.int64)

    @property
    def minimum(self) -> Floats:
        """The smallest value of each feature, (q,); NaN before the first."""
        return np.array([estimator.minimum for estimator in self.estimators])

    @property
    def maximum(self) -> Floats:
        """The largest value of each feature, (q,); NaN before the first."""
        return np.array([estimator.maximum for estimator in self.estimators])

    @property
    def due(self) -> bool:
        """Whether quantiles may have changed since they were last read."""
        return any(getattr(estimator, "due", True) for estimator in self.estimators)

    def update(self, values: ArrayLike) -> None:
        """Observe a batch (B, q)."""
        batch = self._check(values)
        for feature, estimator in enumerate(self.estimators):
            estimator.update(batch[:, feature])

    def quantile(self, levels: ArrayLike) -> Floats:
        """Quantiles of every feature, (q, L) for L levels; NaN where nothing was seen."""
        wanted = np.atleast_1d(check_levels(levels))
        return np.stack([estimator.quantile(wanted) for estimator in self.estimators])

    def cdf(self, values: ArrayLike) -> Floats:
        """F(x) of every value of a batch (B, q) in its feature's distribution; NaN where nothing was seen."""
        batch = self._check(values)
        columns = [estimator.cdf(batch[:, feature]) for feature, estimator in enumerate(self.estimators)]
        return np.stack(columns, axis=1)

    def merge(self, other: Self) -> None:
        """Add a bank of a disjoint stream."""
        if type(other) is not type(self):
            raise TypeError(f"other must be a {type(self).__name__} to merge, got {type(other).__name__}")
        if other.num_features != self.num_features:
            raise ValueError(f"other must have {self.num_features} features to merge, got {other.num_features}")
        for mine, theirs in zip(self.estimators, other.estimators, strict=True):
            mine.merge(theirs)

    def state_dict(self) -> State:
        """The states of all features in one dictionary with the keys `feature.name`."""
        states = enumerate(estimator.state_dict() for estimator in self.estimators)
        return {f"{feature}.{name}": value for feature, state in states for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        features = {int(name.partition(".")[0]) for name in state}
        if features != set(range(self.num_features)):
            raise ValueError(f"state has {len(features)} features; this bank has {self.num_features}")
        for feature, estimator in enumerate(self.estimators):
            prefix = f"{feature}."
            own = {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}
            try:
                estimator.load_state_dict(own)
            except ValueError as error:
                raise ValueError(f"feature {feature}: {error}") from error

    def _check(self, values: ArrayLike) -> NDArray[Any]:
        batch = np.asarray(values)
        if batch.ndim != 2 or batch.shape[1] != self.num_features:
            raise ValueError(f"values must have shape (B, {self.num_features}), got {batch.shape}")
        if batch.dtype.kind not in "fiub":
            raise TypeError(f"values must be numeric, got dtype {batch.dtype}")
        return batch


def state_to_bytes(state: Mapping[str, Any]) -> bytes:
    """Arrays and plain values as bytes, each part with its checksum.

    >>> state_from_bytes(state_to_bytes({"count": 3, "sample": np.array([1.0, 2.0])}))
    {'sample': array([1., 2.]), 'count': 3}
    """
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in state.items() if name not in arrays}
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{_PLAIN: text, **arrays})
    return buffer.getvalue()


def state_from_bytes(data: bytes, *, name: str = "state") -> State:
    """The state that `state_to_bytes` encoded; `name` is for errors."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        plain: State = json.loads(arrays.pop(_PLAIN).tobytes())
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(
            f"{name} is truncated, corrupt or not an estimator's state ({len(data)} bytes): {error}"
        ) from error
    return {**arrays, **plain}
