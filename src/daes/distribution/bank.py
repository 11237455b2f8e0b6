"""The distributions of several features at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import DistributionEstimator as One
from daes.distribution.base import Floats, State, check_levels, check_positive
from daes.distribution.jump import JumpReservoir
from daes.distribution.reservoir import check_seed
from daes.distribution.schedule import Schedule


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

    def __init__(self, make: Callable[[int], One], num_features: int) -> None:
        check_positive(num_features=num_features)
        self.num_features = num_features
        self.estimators: Sequence[One] = [make(feature) for feature in range(num_features)]

    @property
    def count(self) -> NDArray[np.int64]:
        """Number of finite values of each feature, (q,)."""
        return np.array([estimator.count for estimator in self.estimators], np.int64)

    @property
    def skipped(self) -> NDArray[np.int64]:
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
        """Whether quantiles may differ from those read last."""
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


class ReservoirBank(EstimatorBank):
    """Jump reservoirs of q features on (B, q) batches.

    With `shared=True` features without missing values share one sampling decision per row: their reservoirs hold the
    same rows, at the cost of one stream of random numbers. At its first missing value a feature leaves the others and
    continues on the same schedule by its own count. Each sample is, bit for bit, that of `JumpReservoir(size,
    seed=seed)` on the column: uniform over the stream, but the samples of different features are not independent.

    With `shared=False` (required for reservoirs that adapt) feature f has the seed `seed + f`.

    Args:
        num_features: number q of features.
        size: slots per feature.
        seed: of the random numbers.
        shared: whether features share sampling decisions; by default unless an adaptation is set.
        options: as of `JumpReservoir`.

    >>> bank = ReservoirBank(num_features=2, size=100)
    >>> bank.update([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])
    >>> bank.count, bank.skipped
    (array([3, 2]), array([0, 1]))
    >>> bank.quantile([0.5, 1.0])
    array([[ 2.,  3.],
           [10., 30.]])
    """

    estimators: list[JumpReservoir]

    def __init__(
        self, num_features: int, size: int = 100_000, seed: int = 0, *, shared: bool | None = None, **options: Any
    ) -> None:
        check_seed(seed)
        adapts = any(options.get(name) is not None for name in ("expiry", "half_life", "stability"))
        if shared and adapts:
            raise ValueError(f"shared must be False for reservoirs that adapt, got {shared}")
        self.shared = not adapts if shared is None else shared
        step = 0 if self.shared else 1
        super().__init__(lambda f: JumpReservoir(size, seed=seed + step * f, **options), num_features)
        self.size = size
        self.share()

    @property
    def draws(self) -> int:
        """Number of random numbers used; shared ones count once."""
        return sum(schedule.draws for schedule in {id(r.schedule): r.schedule for r in self.estimators}.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the samples."""
        return sum(reservoir.nbytes for reservoir in self.estimators)

    def update(self, values: ArrayLike) -> None:
        batch = self._check(values)
        if not batch.shape[0]:
            return
        low, high = _column_range(batch)
        complete = (np.isfinite(low) & np.isfinite(high)).tolist()
        groups: dict[int, list[int]] = {}
        for feature, reservoir in enumerate(self.estimators):
            groups.setdefault(id(reservoir.schedule), []).append(feature)
        for features in groups.values():
            shared = len(features) > 1
            together = [feature for feature in features if shared and complete[feature]]
            for feature in features:
                if shared and complete[feature]:
                    continue
                reservoir = self.estimators[feature]
                if shared:
                    reservoir.schedule = reservoir.schedule.copy()
                reservoir.update(batch[:, feature])
            if together:
                self._update_together(batch, together, low.tolist(), high.tolist())

    def _update_together(self, batch: NDArray[Any], features: list[int], low: list[float], high: list[float]) -> None:
        """Update features that share a schedule and have no missing value in this batch."""
        first, rows = self.estimators[features[0]], batch.shape[0]
        accepted, start = first.schedule.take(first.count + rows), first.count
        if accepted.slots.size:
            members = batch[accepted.positions - (start + 1)]
            for feature in features:
                self.estimators[feature].accept(accepted, members[:, feature])
        for feature in features:
            self.estimators[feature].advance(rows, low[feature], high[feature])

    def merge(self, other: Self) -> None:
        for reservoir in self.estimators:  # each restarts its own schedule
            reservoir.schedule = reservoir.schedule.copy()
        super().merge(other)
        self.share()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.share()

    def share(self) -> None:
        """Let reservoirs with equal counts and schedules use one schedule object."""
        if self.shared:
            schedules: dict[str, Schedule] = {}
            for reservoir in self.estimators:
                key = repr((reservoir.count, reservoir.seed, reservoir.capacity, reservoir.schedule.state_dict()))
                reservoir.schedule = schedules.setdefault(key, reservoir.schedule)


def _column_range(batch: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The smallest and largest value of each column, NaN where it contains one.

    NumPy's inner loop runs over the columns, of which there are few; folding many rows side by side makes it long.
    """
    rows, columns = batch.shape
    wide = max(1, 1024 // columns)
    fold = rows // wide
    if fold < 2 or not batch.flags.c_contiguous:
        return np.minimum.reduce(batch, axis=0), np.maximum.reduce(batch, axis=0)
    body = batch[: fold * wide].reshape(fold, wide * columns)
    low = np.minimum.reduce(body, axis=0).reshape(wide, columns)
    high = np.maximum.reduce(body, axis=0).reshape(wide, columns)
    rest = batch[fold * wide :]
    return (
        np.minimum.reduce(np.concatenate([low, rest]), axis=0),
        np.maximum.reduce(np.concatenate([high, rest]), axis=0),
    )
