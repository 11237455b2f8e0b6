"""A distribution given by points of its CDF, with straight lines between them."""

import numpy as np

from daes.distribution.base import Floats


def quantile_between(points: Floats, ranks: Floats, levels: Floats) -> Floats:
    """inf{x : F(x) ≥ level} where F is linear from (points[i], ranks[i]) to the next; the end points outside.

    **Shape.** `points` and `ranks` are 1-D, of equal length and nondecreasing; the result has the shape of `levels`.
    It is nondecreasing in the level, and exact at the rank of each point.

    >>> points, ranks = np.array([0.0, 10.0, 10.0, 30.0]), np.array([0.0, 0.2, 0.8, 1.0])
    >>> quantile_between(points, ranks, np.array([0.1, 0.2, 0.5, 0.9]))
    array([ 5., 10., 10., 20.])
    """
    right = np.searchsorted(ranks, levels, side="left").clip(max=ranks.size - 1)
    left = (right - 1).clip(min=0)
    inside = np.clip(levels, ranks[left], ranks[right])
    span = ranks[right] - ranks[left]
    back = np.divide(ranks[right] - inside, span, out=np.zeros(levels.shape), where=span > 0)
    # Half of the distance, twice: the distance between two floats may overflow.
    half = back * (points[right] / 2 - points[left] / 2)
    with np.errstate(over="ignore"):  # rounded, twice the half may reach below the least of all floats
        result: Floats = np.clip(points[right] - half - half, points[left], points[right])
    return result


def cdf_between(points: Floats, ranks: Floats, values: Floats) -> Floats:
    """F(x), right-continuous, of the same F: 0 below the first point and 1 from the last on.

    >>> points, ranks = np.array([0.0, 10.0, 10.0, 30.0]), np.array([0.0, 0.2, 0.8, 1.0])
    >>> cdf_between(points, ranks, np.array([-1.0, 5.0, 10.0, 20.0]))
    array([0. , 0.1, 0.8, 0.9])
    """
    right = np.searchsorted(points, values, side="right")
    left = (right - 1).clip(min=0)
    beyond = right == points.size
    right = right.clip(max=points.size - 1)
    inside = np.clip(values, points[left], points[right])
    span = points[right] / 2 - points[left] / 2
    share = np.divide(inside / 2 - points[left] / 2, span, out=np.zeros(values.shape), where=span > 0)
    between = np.clip(ranks[left] + share * (ranks[right] - ranks[left]), ranks[left], ranks[right])
    result: Floats = np.where(beyond, 1.0, np.where(values < points[0], 0.0, between))
    return result
