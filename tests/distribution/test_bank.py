"""Many features at once equal each feature by itself."""

import json

import numpy as np
import pytest

from daes.distribution import ESTIMATORS, EstimatorBank, JumpReservoir, OrderStatistics, ReservoirBank
from daes.distribution.bank import _column_range


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


@pytest.mark.parametrize("batch", [1, 100, 8192])
@pytest.mark.parametrize("shared", [True, False])
def test_each_feature_is_sampled_as_by_a_reservoir_of_its_own(shared, batch):
    values = stream(3000 if batch == 1 else 20_000)
    bank = feed(ReservoirBank(5, 400, seed=9, shared=shared), values, batch)
    for feature in range(5):
        alone = JumpReservoir(400, seed=9 if shared else 9 + feature)
        alone.update(values[:, feature])
        np.testing.assert_array_equal(bank.estimators[feature].sample, alone.sample)
        assert bank.count[feature] == alone.count
        assert bank.skipped[feature] == alone.skipped
        assert (bank.minimum[feature], bank.maximum[feature]) == (alone.minimum, alone.maximum)
        np.testing.assert_array_equal(bank.quantile([0.1, 0.9])[feature], alone.quantile([0.1, 0.9]))


def test_features_without_missing_values_share_rows_and_random_numbers():
    rows = np.repeat(np.arange(30_000.0)[:, None], 3, axis=1)
    bank = feed(ReservoirBank(3, 500), rows, 1000)
    apart = feed(ReservoirBank(3, 500, shared=False), rows, 1000)
    np.testing.assert_array_equal(bank.estimators[0].sample, bank.estimators[2].sample)
    assert not np.array_equal(apart.estimators[0].sample, apart.estimators[2].sample)
    assert bank.draws * 2.5 < apart.draws


@pytest.mark.parametrize(
    "options", [{}, {"shared": False}, {"expiry": 3000}, {"half_life": 2000.0}, {"stability": 0.1}]
)
@pytest.mark.parametrize("at", [100, 9000])
def test_a_saved_bank_goes_on_bit_for_bit(options, at):
    values = stream()
    whole = feed(ReservoirBank(5, 400, **options), values, 500)
    first = feed(ReservoirBank(5, 400, **options), values[:at], 500)
    state = first.state_dict()
    json.dumps({name: value for name, value in state.items() if not isinstance(value, np.ndarray)})
    second = ReservoirBank(5, 400, **options)
    second.load_state_dict(state)
    feed(second, values[at:], 333)
    for mine, theirs in zip(second.estimators, whole.estimators, strict=True):
        np.testing.assert_array_equal(mine.sample, theirs.sample)
    if options == {} and at == 100:
        assert second.draws == whole.draws  # sharing survives the round trip


def test_merged_banks_are_merged_reservoirs():
    values = stream()
    a, b = (
        feed(ReservoirBank(5, 400, seed=1), values[:9000], 500),
        feed(ReservoirBank(5, 400, seed=2), values[9000:], 500),
    )
    count = a.count + b.count
    a.merge(b)
    assert a.count.tolist() == count.tolist()
    alone, other = JumpReservoir(400, seed=1), JumpReservoir(400, seed=2)
    alone.update(values[:9000, 2])
    other.update(values[9000:, 2])
    alone.merge(other)
    alone.update(values[:, 2])
    before = a.draws
    feed(a, values, 1000)
    np.testing.assert_array_equal(a.estimators[2].sample, alone.sample)
    assert len({id(a.estimators[feature].schedule) for feature in (0, 1, 3)}) == 1  # still without missing values
    assert a.draws > before


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
    bank = ReservoirBank(2, 10)
    bank.update([[1.0, np.nan]])
    bank.update(np.empty((0, 2)))
    assert bank.quantile([0.5]).tolist()[0] == [1.0]
    assert np.isnan(bank.quantile([0.5])[1]).all()
    assert np.isnan(bank.minimum[1])


@pytest.mark.parametrize("rows", [1, 2, 100, 409, 410, 5000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_column_range_is_that_of_numpy(rows, order):
    values = np.asarray(np.random.default_rng(rows).normal(size=(rows, 5)), order=order)
    values[0, 1] = np.nan
    low, high = _column_range(values)
    np.testing.assert_array_equal(low, values.min(0))
    np.testing.assert_array_equal(high, values.max(0))


def test_error_messages():
    bank = ReservoirBank(3, 10)
    with pytest.raises(ValueError, match=r"values must have shape \(B, 3\), got \(2, 2\)"):
        bank.update(np.zeros((2, 2)))
    with pytest.raises(TypeError, match="values must be numeric"):
        bank.update(np.array([["a", "b", "c"]]))
    with pytest.raises(ValueError, match="num_features must be a positive integer, got 0"):
        ReservoirBank(0, 10)
    with pytest.raises(ValueError, match="shared must be False"):
        ReservoirBank(3, 10, shared=True, expiry=5)
    with pytest.raises(ValueError, match="3 features to merge, got 2"):
        bank.merge(ReservoirBank(2, 10))
    with pytest.raises(TypeError, match="must be a ReservoirBank"):
        bank.merge(EstimatorBank(lambda feature: OrderStatistics(), 3))
    with pytest.raises(ValueError, match="state has 2 features; this bank has 3"):
        bank.load_state_dict(ReservoirBank(2, 10).state_dict())
    with pytest.raises(ValueError, match="feature 0: state must have size=10, got 20"):
        bank.load_state_dict(ReservoirBank(3, 20).state_dict())
