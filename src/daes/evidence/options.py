"""Options of the evidence."""

from dataclasses import dataclass

from daes.distribution.base import check_non_negative, check_positive

LEAST_RECENT = 0.001
"""Smallest half-life: with a shorter one an error is gone after one row."""


@dataclass(frozen=True)
class Evidence:
    """Which inputs and corrections a model computes from counts of past clicks.

    Args:
        numbers: log odds of a click per quantile bin of each numerical feature.
        categories: log odds of a click per id of each categorical field, and how often the id was seen.
        pairs: number of pairs of fields for whose combinations errors are counted (`Combinations`); 0 for none.
        triples: number of triples of fields likewise, each a pair with one more field; none without pairs.
        weight: initial weight of the log odds of each value and id in the logit, less with many columns.
        strength: prior of every cell: as if it had been seen in this many rows with the average click rate.
        half_life: rows after which a click counts half; None for never.
        recent: half-life, in rows, of the errors by which scores are corrected; a tenth of it is used beside it
            (`RecentErrors`). None for no correction.
        bins: quantile bins per numerical feature.
        pair_bins: bins of a numerical feature within a pair or triple, a divisor of `bins`.
        pair_cells: cells per pair or triple; where it has more combinations, they share cells by hashing.
        choose_after: rows after which pairs and triples are chosen, when bins are next cut again, which is whenever the
            stream has doubled; uninformative ones are replaced when it is four times as long.
        sample_rows: labelled rows that are kept to cut bins again and to choose pairs and triples.

    >>> Evidence(strength=0)
    Traceback (most recent call last):
    ValueError: strength must be positive, got 0
    """

    numbers: bool = True
    categories: bool = True
    pairs: int = 32
    triples: int = 32
    weight: float = 0.2
    strength: float = 20.0
    half_life: float | None = None
    recent: float | None = 300.0
    bins: int = 64
    pair_bins: int = 16
    pair_cells: int = 8_191
    choose_after: int = 8_192
    sample_rows: int = 30_000

    def __post_init__(self) -> None:
        check_non_negative(pairs=self.pairs, triples=self.triples)
        for name in ("bins", "pair_bins", "pair_cells", "choose_after", "sample_rows"):
            check_positive(**{name: getattr(self, name)})
        for name in ("strength", "half_life", "recent"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive{' and finite' if value > 0 else ''}, got {value}")
        if self.recent is not None and self.recent < LEAST_RECENT:
            raise ValueError(f"recent must be at least {LEAST_RECENT} rows, got {self.recent}")
        if not 0 <= self.weight < float("inf"):
            raise ValueError(f"weight must be finite and not negative, got {self.weight}")
        if self.bins % self.pair_bins:
            raise ValueError(f"pair_bins must divide bins={self.bins}, got {self.pair_bins}")
