"""Compiled loops on NumPy arrays give what the plain versions give, bit for bit."""

from copy import deepcopy

import numpy as np
import pytest

from daes import native
from daes.distribution import JumpReservoir, Reservoir
from daes.distribution.schedule import ExactSchedule
from daes.native import arrays

pytestmark = pytest.mark.skipif(not arrays.serves(), reason="the loops are not compiled: python -m daes.native")


@pytest.fixture
def plainly(monkeypatch):
    """Calls a function without compiled loops."""

    def call(work, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(native, "_library", None)
            return work(*arguments)

    return call


@pytest.mark.parametrize("size", [1, 2, 3, 37, 1000, 65536, 100_000, 3_000_000])
@pytest.mark.parametrize("times", [2, 40, 10**5])
def test_acceptances(size, times, plainly):
    def take(seed):
        schedule, end = ExactSchedule(size, seed), min(size * times, 10**9)
        parts = [schedule.take(stop) for stop in (end // 7, end // 3, end)]
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)], schedule.state_dict(), schedule.draws

    for seed in range(2):
        (places, state, draws), (plain_places, plain_state, plain_draws) = take(seed), plainly(take, seed)
        assert all(map(np.array_equal, places, plain_places))
        assert (state, draws) == (plain_state, plain_draws)


def test_gaps_near_a_whole_number_are_found_in_double_precision(monkeypatch, plainly):
    """Far along a stream most gaps are too large for single precision."""

    def positions():
        return ExactSchedule(50, 3).take(10**12).positions

    found, unsure = [], arrays.jump

    def jump(*arguments):
        found.append(unsure(*arguments))
        return found[-1]

    monkeypatch.setattr(arrays, "jump", jump)
    compiled = positions()
    assert max(one.unsure.places.size for one in found if one.unsure) > 1000
    assert np.array_equal(compiled, plainly(positions))


def awkward(rng, size):
    """Skewed values with ties, missing values and infinities."""
    values = np.exp(rng.normal(size=size) * 2)
    values[rng.random(size) < 0.3] = 1.5
    if rng.random() < 0.5:
        values[rng.random(size) < 0.2] = np.nan
    if rng.random() < 0.3:
        values[rng.random(size) < 0.05] = rng.choice([np.inf, -np.inf])
    return values


@pytest.mark.parametrize(
    "make",
    [
        lambda: JumpReservoir(1),
        lambda: JumpReservoir(5, tolerance=0.5),
        lambda: JumpReservoir(500, tolerance=0.01),
        lambda: JumpReservoir(500, "paper", tolerance=0.01),
        lambda: JumpReservoir(500, tolerance=0.01, half_life=4000),
        lambda: JumpReservoir(500, tolerance=0.01, expiry=3000),
        lambda: JumpReservoir(500, tolerance=0.01, stability=0.1, min_size=50),
        lambda: Reservoir(500, tolerance=0.01),
    ],
)
def test_reservoirs(make, plainly):
    def feed():
        rng, reservoir, read = np.random.default_rng(1), make(), []
        for _ in range(80):
            reservoir.update(awkward(rng, rng.integers(0, 700)))
            read.append(reservoir.quantile([0.1, 0.5, 0.9]))
        reservoir.update(rng.normal(size=(300, 2))[:, 1])  # not contiguous
        return reservoir.state_dict(), reservoir.ordered(), read

    (state, ordered, read), (plain_state, plain_ordered, plain_read) = feed(), plainly(feed)
    for name, value in plain_state.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
    np.testing.assert_array_equal(ordered, plain_ordered)
    np.testing.assert_array_equal(read, plain_read)


@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 1000])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_the_range_of_values_and_whether_all_are_finite(size, bad):
    rng = np.random.default_rng(size)
    for place in {0, size // 2, size - 1}:
        values = rng.normal(size=size)
        if bad is not None:
            values[place] = bad
        slots, block = np.empty(1), (np.array([1]), np.array([0]))
        writer = arrays.Writer(slots)
        written, filled = writer.write(values.ctypes.data, size, 0, block, 0, 0, None, look=True)
        if bad is None:
            assert (written, filled, slots[0]) == (1, 1, values[0])
            assert tuple(writer.range) == (values.min(), values.max())
        else:
            assert (written, filled) == (-1, 0)


def test_values_that_must_not_be_written_to():
    values = np.arange(50.0)
    values.setflags(write=False)
    reservoir = JumpReservoir(100)
    reservoir.update(values)
    assert reservoir.sample.tolist() == values.tolist()


@pytest.mark.parametrize("size", [0, 1, 5, 1024, 3000])
def test_counting_values_up_to_points(size):
    rng = np.random.default_rng(0)
    values, points = rng.integers(0, 50, size).astype(float), rng.integers(-1, 51, 9).astype(float)
    assert arrays.count_up_to(values, points).tolist() == [int((values <= point).sum()) for point in points]


def test_a_copy_does_not_write_into_the_original():
    rng = np.random.default_rng(0)
    first = JumpReservoir(100, tolerance=0.1)
    for _ in range(3):
        first.update(rng.normal(size=200))
        first.quantile([0.5])
    second, sample = deepcopy(first), first.sample
    second.update(rng.normal(size=5000))
    assert np.array_equal(first.sample, sample)
    assert not np.array_equal(second.sample, sample)
    assert second.quantile([0.5]) == pytest.approx(np.median(second.sample), abs=0.5)
