"""What evidence keeps: counts of past clicks per bin and id, a sample of rows, and errors of scores."""

from math import comb, log
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from daes import native
from daes.embedding.precision import KeepsPrecision
from daes.embedding.search import count_below, finite
from daes.evidence.combinations import Combinations
from daes.evidence.division import Division
from daes.evidence.odds import NO_CUT, log_odds
from daes.evidence.options import Evidence
from daes.evidence.recent import RecentErrors
from daes.evidence.sample import RowSample
from daes.native.evidence import Counts

_Number = TypeVar("_Number", float, Tensor)

_MOST_WEIGHT = 8.0
"""Largest initial sum of the weights of all columns: the odds of correlated columns add up."""


class EvidenceState(KeepsPrecision):
    """The counts of `EvidenceInputs`, and where a row's values are in them; its arguments are explained there."""

    number_counts: Tensor
    row_counts: Tensor
    edges: Tensor
    total: Tensor
    weight: nn.Parameter | None
    _offsets: Tensor

    def __init__(
        self, options: Evidence, num_numerical: int, offsets: list[int], table_rows: int, *, seed: int = 0
    ) -> None:
        super().__init__()
        self.options = options
        self.num_numerical = num_numerical
        self.num_categorical = len(offsets)
        self.table_rows = table_rows
        numbers = self._numbers = num_numerical if options.numbers else 0  # how many numbers are counted
        categories = self.num_categorical if options.categories else 0
        self.dim = numbers + 2 * categories
        self.register_buffer("_offsets", torch.tensor(offsets, dtype=torch.int64), persistent=False)
        self.register_buffer("total", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("edges", torch.full((numbers, options.bins - 1), NO_CUT, dtype=torch.float32))
        self.register_buffer("number_counts", torch.zeros(numbers, options.bins + 1, 2, dtype=torch.float64))
        self.register_buffer("row_counts", torch.zeros(table_rows if categories else 0, 2, dtype=torch.float64))
        columns = numbers + categories
        start = torch.zeros(self.dim)
        start[:columns] = min(options.weight, _MOST_WEIGHT / max(columns, 1))
        self.register_parameter("weight", nn.Parameter(start) if self.dim else None)
        self.frozen = False
        self.sample: RowSample | None = None
        pairs, triples = min(options.pairs, comb(columns, 2)), min(options.triples, comb(columns, 3))
        self.combinations: Combinations | None = None
        if pairs:  # triples are pairs with one more field
            self.combinations = Combinations(pairs, triples, options.pair_cells, options.strength)
        if numbers or pairs:
            self.sample = RowSample(options.sample_rows, num_numerical, self.num_categorical, seed)
        self.recent: RecentErrors | None = None
        self._counts: Counts | None = None
        self._tables: tuple[Tensor, ...] | None = None  # see `tabled`
        self._grown_from: int | None = None  # rows before an update that `refit` has yet to follow
        self.division: Division | None = None
        """How counting is divided among processes; None if it is not."""
        if self.dim and options.recent is not None:
            cells = 1 + numbers * (options.bins + 1) + len(self.row_counts)
            self.recent = RecentErrors(cells, 1 + columns, options.recent, options.strength)

    def counts(self) -> Counts | None:
        """The counts for compiled loops; None if these cannot be used."""
        if not native.serves():
            return None
        own, recent = self._buffers, self.recent
        used: list[Any] = [own["edges"], own["total"], own["number_counts"], own["row_counts"]]
        used += [None, None] if recent is None else recent._buffers.values()
        used += [None, None] if self.combinations is None else self.combinations._buffers.values()
        if self._counts is None or not self._counts.are_in(used):
            options, half_life = self.options, 1.0 if recent is None else recent.half_life
            cells = self._numbers, options.bins, self.table_rows, used
            others = self.num_categorical, options.strength, half_life, self._fine_bins
            self._counts = Counts(*cells, *others) if Counts.serves(*cells) else None
        if recent is not None and self._counts is not None:
            self._counts.wait(recent.waiting)
        return self._counts

    def _counts_for(
        self, numbers: Tensor, rows: Tensor, labels: Tensor | None = None, logits: Tensor | None = None
    ) -> Counts | None:
        """`counts`, if a batch has the shapes, dtypes and rows that compiled loops require; else None."""
        if not native.serves(numbers, rows, labels, logits):
            return None
        count = rows.shape[0]
        fits = (
            are_floats(count, labels, logits)
            and (numbers.dtype, rows.dtype) == (torch.float32, torch.int64)
            and numbers.shape == (count, self.num_numerical)
            and rows.shape == (count, self.num_categorical)
            and native.within(rows, self.table_rows)
        )
        return self.counts() if fits else None

    def prior(self) -> float:
        """p̄, the click rate so far; reading it waits for a device."""
        rows, clicks = self.total.tolist()
        return _click_rate(float(rows), float(clicks))

    def base(self) -> float:
        """The logit of the click rate so far; reading it waits for a device."""
        prior = self.prior()
        return log(prior / (1 - prior))

    def strength_by_column(self) -> Tensor:
        """How informative each column is: the root mean square, over the rows seen, of its log odds.

        **Shape.** (q + p,), numbers first; columns that are not counted are left out.
        """

        def spread(counts: Tensor) -> Tensor:
            """(…, cells, 2) → (…)."""
            views = counts[..., 0]
            squares = views * self._odds(counts).square()
            return (squares.sum(-1) / views.sum(-1).clamp(min=1)).sqrt()

        found = [spread(self.number_counts)]
        if len(self.row_counts):
            found += [spread(one)[None] for one in self.row_counts.tensor_split(self._offsets.tolist()[1:])]
        return torch.cat(found)

    def bins(self, numbers: Tensor) -> Tensor:
        """The bin of each number that is counted, (B, q); the last one is for missing values."""
        found = count_below(self.edges, finite(numbers.to(self.edges.dtype)))
        return torch.where(torch.isnan(numbers), self.options.bins, found)

    def coarse_bins(self, numbers: Tensor) -> Tensor:
        """The value of each number in a combination, (B, q)."""
        return self.bins(numbers) // self._fine_bins

    def cells(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """The cells of `recent` for a batch, (B, 1 + q + p): that of all rows, then those of bins and of ids."""
        numbers, rows = self._counted(numbers, rows)
        places = self._bin_places(numbers)
        after = 1 + self._numbers * (self.options.bins + 1)
        return torch.cat([places.new_zeros(len(places), 1), places + 1, rows + after], 1)

    def freeze(self) -> Self:
        """Keep the counts and drop the sample and recent errors: nothing is counted from then on."""
        self.frozen = True
        if self.combinations is not None:
            self.combinations.freeze(self._spread())
        self.sample = None
        self.recent = None
        return self

    def _odds(self, counts: Tensor) -> Tensor:
        """Log odds of cells, of which there are views and clicks (…, 2), to those of the click rate."""
        views, clicks = counts.unbind(-1)
        return log_odds(views, clicks, self._prior(), self.options.strength)

    def _prior(self) -> Tensor:
        """p̄, the click rate so far."""
        return _click_rate(self.total[0], self.total[1])

    def _spread(self) -> Tensor:
        """p̄·(1 − p̄)."""
        prior = self._prior()
        return prior * (1 - prior)

    def _counted(self, numbers: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers and rows, without columns where they are not counted."""
        return numbers if self.options.numbers else numbers[:, :0], rows if self.options.categories else rows[:, :0]

    def _bin_places(self, numbers: Tensor) -> Tensor:
        """The bin of each number that is counted, among those of all numbers."""
        return self.bins(numbers) + torch.arange(self._numbers, device=numbers.device) * (self.options.bins + 1)

    def _values(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """The value of each field in a combination: a coarse bin, or the row of the table, (B, q + p)."""
        numbers, rows = self._counted(numbers, rows)
        return torch.cat([self.coarse_bins(numbers), rows], 1)

    @property
    def _fine_bins(self) -> int:
        """How many bins of a number are one value in a combination."""
        return self.options.bins // self.options.pair_bins

    def get_extra_state(self) -> Tensor:
        """Whether this is frozen."""
        return torch.tensor(self.frozen)

    def set_extra_state(self, state: Tensor) -> None:
        self.frozen = bool(state)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any, **options: Any) -> None:
        if f"{prefix}total" in state_dict:  # a state of other parts alone changes nothing here
            lacks_sample = self.sample is not None and f"{prefix}sample.seen" not in state_dict
            # Older states do not say whether they are frozen, but have no sample then.
            if state_dict.setdefault(f"{prefix}_extra_state", torch.tensor(lacks_sample)):
                self.freeze()
            if f"{prefix}recent.errors" not in state_dict:
                self.recent = None  # a state may lack recent errors
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def are_floats(rows: int, *tensors: Tensor | None) -> bool:
    """Whether each of these tensors has a float32 number for every row."""
    for one in tensors:  # noqa: SIM110 (quicker than `all`)
        if one is not None and (one.dtype != torch.float32 or one.shape != (rows,)):
            return False
    return True


def _click_rate(rows: _Number, clicks: _Number) -> _Number:
    """p̄ = (clicks + 2) / (rows + 10)."""
    return (clicks + 2) / (rows + 10)
