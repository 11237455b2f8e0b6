"""The Greenwald–Khanna sketch: quantiles whose rank error is bounded with certainty, not in probability."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from daes.distribution.base import DistributionEstimator, Floats, Ints, State, rank_of


class RankSummary(NamedTuple):
    """Some of the values seen, sorted, each with the smallest and the largest rank (from 1) it can have in the stream.

    These are GK's tuples (v, g, Δ) in another notation: low is the running sum of g, high − low is Δ. The smallest and
    the largest value of the stream are always included, so `high[-1]` is the number of values seen. Both bounds
    increase strictly.
    """

    values: Floats
    low: Ints
    high: Ints


class GKSketch(DistributionEstimator):
    """The Greenwald–Khanna sketch: deterministic, every result within ε·n ranks of the exact one.

    After n values `quantile(α)` returns a value of the stream one of whose ranks is within ε·n of ⌈α·n⌉, and `cdf(x)`
    is within ε of F(x), for every stream, order and split into batches. Levels 0 and 1 give the exact minimum and
    maximum, and below 1/ε values everything is exact.

    A batch is sorted, its exact summary combined with the kept one (possible ranks add up), and the result thinned to
    as few tuples as keep high[i+1] − low[i] ≤ 2·ε·n. Combining with exact ranks widens no such gap, so the bound
    always holds.

    **Memory.** 24 bytes per tuple; `num_tuples` is about 0.7/ε on streams in random or sorted order, and at most
    (1 + log₂(1 + ε·n))/ε on all streams in the tests, including adversarial ones.

    **Merging** keeps ε, since ε·n₁ + ε·n₂ = ε·(n₁ + n₂), but not the size, which may become the sum of both (GK is not
    known to be mergeable in small space) and shrinks again as the stream continues.

    M. Greenwald and S. Khanna, "Space-Efficient Online Computation of Quantile Summaries", SIGMOD 2001.

    NOTE[DIFF]: the paper thins within bands of tuples of similar age, which proves a size of at most 11/(2ε)·log₂(2εn);
    here the thinning is greedy (as in GKArray of Luo et al., VLDB Journal 2016), because it is as small in practice and
    vectorises. The error bound does not depend on it; we know of no proof of its size.

    Args:
        epsilon: largest rank error, as a fraction of n; in (0, 0.5).

    >>> sketch = GKSketch(epsilon=0.01)
    >>> for batch in np.split(np.arange(100_000.0), 10):
    ...     sketch.update(batch)
    >>> bool(abs(sketch.quantile(0.5) - 50_000) <= 1000), bool(abs(sketch.cdf(75_000.0) - 0.75) <= 0.01)
    (True, True)
    >>> sketch.quantile([0.0, 1.0])
    array([    0., 99999.])
    >>> sketch.num_tuples < 100
    True
    """

    _settings: ClassVar[tuple[str, ...]] = ("epsilon",)

    def __init__(self, epsilon: float = 0.001) -> None:
        super().__init__()
        if isinstance(epsilon, bool) or not isinstance(epsilon, float | int | np.floating) or not 0 < epsilon < 0.5:
            raise ValueError(f"epsilon must lie between 0 and 0.5, got {epsilon!r}")
        self.epsilon = float(epsilon)
        self._summary = RankSummary(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def num_tuples(self) -> int:
        """Number of values kept."""
        return len(self._summary.values)

    def _absorb(self, values: Floats) -> None:
        ranks = np.arange(1, values.size + 1, dtype=np.int64)
        self._take(RankSummary(np.sort(values), ranks, ranks), self.count + values.size)

    def _merge(self, other: Self) -> None:
        self._take(other._summary, self.count + other.count)

    def _take(self, summary: RankSummary, count: int) -> None:
        self._summary = _thin(_combine(self._summary, summary), self._widest(count))

    def _widest(self, count: int) -> int:
        # Neighbours in an exact summary are one rank apart.
        return max(1, int(2 * self.epsilon * count))

    def _quantile(self, levels: Floats) -> Floats:
        values, low, high = self._summary
        rank = rank_of(levels, self.count)
        # At the middle between the outer rank bounds of two neighbours, either of them is within ε·n.
        halfway = (low[:-1] + high[1:]) / 2
        picked: Floats = values[np.searchsorted(halfway, rank, side="left")]
        return picked

    def _cdf(self, values: Floats) -> Floats:
        kept, low, high = self._summary
        below = np.searchsorted(kept, values, side="right")
        least, most = np.append(0, low)[below], np.append(high, self.count + 1)[below] - 1
        middle: Floats = (least + most) / 2 / self.count
        return middle

    def _state(self) -> State:
        return {name: part.copy() for name, part in self._summary._asdict().items()}

    def _load(self, state: Mapping[str, Any]) -> None:
        summary = RankSummary(
            np.array(state["values"], dtype=np.float64),
            np.array(state["low"], dtype=np.int64),
            np.array(state["high"], dtype=np.int64),
        )
        count = int(state["count"])
        if not _is_sound(summary, count, self._widest(count)):
            raise ValueError(f"state is corrupt: values, low and high are not a summary of {count} values")
        self._summary = summary


def _combine(first: RankSummary, second: RankSummary) -> RankSummary:
    """The summary of both streams. Ranks add up: of a value in its own stream, and of its neighbours in the other.

    So do gaps, less one: the widest gap between rank bounds of neighbours is at most the widest in `first` plus the
    widest in `second` minus one.
    """
    # Of equal values those of `first` come first: one order of the union, whichever side looks.
    parts = (
        (first, second, np.searchsorted(second.values, first.values, side="left")),
        (second, first, np.searchsorted(first.values, second.values, side="right")),
    )
    size = first.values.size + second.values.size
    union = RankSummary(np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64))
    for own, other, before in parts:
        place = before + np.arange(before.size)
        others = other.high[-1] if other.high.size else 0
        union.values[place] = own.values
        union.low[place] = own.low + np.append(0, other.low)[before]
        union.high[place] = own.high + np.append(other.high, others + 1)[before] - 1
    return union


def _thin(summary: RankSummary, widest: int) -> RankSummary:
    """The fewest tuples, including the first and the last, whose neighbours are at most `widest` ranks apart."""
    last = summary.values.size - 1
    jump = np.searchsorted(summary.high, summary.low + widest, side="right") - 1
    assert (jump[:-1] > np.arange(last)).all(), "neighbours are further apart than allowed"
    kept = np.zeros(1, np.int64)
    # Greedy steps from tuple to tuple by doubling: `jump` makes as many steps at once as there are tuples in `kept`.
    while kept[-1] < last:
        kept = np.concatenate((kept, jump[kept]))
        jump = jump[jump]
    kept = kept[: np.searchsorted(kept, last) + 1]
    return RankSummary(summary.values[kept], summary.low[kept], summary.high[kept])


def _is_sound(summary: RankSummary, count: int, widest: int) -> bool:
    values, low, high = summary
    if not values.ndim == low.ndim == high.ndim == 1 or not values.size == low.size == high.size:
        return False
    if not values.size or not count:
        return not values.size and not count
    return bool(
        np.isfinite(values).all()
        and (values[1:] >= values[:-1]).all()
        and (low[1:] > low[:-1]).all()
        and (high[1:] > high[:-1]).all()
        and (low <= high).all()
        and (high[1:] - low[:-1] <= widest).all()
        and low[0] == high[0] == 1
        and low[-1] == high[-1] == count
    )
