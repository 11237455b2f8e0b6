"""Quantiles read after every batch lie within the tolerance, whatever is written."""

import numpy as np
import pytest

from daes.distribution import JumpReservoir, Reservoir
from daes.distribution.tracked import TrackedQuantiles

DECILES = np.arange(1, 10) / 10


def rank_error(members, levels, values):
    """By how many ranks each value misses its level."""
    ordered = np.sort(members)
    wanted = np.maximum(np.ceil(levels * ordered.size - 1e-9), 1)
    first, last = ordered.searchsorted(values, side="left") + 1, ordered.searchsorted(values, side="right")
    return np.maximum(np.maximum(first - wanted, wanted - last), 0).max()


STREAMS = {
    "lognormal": lambda rng, size: rng.lognormal(sigma=2, size=size),
    "ties": lambda rng, size: rng.integers(0, 6, size).astype(float),
    "half zeros": lambda rng, size: np.where(rng.random(size) < 0.5, 0.0, rng.normal(size=size)),
    "one value": lambda rng, size: np.full(size, 3.0),
    "drift": lambda rng, size: np.linspace(0, 50, size) + rng.normal(size=size),
    "other values from the middle on": lambda rng, size: (
        np.where(np.arange(size) < size // 2, 0.0, 1e300) * rng.normal(size=size)
    ),
    "subnormal": lambda rng, size: rng.integers(-3, 4, size) * 5e-324,
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("make", [JumpReservoir, Reservoir])
def test_quantiles_after_every_batch_are_within_the_tolerance(stream, make):
    rng = np.random.default_rng(0)
    reservoir = make(2000, seed=1, tolerance=0.01)
    values = STREAMS[stream](rng, 60_000)
    for batch in np.split(values, np.cumsum(rng.integers(1, 900, 120))):
        reservoir.update(batch)
        allowed = 0.01 * reservoir.sample.size
        assert rank_error(reservoir.sample, DECILES, reservoir.quantile(DECILES)) <= allowed
    assert reservoir._tracked is not None


def test_reading_the_same_levels_does_not_sort_again(monkeypatch):
    rng = np.random.default_rng(0)
    reservoir = JumpReservoir(2000, tolerance=0.01)
    for _ in range(3):
        reservoir.update(rng.normal(size=2000))
        reservoir.quantile(DECILES)
    monkeypatch.setattr(reservoir._view, "read", None)
    for _ in range(200):
        reservoir.update(rng.normal(size=1000))
        reservoir.quantile(DECILES)


@pytest.mark.parametrize("make", [JumpReservoir, Reservoir])
def test_other_levels_of_a_sample_that_has_grown_since_it_was_sorted(make):
    reservoir = make(2000, tolerance=0.1)
    for start, levels in ((0, [0.5]), (1000, [0.25, 1.0]), (1050, [0.0, 0.9, 1.0]), (1090, [1.0])):
        reservoir.update(np.arange(start, max(start + 40, 1000), dtype=float))
        assert rank_error(reservoir.sample, np.array(levels), reservoir.quantile(levels)) <= 0.1 * reservoir.count


def test_other_levels_more_levels_and_no_tolerance_are_read_from_the_sorted_sample():
    rng = np.random.default_rng(0)
    many = np.linspace(0, 1, TrackedQuantiles.MOST_LEVELS + 1)
    for tolerance, levels in ((0.0, DECILES), (0.01, many), (0.01, DECILES.reshape(3, 3)), (0.01, np.empty(0))):
        reservoir = JumpReservoir(1000, tolerance=tolerance)
        for _ in range(4):
            reservoir.update(rng.normal(size=1000))
            assert reservoir.quantile(levels).shape == levels.shape
        assert reservoir._tracked is None
    reservoir = JumpReservoir(1000, tolerance=0.01)
    reservoir.update(rng.normal(size=1000))
    assert [reservoir.quantile([0.5]), reservoir.quantile([0.5])] == [np.median(reservoir.ordered()[499:500])] * 2
    np.testing.assert_array_equal(reservoir.quantile([0.0, 1.0]), reservoir.ordered()[[0, -1]])


def test_what_is_read_may_be_written_to():
    reservoir = JumpReservoir(1000, tolerance=0.01)
    reservoir.update(np.arange(1000.0))
    for _ in range(4):
        read = reservoir.quantile(DECILES)
        assert read.tolist() == [99.0, 199.0, 299.0, 399.0, 499.0, 599.0, 699.0, 799.0, 899.0]
        read[:] = -1


def test_a_replaced_sample_is_read_anew():
    rng = np.random.default_rng(0)
    reservoir, other = (JumpReservoir(1000, seed=seed, tolerance=0.01) for seed in (0, 1))
    for _ in range(3):
        reservoir.update(rng.normal(size=1000))
        reservoir.quantile(DECILES)
    other.update(rng.normal(size=3000) + 100)
    reservoir.merge(other)
    assert rank_error(reservoir.sample, DECILES, reservoir.quantile(DECILES)) == 0
