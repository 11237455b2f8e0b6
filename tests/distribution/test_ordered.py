"""The sorted view equals a sort, whatever was written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daes.distribution.ordered import OrderedView


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_view_equals_a_sort_after_any_writes(seed, size, rounds):
    rng = np.random.default_rng(seed)
    slots, filled, view = np.empty(size), 0, OrderedView()
    for _ in range(rounds):
        grown = int(rng.integers(filled, size + 1)) or 1
        written = np.concatenate([np.arange(filled, grown), rng.integers(0, grown, rng.integers(0, 5))])
        filled = grown
        slots[written] = rng.integers(0, 7, written.size)  # many ties
        view.mark(written)
        if rng.random() < 0.7:
            np.testing.assert_array_equal(view.read(slots[:filled]), np.sort(slots[:filled]))
    np.testing.assert_array_equal(view.read(slots[:filled]), np.sort(slots[:filled]))


def test_tolerance_bounds_how_far_a_rank_lags():
    rng = np.random.default_rng(0)
    slots, view = rng.normal(size=1000), OrderedView(tolerance=0.02)
    view.mark(np.arange(1000))
    before = view.read(slots).copy()
    for _ in range(200):
        slot = rng.integers(0, 1000, 3)
        slots[slot] = rng.normal(loc=2, size=3)
        view.mark(slot)
        ordered = view.read(slots)
        exact = np.sort(slots)
        lag = np.abs(ordered.searchsorted(exact) - np.arange(1000)) / 1000
        assert lag.max() <= 0.02
    assert not np.array_equal(before, view.read(slots))


def test_a_view_within_tolerance_is_not_rebuilt():
    slots, view = np.arange(100.0), OrderedView(tolerance=0.05)
    view.mark(np.arange(100))
    first = view.read(slots)
    slots[3] = 500.0
    view.mark(np.array([3]))
    assert view.read(slots) is first


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan")])
def test_tolerance_is_checked(tolerance):
    with pytest.raises(ValueError, match=r"tolerance must lie in \[0, 1\)"):
        OrderedView(tolerance)
