"""Knots that follow a stream: a distribution estimator inside a torch module."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from daes.distribution import EstimatorBank, ReservoirBank
from daes.distribution.base import DistributionEstimator
from daes.embedding.device_bank import DeviceBank
from daes.storage.estimator_state import state_from_bytes, state_to_bytes

EstimatorFactory = Callable[[int], DistributionEstimator]
_LIKELY = (np.arange(200) + 0.5) / 200
_AGE = "device_age"


class KnotsModule(nn.Module):
    """A module whose buffer `knots` (q, K+1) follows the distribution of what `observe_knots` is shown.

    Knots are the smallest value seen, the i/K quantiles for 0 < i < K, and the largest value seen; NaN before the
    first value. The estimator's state travels in the module's state_dict as one tensor of bytes, so it is saved,
    loaded, copied and pickled with the module, and no cast to half precision ever touches it.
    """

    knots: Tensor
    bank: EstimatorBank | None

    def init_knots(
        self,
        num_features: int,
        num_knots: int,
        *,
        estimator: str | EstimatorFactory = "jump",
        reservoir_size: int = 100_000,
        seed: int = 0,
        bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
        tolerance: float = 5e-3,
        **options: Any,
    ) -> None:
        self.bank = make_bank(estimator, num_features, reservoir_size, seed, tolerance=tolerance, **options)
        self.bounds = _check_bounds(bounds, num_features)
        self.levels = np.arange(1, num_knots) / num_knots
        self._on_device: DeviceBank | None = None
        self._device_age = (-1, 0)
        self._constants: dict[Any, Tensor] = {}
        self.register_buffer("knots", torch.full((num_features, num_knots + 1), torch.nan))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def observe_knots(self, values: Tensor) -> None:
        """Take values (B, q) into the estimator and let the knots follow, as far as its tolerance asks for."""
        assert self.bank is not None
        if values.device.type != "cpu" and DeviceBank.fits(self.bank):
            return self._observe_on_device(self.bank, values.detach())
        self._leave_device()
        self.bank.update(values.detach().cpu().numpy())
        low, high = (self.bank.minimum, self.bank.maximum) if self.bounds is None else self.bounds.T
        ends = np.where(self.bank.count > 0, [low, high], np.nan)
        if self.bank.due:
            inner = np.clip(self.bank.quantile(self.levels), ends[0][:, None], ends[1][:, None])
            self.knots[:, 1:-1] = torch.from_numpy(inner)
            likely = torch.from_numpy(self.bank.quantile(_LIKELY))
            self.follow(likely.nan_to_num())
        self.knots[:, 0], self.knots[:, -1] = torch.from_numpy(ends[0]), torch.from_numpy(ends[1])
        return None

    def follow(self, likely: Tensor) -> None:
        """Called with 200 equally likely quantiles (q, 200) when the knots have moved, 0 where nothing was seen."""
        return

    def _observe_on_device(self, bank: ReservoirBank, values: Tensor) -> None:
        if self._on_device is None or self._on_device.device != values.device:
            self._leave_device()
            self._on_device = DeviceBank(bank, values.device, values.dtype)
            self._on_device.restore_age(self._device_age)
        there = self._on_device
        there.update(values)
        low, high = there.minimum, there.maximum
        if self.bounds is not None:
            pair = self._device_tensor("bounds", self.bounds).to(low.dtype)
            low, high = (torch.where(there.count > 0, pair[:, side], torch.nan) for side in (0, 1))
        if there.due:
            inner = there.quantile(self._device_tensor("levels", self.levels))
            self.knots[:, 1:-1] = inner.clamp(low[:, None], high[:, None])
            self.follow(there.quantile(self._device_tensor("likely", _LIKELY)).nan_to_num())
        self.knots[:, 0], self.knots[:, -1] = low, high

    def _leave_device(self) -> None:
        if self._on_device is not None and isinstance(self.bank, ReservoirBank):
            self._on_device.unload(self.bank)
            self._on_device = None

    def _device_tensor(self, name: str, array: np.ndarray[Any, Any]) -> Tensor:
        key = (name, self.knots.device)
        if key not in self._constants:
            self._constants[key] = torch.tensor(array, device=self.knots.device)
        return self._constants[key]

    def get_extra_state(self) -> Tensor:
        if self.bank is None:
            return torch.empty(0, dtype=torch.uint8)
        age = self._device_age
        if self._on_device is not None and isinstance(self.bank, ReservoirBank):
            self._on_device.unload(self.bank)
            age = self._on_device.age
        data = state_to_bytes({**self.bank.state_dict(), _AGE: list(age)})
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        if (self.bank is None) != (state.numel() == 0):
            kind = "fixed knots" if self.bank is None else "knots that follow a stream"
            raise ValueError(f"the state to load does not fit a module with {kind}")
        self._on_device = None
        if self.bank is not None:
            stored = state_from_bytes(state.cpu().numpy().tobytes(), name="the estimator's state")
            writes, batches = stored.pop(_AGE)
            self._device_age = (int(writes), int(batches))
            self.bank.load_state_dict(stored)


class Observer(KnotsModule):
    """Knots alone, for a module that reads ranks off a stream.

    >>> observer = Observer(num_features=1, num_knots=4)
    >>> observer.observe(torch.arange(9.0).unsqueeze(1))
    >>> observer.knots
    tensor([[0., 2., 4., 6., 8.]])
    """

    def __init__(self, num_features: int, num_knots: int, **options: Any) -> None:
        super().__init__()
        self.init_knots(num_features, num_knots, **options)

    def observe(self, values: Tensor) -> None:
        """Take values (B, q), NaN and ±inf included, into the estimator."""
        self.observe_knots(values)


def make_bank(
    estimator: str | EstimatorFactory,
    num_features: int,
    reservoir_size: int,
    seed: int,
    *,
    tolerance: float = 0.0,
    **options: Any,
) -> EstimatorBank:
    """The distributions of q features by any estimator: a name, or a function from a feature's number to one."""
    from daes.distribution import ESTIMATORS, Reservoir

    if callable(estimator):
        if options:
            raise ValueError(f"estimator is a factory and takes no further options, got {', '.join(options)}")
        return EstimatorBank(estimator, num_features)
    if estimator in ("jump", "jump-paper"):
        skip = "paper" if estimator == "jump-paper" else "exact"
        return ReservoirBank(num_features, reservoir_size, seed, skip=skip, tolerance=tolerance, **options)
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)} or a factory, got {estimator!r}")
    if estimator == "reservoir":
        return EstimatorBank(
            lambda f: Reservoir(reservoir_size, seed + f, tolerance=tolerance, **options), num_features
        )
    return EstimatorBank(lambda f: ESTIMATORS[estimator](**options), num_features)


def _check_bounds(
    bounds: tuple[float, float] | Sequence[tuple[float, float]] | None, num_features: int
) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if bounds is None:
        return None
    pairs = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (num_features, 2))
    if not (np.isfinite(pairs).all() and (pairs[:, 0] <= pairs[:, 1]).all()):
        raise ValueError(f"bounds must be finite pairs (low, high) with low <= high, got {bounds}")
    return pairs
