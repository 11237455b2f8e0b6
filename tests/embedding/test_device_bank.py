"""Reservoirs on a device hold, bit for bit, what the bank on the host holds. Torch's CPU device stands in."""

import numpy as np
import pytest
import torch

from daes.distribution import ReservoirBank
from daes.embedding.device_bank import DeviceBank

CPU = torch.device("cpu")


def stream(rows: int = 30_000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.lognormal(sigma=2, size=(rows, 4)).astype(np.float32)
    values[:, 1] = np.floor(values[:, 1])
    values[rng.random(rows) < 0.4, 2] = np.nan
    values[5000:5100, 3] = np.inf
    return values


@pytest.mark.parametrize("skip", ["exact", "paper"])
@pytest.mark.parametrize("batch", [1000, 7777])
def test_the_device_holds_what_the_host_holds(skip, batch):
    values = stream()
    host = ReservoirBank(4, 500, seed=3, skip=skip)
    device = DeviceBank(ReservoirBank(4, 500, seed=3, skip=skip), CPU)
    levels = np.arange(1, 10) / 10
    for start in range(0, len(values), batch):
        host.update(values[start : start + batch])
        device.update(torch.from_numpy(values[start : start + batch]))
        np.testing.assert_array_equal(device.quantile(torch.from_numpy(levels)).numpy(), host.quantile(levels))
        np.testing.assert_array_equal(device.minimum.numpy(), host.minimum)
        np.testing.assert_array_equal(device.maximum.numpy(), host.maximum)
        assert device.count.tolist() == host.count.tolist()
        assert device.skipped.tolist() == host.skipped.tolist()


def test_a_bank_goes_to_the_device_and_back_and_goes_on():
    values = stream()
    whole, travels = ReservoirBank(4, 500, seed=3), ReservoirBank(4, 500, seed=3)
    whole.update(values)
    travels.update(values[:9000])
    device = DeviceBank(travels, CPU)
    device.update(torch.from_numpy(values[9000:20_000]))
    device.unload(travels)
    travels.update(values[20_000:])
    for feature in range(4):
        np.testing.assert_array_equal(travels.estimators[feature].sample, whole.estimators[feature].sample)
    assert travels.count.tolist() == whole.count.tolist()


def test_a_feature_never_seen_has_no_quantile():
    device = DeviceBank(ReservoirBank(2, 10), CPU)
    device.update(torch.tensor([[1.0, torch.nan], [2.0, torch.inf]]))
    assert device.quantile(torch.tensor([0.5]))[0] == 1.0
    assert device.quantile(torch.tensor([0.5]))[1].isnan()
    assert device.minimum[1].isnan()


def test_tolerance_spares_sorting_but_not_for_ever():
    device = DeviceBank(ReservoirBank(1, 1000, tolerance=0.2), CPU)
    device.update(torch.arange(1000.0).unsqueeze(1))
    first = device.quantile(torch.tensor([0.5])).item()
    for _ in range(20):
        device.update(torch.full((5, 1), 1e6))
        last = device.quantile(torch.tensor([1.0], dtype=torch.float64)).item()
    assert first == 499
    assert last == 1e6


def test_reservoirs_that_adapt_stay_on_the_host():
    bank = ReservoirBank(2, 100, half_life=50.0)
    assert not DeviceBank.fits(bank)
    with pytest.raises(ValueError, match="follow one schedule"):
        DeviceBank(bank, CPU)
