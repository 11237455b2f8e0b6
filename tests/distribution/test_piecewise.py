"""Points of a CDF with straight lines between them: against a slow reading of the definition, and at the edges."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daes.distribution.piecewise import cdf_between, quantile_between

finite = st.floats(allow_nan=False, allow_infinity=False)
levels = st.floats(0, 1)


@st.composite
def polygons(draw):
    size = draw(st.integers(1, 8))
    points = sorted(draw(st.lists(finite, min_size=size, max_size=size)))
    ranks = sorted(draw(st.lists(levels, min_size=size, max_size=size)))
    return np.array(points), np.array(ranks)


POINTS = np.array([-2.0, 0.0, 0.0, 0.0, 1.0, 5.0, 5.0])
RANKS = np.array([0.0, 0.125, 0.5, 0.75, 0.75, 0.875, 1.0])


@pytest.mark.parametrize(
    ("level", "value"),
    [(0, -2), (0.0625, -1), (0.125, 0), (0.3, 0), (0.75, 0), (0.8125, 3), (0.875, 5), (0.9, 5), (1, 5)],
)
def test_quantile_by_hand(level, value):
    assert quantile_between(POINTS, RANKS, np.array(float(level))) == value


@pytest.mark.parametrize(
    ("value", "rank"),
    [(-3, 0), (-2, 0), (-1, 0.0625), (-1e-300, 0.125), (0, 0.75), (0.5, 0.75), (1, 0.75), (3, 0.8125), (5, 1), (9, 1)],
)
def test_cdf_by_hand(value, rank):
    assert cdf_between(POINTS, RANKS, np.array(float(value))) == rank


def test_infinities_are_outside_every_point():
    assert cdf_between(POINTS, RANKS, np.array([-np.inf, np.inf])).tolist() == [0.0, 1.0]


@given(polygons(), st.lists(levels, min_size=2, max_size=20).map(sorted))
@example((np.array([-np.finfo(float).max, -3.27e294, 0.0]), np.array([0.0, 1.0, 1.0])), [0.0, 1.5e-45])
def test_quantile_is_monotone_and_within_the_points(polygon, wanted):
    points, ranks = polygon
    found = quantile_between(points, ranks, np.array(wanted))
    assert (found[1:] >= found[:-1]).all()
    assert found[0] >= points[0]
    assert found[-1] <= points[-1]


@given(polygons(), st.lists(finite, min_size=2, max_size=20).map(sorted))
def test_cdf_is_monotone_and_within_0_and_1(polygon, wanted):
    found = cdf_between(*polygon, np.array(wanted))
    assert (found[1:] >= found[:-1]).all()
    assert found[0] >= 0
    assert found[-1] <= 1


@given(polygons())
def test_every_point_is_met_exactly(polygon):
    points, ranks = polygon
    for point, rank in zip(points, ranks, strict=True):
        assert quantile_between(points, ranks, np.array(rank)) == points[ranks >= rank][0]
        at_least = 1.0 if point == points[-1] else ranks[points <= point][-1]
        assert cdf_between(points, ranks, np.array(point)) == at_least


def test_the_whole_range_of_floats_is_crossed():
    most = np.finfo(np.float64).max
    points, ranks = np.array([-most, most]), np.array([0.0, 1.0])
    assert quantile_between(points, ranks, np.array([0.25, 0.5, 0.75])) == pytest.approx([-most / 2, 0, most / 2])
    assert cdf_between(points, ranks, np.array([-most / 2, 0, most / 2])) == pytest.approx([0.25, 0.5, 0.75])
