"""Knots from any estimator of `daes.distribution`, and the choice between these and reservoirs as tensors."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from daes.distribution import ESTIMATORS, EstimatorBank
from daes.distribution.bank import state_from_bytes, state_to_bytes
from daes.distribution.base import DistributionEstimator
from daes.embedding.compilation import outside_graphs
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.knots import Bounds, StreamKnots

EstimatorFactory = Callable[[int], DistributionEstimator]


class EstimatorKnots(StreamKnots):
    """Knots from one NumPy estimator per feature: sketches, order statistics, reservoirs that adapt to drift.

    For comparisons, and for estimators that do not exist as tensors; on an accelerator every batch is copied to the
    host. The estimators' states, which have no fixed size, are saved as the bytes `state`.

    Args:
        bank: the estimators.
        num_knots, bounds: as in `FeatureKnots`.

    >>> from daes.distribution import OrderStatistics
    >>> known = EstimatorKnots(EstimatorBank(lambda feature: OrderStatistics(), 1), num_knots=4)
    >>> known.observe(torch.arange(5.0).unsqueeze(1))
    >>> known.knots
    tensor([[0., 1., 2., 3., 4.]])
    """

    state: Tensor

    def __init__(self, bank: EstimatorBank, num_knots: int, *, bounds: Bounds | None = None) -> None:
        super().__init__(bank.num_features, num_knots, bounds)
        self.bank: EstimatorBank | None = bank
        self.register_buffer("state", torch.empty(0, dtype=torch.uint8))
        self.register_state_dict_pre_hook(_write_state)  # type: ignore[no-untyped-call]

    @property
    def follows(self) -> bool:
        return self.bank is not None

    @outside_graphs
    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        if self.bank is None or not values.shape[0]:
            return
        self.bank.update(values.detach().cpu().numpy())
        statistics = self.bank.minimum, self.bank.maximum, self.bank.count
        self._set_ends(*(torch.from_numpy(statistic).to(self.knots.device) for statistic in statistics))
        if self.bank.due:
            quantiles = torch.from_numpy(self.bank.quantile(self.levels))
            sampled = quantiles[:, 0].isfinite().nonzero().squeeze(1)
            if len(sampled):  # expiry may empty a small sample, whose knots then stay
                self._set_quantiles(sampled, quantiles[sampled])

    def freeze(self) -> Self:
        """Keep the knots and drop the estimators: from then on `observe` changes nothing."""
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
    bounds: Bounds | None = None,
    options: Mapping[str, Any] | None = None,
) -> FeatureDistributions | EstimatorKnots:
    """The distributions of q features, by the name of an estimator or a function from a feature's index to one.

    Jump reservoirs become tensors (`FeatureDistributions`); all other estimators, and reservoirs with options (such as
    `{"half_life": 1e6}`), become `EstimatorKnots`.
    """
    options = options or {}
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
    else:
        named = ESTIMATORS[estimator]
        samples = estimator in ("jump", "jump-paper", "reservoir")

        def make(feature: int) -> DistributionEstimator:
            sampling = {"size": reservoir_size, "seed": seed + feature, "tolerance": tolerance} if samples else {}
            return named(**sampling, **options)

    return EstimatorKnots(EstimatorBank(make, num_features), num_knots, bounds=bounds)
