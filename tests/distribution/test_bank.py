"""Many features at once equal each feature by itself; states as bytes are exact, and refused when damaged."""

import io
import json

import numpy as np
import pytest

from daes.distribution import ESTIMATORS, EstimatorBank, JumpReservoir, OrderStatistics
from daes.distribution.bank import state_from_bytes, state_to_bytes


def stream(rows=20_000, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.lognormal(sigma=2, size=(rows, 5)).astype(np.float32)
    values[rows // 5 :, 2][rng.random(rows - rows // 5) < 0.3] = np.nan
    values[:, 3] = 7.0
    values[10:20, 4] = np.inf
    return values


def feed(bank, values, batch):
    for start in range(0, len(values), batch):
        bank.update(values[start : start + batch])
    return bank


def bank_of(features=5, size=400, seed=0, **options):
    return EstimatorBank(lambda feature: JumpReservoir(size, seed=seed + feature, **options), features)


@pytest.mark.parametrize("batch", [1, 100, 8192])
def test_each_feature_is_estimated_by_itself(batch):
    values = stream(3000 if batch == 1 else 20_000)
    bank = feed(bank_of(seed=9), values, batch)
    for feature, estimator in enumerate(bank.estimators):
        alone = JumpReservoir(400, seed=9 + feature)
        alone.update(values[:, feature])
        np.testing.assert_array_equal(estimator.sample, alone.sample)
        assert (bank.count[feature], bank.skipped[feature]) == (alone.count, alone.skipped)


@pytest.mark.parametrize("options", [{}, {"expiry": 3000}, {"half_life": 2000.0}, {"stability": 0.1}])
@pytest.mark.parametrize("at", [100, 9000])
def test_a_saved_bank_goes_on_bit_for_bit(options, at):
    values = stream()
    whole = feed(bank_of(**options), values, 500)
    first = feed(bank_of(**options), values[:at], 500)
    state = first.state_dict()
    json.dumps({name: value for name, value in state.items() if not isinstance(value, np.ndarray)})
    second = bank_of(**options)
    second.load_state_dict(state)
    feed(second, values[at:], 333)
    for mine, theirs in zip(second.estimators, whole.estimators, strict=True):
        np.testing.assert_array_equal(mine.sample, theirs.sample)


def test_merged_banks_are_merged_estimators():
    values = stream()
    one, other = feed(bank_of(seed=1), values[:9000], 500), feed(bank_of(seed=20), values[9000:], 500)
    count = one.count + other.count
    one.merge(other)
    assert one.count.tolist() == count.tolist()
    mine, theirs = JumpReservoir(400, seed=3), JumpReservoir(400, seed=22)
    mine.update(values[:9000, 2])
    theirs.update(values[9000:, 2])
    mine.merge(theirs)
    np.testing.assert_array_equal(one.estimators[2].sample, mine.sample)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_any_estimator_makes_a_bank(name):
    values = stream(3000)
    bank = feed(EstimatorBank(lambda feature: ESTIMATORS[name](), 5), values, 500)
    assert bank.quantile([0.5, 0.9]).shape == (5, 2)
    median = np.nanmedian(np.where(np.isfinite(values[:, 0]), values[:, 0], np.nan))
    assert bank.quantile(0.5)[0, 0] == pytest.approx(median, rel=0.2)
    assert bank.cdf(values[:4]).shape == (4, 5)
    assert bank.skipped[4] == 10


def test_a_feature_never_seen_is_nan():
    bank = bank_of(2, 10)
    bank.update([[1.0, np.nan]])
    bank.update(np.empty((0, 2)))
    assert bank.quantile([0.5]).tolist()[0] == [1.0]
    assert np.isnan(bank.quantile([0.5])[1]).all()
    assert np.isnan(bank.minimum[1])


def test_error_messages():
    bank = bank_of(3, 10)
    with pytest.raises(ValueError, match=r"values must have shape \(B, 3\), got \(2, 2\)"):
        bank.update(np.zeros((2, 2)))
    with pytest.raises(TypeError, match="values must be numeric"):
        bank.update(np.array([["a", "b", "c"]]))
    with pytest.raises(ValueError, match="num_features must be a positive integer, got 0"):
        bank_of(0, 10)
    with pytest.raises(ValueError, match="3 features to merge, got 2"):
        bank.merge(bank_of(2, 10))
    with pytest.raises(TypeError, match="other must be a JumpReservoir"):
        bank.merge(EstimatorBank(lambda feature: OrderStatistics(), 3))
    with pytest.raises(ValueError, match="state has 2 features; this bank has 3"):
        bank.load_state_dict(bank_of(2, 10).state_dict())
    with pytest.raises(ValueError, match="feature 0: state must have size=10, got 20"):
        bank.load_state_dict(bank_of(3, 20).state_dict())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_survives_the_round_trip(name):
    values = np.random.default_rng(0).lognormal(size=5000)
    first, second = ESTIMATORS[name](), ESTIMATORS[name]()
    first.update(values)
    second.load_state_dict(state_from_bytes(state_to_bytes(first.state_dict())))
    levels = np.linspace(0, 1, 21)
    np.testing.assert_array_equal(second.quantile(levels), first.quantile(levels))
    assert (second.count, second.minimum, second.maximum) == (first.count, first.minimum, first.maximum)


def test_the_same_state_gives_the_same_bytes():
    reservoir = JumpReservoir(10)
    reservoir.update([1.0, 2.0])
    assert state_to_bytes(reservoir.state_dict()) == state_to_bytes(reservoir.state_dict())


def test_every_truncation_is_refused():
    reservoir = JumpReservoir(4)
    reservoir.update([1.0, 2.0, 3.0])
    data = state_to_bytes(reservoir.state_dict())
    for length in range(0, len(data), 7):
        with pytest.raises(ValueError, match="truncated, corrupt or not an estimator's state"):
            state_from_bytes(data[:length])
    with pytest.raises(ValueError, match=f"numbers is truncated, corrupt .* \\({len(data) - 10} bytes\\)"):
        state_from_bytes(data[:-10], name="numbers")


def test_a_flipped_bit_of_the_sample_is_refused():
    reservoir = JumpReservoir(1000)
    reservoir.update(np.arange(1000.0))
    data = bytearray(state_to_bytes(reservoir.state_dict()))
    data[data.index(np.arange(1000.0).tobytes()[:64]) + 40] ^= 1
    with pytest.raises(ValueError, match="corrupt"):
        state_from_bytes(bytes(data))


def test_pickled_objects_are_never_loaded():
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, sample=np.array([object()], dtype=object))
    with pytest.raises(ValueError, match="not an estimator's state"):
        state_from_bytes(buffer.getvalue())
