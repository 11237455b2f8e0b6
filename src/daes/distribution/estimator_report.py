"""Accuracy and cost of several estimators on one stream, read once by all of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daes.choices import check_choices
from daes.distribution import ESTIMATORS
from daes.distribution.base import (
    DistributionEstimator,
    Floats,
    check_levels,
    check_non_negative,
    check_positive,
    check_values,
)
from daes.distribution.drift import kl_divergence
from daes.distribution.jump import JumpReservoir

PERCENTILES = tuple(level / 100 for level in range(1, 100))
"""Default quantile levels: 1 %, 2 %, … 99 %."""

LABELS = {
    "reservoir": "RS",
    "jump": "JRS exact",
    "jump-paper": "JRS paper",
    "order-statistics": "OS",
    "kll": "KLL",
    "tdigest": "t-digest",
    "gk": "GK",
}
"""Display names of the estimators (the paper's where it has one), by their names in `ESTIMATORS`."""


@dataclass(frozen=True)
class EstimatorResult:
    """Quantiles, errors and cost of one estimator."""

    name: str
    label: str
    quantiles: tuple[float, ...]
    """The estimate at each level."""
    rank_errors: tuple[float, ...]
    """Signed rank error at each level; see `rank_errors`."""
    max_rank_error: float
    mean_rank_error: float
    kl_divergence: float
    draws: int | None
    """Random numbers used; None if unknown (KLL) or none are needed."""
    seconds: float
    """Total time of all updates."""
    read_seconds: float
    """Time of reading all quantiles once at the end."""
    values_per_second: float
    """Values of the stream, including missing ones, per second of updating."""
    nbytes: int
    """Bytes of the state."""


@dataclass(frozen=True)
class EstimatorReport:
    """Results of several estimators, in the order requested, against the true quantiles at `levels`."""

    levels: tuple[float, ...]
    true_quantiles: tuple[float, ...]
    results: tuple[EstimatorResult, ...]
    count: int
    """Finite values of the stream."""
    skipped: int
    """NaN and ±inf."""
    batches: int
    minimum: float
    maximum: float
    size: int
    seed: int
    kept: int
    """Number of values behind the true quantiles: all, or a uniform sample of a longer stream."""

    @property
    def truth_is_exact(self) -> bool:
        """Whether the true quantiles are computed from all values."""
        return self.kept == self.count

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {**asdict(self), "truth_is_exact": self.truth_is_exact}


def compare_estimators(
    batches: Iterable[ArrayLike],
    *,
    size: int = 100_000,
    levels: ArrayLike = PERCENTILES,
    estimators: Sequence[str] | None = None,
    seed: int = 0,
    keep: int = 20_000_000,
    progress: Callable[[int], None] | None = None,
    name: str = "batches",
) -> EstimatorReport:
    """Pass the batches of one column once through several estimators and compare each with the true quantiles.

    For the true quantiles all finite values are kept in memory. Of a stream longer than `keep` a uniform sample of that
    size is kept, whose ranks have a standard deviation of at most 0.5/√keep. This is not part of any estimator's time.

    Order statistics are given the levels in advance, in addition to every whole percent. Times are comparable within
    one call only. KLL draws random bits that cannot be seeded; all other results are reproducible.

    Args:
        batches: 1-D arrays of numbers of any length; NaN and ±inf are skipped and counted.
        size: slots of the reservoirs.
        levels: quantile levels in [0, 1]; sorted and without duplicates in the result.
        estimators: names from `ESTIMATORS`, all by default.
        seed: of the reservoirs.
        keep: largest number of values kept for the true quantiles.
        progress: called after each batch with its number of values, including missing ones.
        name: what an error calls the batches.

    >>> rng = np.random.default_rng(0)
    >>> stream = (rng.lognormal(size=1000) for _ in range(20))
    >>> report = compare_estimators(stream, size=5000, levels=[0.1, 0.5, 0.9], estimators=["jump", "gk"])
    >>> report.count, [result.label for result in report.results]
    (20000, ['JRS exact', 'GK'])
    >>> max(result.max_rank_error for result in report.results) < 0.02
    True
    """
    wanted = np.unique(check_levels(levels))
    if not wanted.size:
        raise ValueError(f"levels must have at least one level, got {levels!r}")
    check_positive(size=size, keep=keep)
    check_non_negative(seed=seed)
    built = _build(estimators, size, wanted, seed)
    seconds = dict.fromkeys(built, 0.0)
    truth = JumpReservoir(keep, seed=seed + 1)
    read = 0
    for given in batches:
        read += 1
        # DataSketches would copy a read-only array, such as one from Arrow; that is not a cost of the sketch itself.
        batch = np.require(check_values(given), requirements=["C", "A", "W"])
        truth.update(batch)
        for one, estimator in built.items():
            start = perf_counter()
            estimator.update(batch)
            seconds[one] += perf_counter() - start
        if progress is not None:
            progress(batch.size)
    if not truth.count:
        found = f"{truth.skipped} values that are NaN or ±inf" if truth.skipped else "none"
        raise ValueError(f"{name} must have at least one finite value, got {found}")
    return EstimatorReport(
        levels=_floats(wanted),
        true_quantiles=_floats(truth.quantile(wanted)),
        results=tuple(_result(one, built[one], seconds[one], truth, wanted) for one in built),
        count=truth.count,
        skipped=truth.skipped,
        batches=read,
        minimum=truth.minimum,
        maximum=truth.maximum,
        size=size,
        seed=seed,
        kept=min(truth.count, keep),
    )


def rank_errors(ordered: Floats, levels: Floats, estimated: Floats) -> Floats:
    """How far the rank of each estimated quantile is above (+) or below (−) its level, as a fraction of n.

    A value x has all ranks from F(x−), the fraction of the sample below it, to F(x); the error is the distance from the
    level to that interval. So a frequent value has no error at any level it covers.

    **Shape.** `ordered` (n,), the true values sorted; `levels`, `estimated` and the result have one shape.

    >>> rank_errors(np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.5, 0.5, 0.25]), np.array([0.0, 1.0, -1.0]))
    array([ 0.  ,  0.25, -0.25])
    """
    below = ordered.searchsorted(estimated, side="left") / ordered.size
    upto = ordered.searchsorted(estimated, side="right") / ordered.size
    errors: Floats = np.maximum(below - levels, 0.0) + np.minimum(upto - levels, 0.0)
    return errors


def _build(names: Sequence[str] | None, size: int, levels: Floats, seed: int) -> dict[str, DistributionEstimator]:
    chosen = tuple(dict.fromkeys(ESTIMATORS if names is None else names))
    check_choices("estimators", chosen, ESTIMATORS)
    settings: dict[str, dict[str, Any]] = {
        "order-statistics": {"levels": np.union1d(levels, np.arange(101) / 100)},
        **{name: {"size": size, "seed": seed} for name in ("reservoir", "jump", "jump-paper")},
    }
    return {name: ESTIMATORS[name](**settings.get(name, {})) for name in chosen}


def _result(
    name: str, estimator: DistributionEstimator, seconds: float, truth: JumpReservoir, levels: Floats
) -> EstimatorResult:
    start = perf_counter()
    quantiles = estimator.quantile(levels)
    read_seconds = perf_counter() - start
    errors = rank_errors(truth.ordered(), levels, quantiles)
    return EstimatorResult(
        name=name,
        label=LABELS.get(name, name),
        quantiles=_floats(quantiles),
        rank_errors=_floats(errors),
        max_rank_error=float(np.abs(errors).max()),
        mean_rank_error=float(np.abs(errors).mean()),
        kl_divergence=kl_divergence(truth, estimator),
        draws=getattr(estimator, "draws", None),
        seconds=seconds,
        read_seconds=read_seconds,
        values_per_second=(estimator.count + estimator.skipped) / max(seconds, 1e-9),
        nbytes=estimator.nbytes,
    )


def _floats(array: Floats) -> tuple[float, ...]:
    return tuple(array.tolist())
