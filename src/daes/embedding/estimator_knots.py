"""Knots by any estimator of `daes.distribution`, and the choice between it and reservoirs as tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from daes.distribution import ESTIMATORS, EstimatorBank, JumpReservoir, Reservoir
from daes.distribution.base import DistributionEstimator
from daes.embedding.compilation import outside_graphs
from daes.embedding.distributions import LIKELY_LEVELS, FeatureDistributions
from daes.embedding.knots import FeatureKnots, check_bounds
from daes.storage.estimator_state import state_from_bytes, state_to_bytes

EstimatorFactory = Callable[[int], DistributionEstimator]


class EstimatorKnots(FeatureKnots):
    """Knots that follow one NumPy estimator per feature: sketches, order statistics, reservoirs that adapt to drift.

    For comparisons and for what tensors cannot do; on an accelerator every batch is copied to the host. The
    estimators' states, which have no fixed size, are saved as the bytes `state`.

    Args:
        bank: the estimators.
        num_knots: the number K of intervals between knots.
        bounds: a fixed pair (low, high), or one per feature, in place of the smallest and largest value seen.

    >>> from daes.distribution import OrderStatistics
    >>> known = EstimatorKnots(EstimatorBank(lambda feature: OrderStatistics(), 1), num_knots=4)
    >>> known.observe(torch.arange(5.0).unsqueeze(1))
    >>> known.knots
    tensor([[0., 1., 2., 3., 4.]])
    """

    state: Tensor

    def __init__(
        self,
        bank: EstimatorBank,
        num_knots: int,
        *,
        bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
    ) -> None:
        super().__init__(torch.full((bank.num_features, num_knots + 1), torch.nan))
        self.bank: EstimatorBank | None = bank
        self.levels = np.arange(1, num_knots) / num_knots
        self._bounds = check_bounds(bounds, bank.num_features)
        self.register_buffer("state", torch.empty(0, dtype=torch.uint8))
        self.register_state_dict_pre_hook(_write_state)  # type: ignore[no-untyped-call]

    @property
    def follows(self) -> bool:
        return self.bank is not None

    @outside_graphs
    @torch.no_grad()
    def observe(self, values: Tensor, labels: Tensor | None = None) -> None:
        if self.bank is None or not values.shape[0]:
            return
        self.bank.update(values.detach().cpu().numpy())
        low, high = (self.bank.minimum, self.bank.maximum) if self._bounds is None else self._bounds.numpy().T
        ends = np.where(self.bank.count > 0, [low, high], np.nan)
        if self.bank.due:
            inner = np.clip(self.bank.quantile(self.levels), ends[0][:, None], ends[1][:, None])
            self.knots[:, 1:-1] = torch.from_numpy(inner)
            likely = torch.from_numpy(self.bank.quantile(LIKELY_LEVELS)).nan_to_num()
            self.centre.copy_(likely.mean(1))
            self.scale.copy_(likely.std(1, correction=0))
        self.knots[:, 0], self.knots[:, -1] = torch.from_numpy(ends[0]), torch.from_numpy(ends[1])

    def freeze(self) -> Self:
        """Keep the knots and drop the estimators: `observe` changes nothing from then on."""
        self.bank = None
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any, **options: Any
    ) -> None:
        stored = state_dict.get(f"{prefix}state")
        if stored is not None:
            self.state = self.state.new_empty(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        if stored is None:
            return
        if not stored.numel():
            self.freeze()
        elif self.bank is not None:
            self.bank.load_state_dict(state_from_bytes(stored.cpu().numpy().tobytes(), name="the estimators' state"))


def _write_state(module: EstimatorKnots, *_: Any) -> None:
    data = b"" if module.bank is None else state_to_bytes(module.bank.state_dict())
    module.state = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def make_distributions(
    num_features: int,
    num_knots: int,
    *,
    estimator: str | EstimatorFactory = "jump",
    reservoir_size: int = 100_000,
    seed: int = 0,
    tolerance: float = 1e-2,
    bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> FeatureDistributions | EstimatorKnots:
    """The distributions of q features by an estimator's name or by a function from a feature's number to an estimator.

    Jump reservoirs become tensors (`FeatureDistributions`); everything else, and reservoirs with an option that makes
    them adapt (as `{"half_life": 1e6}`), becomes `EstimatorKnots`.
    """
    options = dict(options or {})
    if estimator in ("jump", "jump-paper") and not options:
        return FeatureDistributions(
            num_features,
            num_knots,
            reservoir_size=reservoir_size,
            seed=seed,
            skip="exact" if estimator == "jump" else "paper",
            tolerance=tolerance,
            bounds=bounds,
        )
    if callable(estimator):
        if options:
            raise ValueError(f"estimator is a factory and takes no further options, got {', '.join(options)}")
        make = estimator
    elif estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)} or a factory, got {estimator!r}")
    elif estimator in ("jump", "jump-paper", "reservoir"):
        sampler = Reservoir if estimator == "reservoir" else JumpReservoir
        if estimator == "jump-paper":
            options.setdefault("skip", "paper")

        def make(feature: int) -> DistributionEstimator:
            return sampler(reservoir_size, seed=seed + feature, tolerance=tolerance, **options)
    else:

        def make(feature: int) -> DistributionEstimator:
            return ESTIMATORS[str(estimator)](**options)

    return EstimatorKnots(EstimatorBank(make, num_features), num_knots, bounds=bounds)
