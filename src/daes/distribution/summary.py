"""The distributions of all numerical columns of a table, which may be read in parts."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from daes.distribution.bank import EstimatorBank
from daes.distribution.base import check_non_negative
from daes.distribution.jump import JumpReservoir

SUMMARY_LEVELS = (0.01, 0.25, 0.5, 0.75, 0.99)
"""Default quantile levels of a summary."""


class TableSummary(EstimatorBank):
    """One jump reservoir per column: counts, range and quantiles of a table after one pass over its parts.

    Different processes may read the parts of a table, in any order, each into its own summary. The merged summaries
    have the law of one summary of all rows: every value is a member of the sample with probability m/n.

    **Shape.** As in `EstimatorBank`: `update` takes (B, q), NaN = missing (`skipped`); `quantile` returns (q, L).

    Args:
        columns: the names of the q columns.
        size: slots m of each reservoir.
        seed: of the random numbers.
        part: number of the part of the table to read. Summaries to be merged need different numbers.

    >>> whole = TableSummary(["price"], part=0)
    >>> whole.update([[1.0], [3.0]])
    >>> second = TableSummary(["price"], part=1)
    >>> second.update([[2.0], [np.nan]])
    >>> whole.merge(second)
    >>> whole.count.tolist(), whole.skipped.tolist(), whole.quantile([0.5]).tolist()
    ([3], [1], [[2.0]])
    """

    def __init__(self, columns: Sequence[str], *, size: int = 100_000, seed: int = 0, part: int = 0) -> None:
        self.columns = tuple(columns)
        self.size = size
        own_seed = seed_of_part(seed, part)
        super().__init__(lambda column: JumpReservoir(size, seed=own_seed), len(self.columns))

    @property
    def rows(self) -> int:
        """Number of rows read."""
        return int(self.count[0] + self.skipped[0])

    def reservoir(self, column: str) -> JumpReservoir:
        """The reservoir of a column."""
        found = self.estimators[self.columns.index(column)]
        assert isinstance(found, JumpReservoir)
        return found

    def merge(self, other: Self) -> None:
        """Add the summary of other rows of the same table."""
        if other.columns != self.columns:
            raise ValueError(f"other must have the columns {', '.join(self.columns)}, got {', '.join(other.columns)}")
        super().merge(other)

    def to_dict(self, levels: Sequence[float] = SUMMARY_LEVELS) -> dict[str, Any]:
        """Counts, range and quantiles by column as plain values; None where a column has no value."""
        found = {
            "count": self.count,
            "missing": self.skipped,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "quantiles": self.quantile(levels),
        }
        plain = {kind: np.where(np.isnan(values), np.array(None), values).tolist() for kind, values in found.items()}
        columns = {
            name: {kind: values[place] for kind, values in plain.items()} for place, name in enumerate(self.columns)
        }
        return {"rows": self.rows, "size": self.size, "levels": list(levels), "columns": columns}


def seed_of_part(seed: int, part: int) -> int:
    """The seed of the reservoirs of one part of a table, different for every part."""
    check_non_negative(seed=seed, part=part)
    return int(np.random.SeedSequence((seed, part)).generate_state(1, np.uint64)[0])
