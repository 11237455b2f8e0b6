"""What a model shall learn by counting: one typed dataclass, validated once."""

from dataclasses import dataclass

LEAST_RECENT = 0.001
"""Of a shorter half-life nothing is left after a row."""


@dataclass(frozen=True)
class Evidence:
    """What past clicks say of a value, an id, a pair of fields: inputs of a model that are learned by counting.

    Args:
        numbers: log odds of a click per quantile bin of each numerical feature.
        categories: log odds of a click per id of each categorical field, and how often the id was seen.
        pairs: how many pairs of fields to keep log odds beyond the sum of their parts for; 0 for none.
        weight: what the log odds of each value and id weigh in the logit at the start, less with many columns; learned
            from then on.
        strength: how many rows with the average click rate every cell starts with.
        half_life: rows after which a click counts half; None for never.
        recent: rows after which an error of the model's own scores counts half in what is added to the next ones, and
            with a tenth of that beside it (`RecentErrors`); None to add nothing.
        bins: quantile bins per numerical feature.
        pair_bins: bins of a numerical feature within a pair, a divisor of `bins`.
        pair_cells: cells per pair; where a pair has more combinations, they share cells by hashing.
        sample_rows: labelled rows that are kept to cut bins anew and to choose pairs.

    >>> Evidence(strength=0)
    Traceback (most recent call last):
    ValueError: strength must be positive, got 0
    """

    numbers: bool = True
    categories: bool = True
    pairs: int = 0
    weight: float = 0.2
    strength: float = 20.0
    half_life: float | None = None
    recent: float | None = 300.0
    bins: int = 64
    pair_bins: int = 16
    pair_cells: int = 16_381
    sample_rows: int = 30_000

    def __post_init__(self) -> None:
        for name in ("strength", "bins", "pair_bins", "pair_cells", "sample_rows", "half_life", "recent"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive{' and finite' if value > 0 else ''}, got {value}")
        if self.recent is not None and self.recent < LEAST_RECENT:
            raise ValueError(f"recent must be at least {LEAST_RECENT} rows, got {self.recent}")
        if not 0 <= self.weight < float("inf"):
            raise ValueError(f"weight must be finite and not negative, got {self.weight}")
        if self.pairs < 0:
            raise ValueError(f"pairs must not be negative, got {self.pairs}")
        if self.bins % self.pair_bins:
            raise ValueError(f"pair_bins must divide bins={self.bins}, got {self.pair_bins}")
        if self.pairs and not (self.numbers and self.categories):
            raise ValueError("pairs need the evidence of numbers and of categories, which are their parts")
