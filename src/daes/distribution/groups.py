"""How much the distribution of a feature differs between groups of rows: Kruskal–Wallis and Wasserstein."""

from typing import Literal

import numpy as np

from daes.distribution.base import Floats, Ints

Space = Literal["rank", "value"]


class OrderedFeature:
    """The finite values of a feature in ascending order, ready to be compared between groups of them.

    With v_0 < v_1 < … the places of the distinct values (in value or in rank), F is flat between them. `slot` is the
    index of each value among them, and `groups` are always given in ascending order of the values.
    """

    def __init__(self, column: Floats, space: Space) -> None:
        rows = np.flatnonzero(np.isfinite(column))
        self.order = rows[np.argsort(column[rows], kind="stable")]
        self.size = self.order.size
        ordered = column[self.order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1]])) if self.size else rows
        self.distinct = starts.size
        if self.distinct < 2:
            return
        below_or_equal = np.append(starts[1:], self.size)
        midranks = (starts + below_or_equal) / 2
        counts = below_or_equal - starts
        self.slot = np.repeat(np.arange(self.distinct), counts)
        self.centred = np.repeat(midranks, counts) - self.size / 2
        self.place = midranks / self.size if space == "rank" else _standardised(ordered)[starts]
        self.area = np.append(0.0, np.cumsum(below_or_equal[:-1] / self.size * np.diff(self.place)))
        self.crossing = np.searchsorted(below_or_equal, np.arange(self.size + 1), side="right")

    def kruskal_wallis(self, groups: Ints, sizes: Ints) -> float:
        """The test statistic H, corrected for ties: (n − 1) times the fraction of the ranks' variance between groups.

        `scipy.stats.kruskal` would rank the feature again for every field.
        """
        between = np.square(np.bincount(groups, weights=self.centred)) / sizes
        return (self.size - 1) * float(between.sum()) / float(np.square(self.centred).sum())

    def distance(self, groups: Ints, sizes: Ints) -> float:
        """Σ_g n_g/n · W_1(F_g, F), for all groups in one pass (`scipy.stats.wasserstein_distance` takes one group).

        From one value of a group to its next, F_g is a constant c and F increases. Up to the place where F passes c the
        gap integrates to c·length − ∫F, from there on to ∫F − c·length, with ∫F a running sum.
        """
        # Group by group, ascending within each. Short integers are sorted by radix, which is faster.
        by_group = np.argsort(groups.astype(np.min_scalar_type(sizes.size)), kind="stable")
        here = self.slot[by_group]
        size = np.repeat(sizes, sizes)
        ends = np.cumsum(sizes)
        rank = np.arange(1, self.size + 1) - np.repeat(ends - sizes, sizes)
        following = np.append(here[1:], 0)
        following[ends - 1] = self.distinct - 1
        passed = np.clip(self.crossing[rank * self.size // size], here, following)
        place, area = self.place, self.area
        level = rank / size
        over = level * (place[passed] - place[here]) - (area[passed] - area[here])
        under = area[following] - area[passed] - level * (place[following] - place[passed])
        before_first = area[here[ends - sizes]]
        return float((((over + under) * size).sum() + (before_first * sizes).sum()) / self.size)


def pool_groups(groups: Ints, min_group_size: int) -> Ints:
    """Groups renumbered 0, 1, … without gaps; all below the minimum size become one."""
    sizes = np.bincount(groups)
    kept = sizes >= min_group_size
    number = np.where(kept, np.cumsum(kept) - 1, kept.sum())
    return number[groups]


def _standardised(values: Floats) -> Floats:
    # Divided by the largest first, so that the squares of huge values do not overflow.
    scaled = values / float(np.abs(values).max())
    return scaled / float(scaled.std())
