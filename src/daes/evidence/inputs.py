"""Log odds from counts of past clicks, as inputs of a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import comb, log
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from daes import native
from daes.embedding import kernels
from daes.embedding.precision import KeepsPrecision
from daes.embedding.search import count_below, finite
from daes.evidence.combinations import Combinations
from daes.evidence.division import Division
from daes.evidence.odds import NO_CUT, confidence, cut_points, log_odds
from daes.evidence.options import Evidence
from daes.evidence.recent import RecentErrors
from daes.evidence.sample import UNSCORED, RowSample
from daes.native.evidence import Counts, Found, tally
from daes.native.threads import map_parts

_Number = TypeVar("_Number", float, Tensor)

_MOST_WEIGHT = 8.0
"""Largest initial sum of the weights of all columns: the odds of correlated columns add up."""


class EvidenceInputs(KeepsPrecision):
    """Log odds of a click for each value of a batch, from the counts of past clicks.

    With p̄ = (clicks + 2) / (rows + 10), the click rate so far, and `log_odds` z shrunk to a prior:

    - **numbers**: z of the value's quantile bin against p̄; missing values have their own bin. The bins are cut again,
      from a sample of labelled rows, whenever the stream has doubled, and their counts are those of that sample.
    - **categories**: z of the id against p̄, and its confidence, log(1 + n)/4 − 1.

    They are inputs of a network, and their weighted sum is a logit, `logit`: logit p̄ + Σ w·input, where the learned w
    start at `weight` for z (with more than 40 columns at 8 / columns, if that is less) and at 0 for the rest. So an
    untrained network scores by the counts alone.

    The errors of the model's own scores are counted too: per combination of the values of chosen pairs and triples of
    fields, which `combined` returns as a part of every score (`Combinations`), and with `recent` per single value among
    the last rows, from which `correction` is computed, which training adds to the logits (`RecentErrors`).

    A forward changes nothing. `update` counts labelled rows: call it once their labels are known and they have been
    learned from, so that no row is scored or learned with its own label.

    **Shape.** forward: numbers (B, q) with NaN = missing, rows (B, p) of the categorical table → (B, `dim`), numbers
    first, then z and confidence of categories. Buffers: `number_counts` (q, bins + 1, 2), `row_counts` (table rows, 2):
    views and clicks; `total` (2,): rows and clicks. Parameter: `weight` (`dim`,).

    Args:
        options: what to count.
        num_numerical: number q of numerical features.
        offsets: first row of each categorical field in the table, (p,).
        table_rows: rows of the table.
        seed: of the random numbers of the sample.

    >>> counted = EvidenceInputs(Evidence(bins=2, pair_bins=1), num_numerical=1, offsets=[0], table_rows=3)
    >>> numbers, rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> counted(numbers, rows).tolist()[0]  # nothing is known yet
    [0.0, 0.0, -1.0]
    >>> counted.update(numbers, rows, torch.tensor([0.0, 0.0, 1.0, 1.0]))
    >>> counted(numbers, rows)[:, 0].sign().tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """

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

    def forward(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor:
        numbers, rows = _both(numbers, rows)
        if (counts := self._counts_for(numbers, rows)) is not None:
            return counts.inputs(numbers, rows)
        numbers, rows = self._counted(numbers, rows)
        if kernels.usable(numbers, rows):
            counted = self.total, self.edges, self.number_counts, self.row_counts
            return kernels.evidence(numbers, rows, counted, self.options.strength)
        places = self._bin_places(numbers)
        if self._tables is not None and torch.compiler.is_exporting():
            found = [embedding(at, table) for at, table in zip((places, rows, rows), self._tables, strict=False)]
            return torch.cat(found, 1).squeeze(-1)
        # Few bins, many values: the odds are computed per bin and looked up.
        odds = self._odds(self.number_counts).flatten()[places]
        of_ids = self.row_counts[rows]
        return torch.cat([odds, self._odds(of_ids), confidence(of_ids[..., 0])], 1).to(torch.float32)

    def combined(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor | None:
        """Correction of the logits for the errors of `combinations`, (B,); None without these."""
        found, (numbers, rows) = self.combinations, _both(numbers, rows)
        if found is None:
            return None
        if kernels.usable(numbers, rows, self.edges):
            known, each = (found.fields, found.errors, found.weight.float()), self._fine_bins
            numbers, rows = self._counted(numbers, rows)
            return kernels.combine(numbers, rows, (self.edges, self.total), known, each, found.strength)
        if (counts := self._counts_for(numbers, rows)) is not None:
            odds = counts.combine(numbers, rows)
        elif self._tables is not None and torch.compiler.is_exporting():
            odds = embedding(found.places(self._values(numbers, rows)), self._tables[-1]).squeeze(-1)
        else:
            odds = found(self._values(numbers, rows), self._spread())
        return (odds * found.weight.float()).sum(1)  # a product of matrices might be of half precision

    def cells(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """The cells of `recent` for a batch, (B, 1 + q + p): that of all rows, then those of bins and of ids."""
        numbers, rows = self._counted(numbers, rows)
        places = self._bin_places(numbers)
        after = 1 + self._numbers * (self.options.bins + 1)
        return torch.cat([places.new_zeros(len(places), 1), places + 1, rows + after], 1)

    def recent_errors(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor:
        """The recent errors z of a batch, (B, 2·(1 + q + p))."""
        recent, (numbers, rows) = self.recent, _both(numbers, rows)
        assert recent is not None
        if (counts := self._counts_for(numbers, rows)) is not None:
            return counts.recall(numbers, rows)
        if kernels.usable(numbers, rows, self.edges):
            counted = self.total, self.edges, recent.errors, recent.clock
            numbers, rows = self._counted(numbers, rows)
            return kernels.recall(numbers, rows, counted, recent.waiting, recent.half_life, recent.strength)
        found: Tensor = recent(self.cells(numbers, rows), self._spread())
        return found

    def correction(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor | None:
        """Correction of the logits for recent errors, (B,); None without `recent`."""
        if self.recent is None:
            return None
        return self.recent_errors(numbers, rows) @ self.recent.weight.float()

    def update(
        self,
        numbers: Tensor,
        rows: Tensor,
        labels: Tensor,
        logits: Tensor | None = None,
        found: Found | None = None,
        *,
        refit: bool = True,
    ) -> None:
        """Count labelled rows: numbers (B, q), rows (B, p), labels (B,) of 0 and 1.

        With the logits (B,) that the model scored them with, their errors are counted too. `found` is where the rows
        were looked up since the last update, if they were. Without `refit`, that must be called before anything else.
        """
        new, sample = labels.shape[0], self.sample
        if self.division is not None:
            raise ValueError("counting is divided among several processes, which call update_together")
        if found is not None and not (native.serves(labels, logits) and _are_floats(len(found.rows), labels, logits)):
            found = None
        if found is None:
            for name, given, columns in (
                ("numbers", numbers, self.num_numerical),
                ("rows", rows, self.num_categorical),
            ):
                if given.shape != (new, columns):
                    raise ValueError(f"{name} must have shape {(new, columns)}, got {tuple(given.shape)}")
        if self.frozen or not new:
            return
        if self.options.half_life is not None:
            self._fade(new)
        # What was found fits, and is in the counts of then.
        counts = self._counts_for(numbers, rows, labels, logits) if found is None else self._counts
        before, cut = 0 if sample is None else sample.count, self.due(new)
        if counts is not None:
            counts.count(numbers, rows, labels, logits, found, numbers_too=not cut)
        else:
            self._count_plainly(numbers, rows, labels, logits, cut)
        if sample is not None:
            sample.update(numbers, rows, labels, logits)
        self._grown_from = before if cut else None
        if refit:
            self.refit()

    def refit(self) -> None:
        """Cut bins, and choose combinations, anew if the stream has doubled by the last `update`, which left that."""
        before, self._grown_from = self._grown_from, None
        if before is not None:
            self._combine_anew(self._cut_anew(), before)

    def divide(self, division: Division | None) -> list[Tensor]:
        """Let several processes count rows together, with `update_together`, if compiled loops can.

        Returns the tensors that they change, which the caller places in memory that all of them share; an empty list if
        counting cannot be divided. With None, each counts by itself again.
        """
        self.division = None
        if self.combinations is not None:
            self.combinations.divide(None)
        sampled = [] if self.sample is None else self.sample.divide()
        counts = self.counts()
        cells = self._numbers * (self.options.bins + 1) + self.table_rows
        divided = not self.frozen and self.options.half_life is None and counts is not None and cells < 2**31
        if division is None or not divided:
            return []
        self.division = division
        found = [self.number_counts, self.row_counts]
        found += [] if self.recent is None else [self.recent.errors]
        found += [] if self.combinations is None else self.combinations.divide(division)
        return [*found, *sampled]

    @torch.no_grad()
    def update_together(self, numbers: Tensor, rows: Tensor, labels: Tensor, logits: Tensor | None) -> None:
        """As `update` in one process: the labels (B,) of all rows, and the rest of those that this process looks up.

        These are its `Division.part_of` all rows, of which there is at least one.
        """
        division, sample, new = self.division, self.sample, len(labels)
        assert division is not None
        start, stop = division.part_of(new)
        own = labels[start:stop]
        counts = self._counts_for(numbers, rows, own, logits)
        if counts is None or len(rows) != len(own):
            raise ValueError("counting is divided among several processes where compiled loops serve")
        before, cut = 0 if sample is None else sample.count, self.due(new)
        noted = counts.note(numbers, rows, own, logits, new - stop, division.buffer)
        everyone = division.gather(noted, division.sizes(new))
        counts.count_columns(everyone, labels, scored=logits is not None, numbers_too=not cut, part=division.columns)
        if sample is not None:
            sample.update(numbers, rows, own, logits, part=(start, new))
        if cut:
            division.meet()  # all columns are counted, and all rows kept
            self._combine_anew(self._cut_anew(), before)

    @torch.no_grad()
    def _count_plainly(self, numbers: Tensor, rows: Tensor, labels: Tensor, logits: Tensor | None, cut: bool) -> None:
        """Count rows, except in bins that will be cut again, and the errors of logits, if given."""
        if logits is not None:
            self._note_errors(numbers, rows, labels, logits)
        if not cut and kernels.usable(numbers, rows, self.edges, labels):
            counted = self.edges, self.total, self.number_counts, self.row_counts
            kernels.count(*self._counted(numbers, rows), labels, counted)
            return
        seen = _seen(labels)
        self.total += seen.sum(0)
        if self.options.categories:
            each = seen.unsqueeze(1).expand(-1, self.num_categorical, -1).reshape(-1, 2)
            self.row_counts.index_add_(0, rows.flatten(), each)
        if self._numbers and not cut:
            self._count_numbers(self.number_counts, numbers, seen)

    def _note_errors(self, numbers: Tensor, rows: Tensor, labels: Tensor, logits: Tensor) -> None:
        recent, combined = self.recent, self.combinations
        if kernels.usable(numbers, rows, self.edges, labels, logits) and logits.shape == labels.shape:
            given = self._counted(numbers, rows)
            if recent is not None:
                errors = self.edges, recent.errors, recent.clock
                kernels.note(*given, errors, labels, logits, recent.half_life)
            if combined is not None:
                errors = self.edges, combined.fields, combined.errors
                kernels.note_combined(*given, errors, labels, logits, self._fine_bins)
            return
        if recent is not None:
            recent.update(self.cells(numbers, rows), labels, logits)
        if combined is not None:
            combined.update(self._values(numbers, rows), labels, logits)

    def _counts_for(
        self, numbers: Tensor, rows: Tensor, labels: Tensor | None = None, logits: Tensor | None = None
    ) -> Counts | None:
        """`counts`, if a batch has the shapes, dtypes and rows that compiled loops require; else None."""
        if not native.serves(numbers, rows, labels, logits):
            return None
        count = rows.shape[0]
        fits = (
            _are_floats(count, labels, logits)
            and (numbers.dtype, rows.dtype) == (torch.float32, torch.int64)
            and numbers.shape == (count, self.num_numerical)
            and rows.shape == (count, self.num_categorical)
            and native.within(rows, self.table_rows)
        )
        return self.counts() if fits else None

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

    @property
    def can_count_ahead(self) -> bool:
        """Whether a device can count rows without the host, with `count_ahead`, unless something is `due`."""
        return not self.frozen and kernels.usable(self.edges)

    def due(self, rows: int) -> bool:
        """Whether bins are cut again after this many more rows, which needs the host."""
        before = 0 if self.sample is None else self.sample.count
        # The stream has doubled where one of 1, 2, 4, … lies behind the rows before, or is the last row now.
        return self.sample is not None and before.bit_length() < (before + rows).bit_length()

    def advance(self, rows: int) -> None:
        """The host's part of counting the next rows on a device."""
        if self.sample is not None:
            self.sample.advance(rows)

    @torch.no_grad()
    def count_ahead(self, numbers: Tensor, rows: Tensor, labels: Tensor, logits: Tensor | None = None) -> None:
        """The device's part of `update` for rows that `advance` was called for: it can be recorded."""
        if self.options.half_life is not None:
            self._fade(len(labels))
        if self.sample is not None:
            self.sample.update_ahead(numbers, rows, labels, logits)
        self._count_plainly(numbers, rows, labels, logits, cut=False)

    def reset(self) -> None:
        """Set all counts to zero, before another pass over the same rows."""
        for counts in (self.total, self.number_counts, self.row_counts):
            counts.zero_()
        self.edges.fill_(NO_CUT)
        if self.sample is not None:
            self.sample.reset()
        for errors in (self.recent, self.combinations):
            if errors is not None:
                errors.reset()

    @contextmanager
    @torch.no_grad()
    def tabled(self) -> Iterator[None]:
        """A context in which exported programs look up the inputs of bins and ids instead of computing them."""
        if self.dim:
            self._tables = tuple(one.float().reshape(-1, 1) for one in self.tables())
        try:
            yield
        finally:
            self._tables = None

    @torch.no_grad()
    def tables(self) -> list[Tensor]:
        """Log odds of bins (q, bins + 1), log odds and confidence of ids (rows,), z of cells (K·cells, 1)."""
        cells = [] if self.combinations is None else [self.combinations.odds(self._spread())]
        of_ids = self._odds(self.row_counts), confidence(self.row_counts[:, 0])
        return [self._odds(self.number_counts), *of_ids, *cells]

    def freeze(self) -> Self:
        """Keep the counts and drop the sample and recent errors: nothing is counted from then on."""
        self.frozen = True
        if self.combinations is not None:
            self.combinations.freeze(self._spread())
        self.sample = None
        self.recent = None
        return self

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        """Add the evidence of a disjoint stream: counts add up, bins and combinations are chosen again.

        Recent errors are dropped, since the order of both streams' rows is unknown.
        """
        if (self.options, self.num_numerical) != (other.options, other.num_numerical):
            raise ValueError("both must count the same things to merge")
        if (self.sample is None) != (other.sample is None):
            raise ValueError("evidence that was frozen has no sample to merge")
        self.total += other.total.to(self.total)
        self.row_counts += other.row_counts.to(self.row_counts)
        if self.recent is not None:
            self.recent.reset()
        if self.sample is not None and other.sample is not None and other.sample.count:
            self.sample.merge(other.sample)
            kept = self._cut_anew()
            if self.combinations is not None:
                self.combinations.reset()
                self._combine_anew(kept)

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

    def prior(self) -> float:
        """p̄, the click rate so far; reading it waits for a device."""
        rows, clicks = self.total.tolist()
        return _click_rate(float(rows), float(clicks))

    def base(self) -> float:
        """The logit of the click rate so far; reading it waits for a device."""
        prior = self.prior()
        return log(prior / (1 - prior))

    def logit(self, inputs: Tensor | None = None) -> Tensor:
        """The logit of rows by counts alone, (B,), given the inputs (B, `dim`) of `forward`.

        Without inputs it is the logit of the click rate so far, a scalar.
        """
        base = torch.logit(self._prior())
        if inputs is None:
            return base
        assert self.weight is not None
        return base.to(inputs.dtype) + (inputs * self.weight.to(inputs.dtype)).sum(1)

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

    def bins(self, numbers: Tensor) -> Tensor:
        """The bin of each number that is counted, (B, q); the last one is for missing values."""
        found = count_below(self.edges, finite(numbers.to(self.edges.dtype)))
        return torch.where(torch.isnan(numbers), self.options.bins, found)

    def _bin_places(self, numbers: Tensor) -> Tensor:
        """The bin of each number that is counted, among those of all numbers."""
        return self.bins(numbers) + torch.arange(self._numbers, device=numbers.device) * (self.options.bins + 1)

    def _values(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """The value of each field in a combination: a coarse bin, or the row of the table, (B, q + p)."""
        numbers, rows = self._counted(numbers, rows)
        return torch.cat([self.coarse_bins(numbers), rows], 1)

    def coarse_bins(self, numbers: Tensor) -> Tensor:
        """The value of each number in a combination, (B, q)."""
        return self.bins(numbers) // self._fine_bins

    @property
    def _fine_bins(self) -> int:
        """How many bins of a number are one value in a combination."""
        return self.options.bins // self.options.pair_bins

    def _count_numbers(self, counts: Tensor, numbers: Tensor, seen: Tensor) -> None:
        places = self._bin_places(numbers)
        each = seen.unsqueeze(1).expand(-1, self._numbers, -1).reshape(-1, 2)
        counts.view(-1, 2).index_add_(0, places.flatten(), each)

    @torch.no_grad()
    def _cut_anew(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Cut bins at the quantiles of the sample, and count its rows in them; returns `RowSample.rows`."""
        assert self.sample is not None
        numbers, rows, labels, logits = self.sample.rows()
        if not self._numbers:
            return numbers, rows, labels, logits
        q, found = self._numbers, torch.zeros_like(self.number_counts)
        if native.serves(numbers, self.edges, found):
            clicked = labels.float()

            def cut(first: int, last: int) -> None:
                self._cut(numbers, range(first, last))
                tally(self.edges, numbers, clicked, (first, last), found)

            map_parts(len(labels), cut, [(0, q // 2), (q // 2, q)])
            found *= self.total[0] / len(labels)
        else:
            self._cut(numbers, range(q))
            # The rows of the sample stand for all rows that still count.
            self._count_numbers(found, numbers, _seen(labels) * (self.total[0] / len(labels)))
        if self.recent is not None:
            self.recent.reset(slice(1, 1 + q * (self.options.bins + 1)))
        # All processes may write the result, but not what leads to it.
        self.number_counts.copy_(found)
        return numbers, rows, labels, logits

    def _cut(self, numbers: Tensor, columns: range) -> None:
        """Cut bins of some columns at the quantiles of numbers (N, q)."""
        values = numbers[:, columns.start : columns.stop].t().cpu().numpy()
        cuts = [cut_points(column[np.isfinite(column)], self.options.bins) for column in np.ascontiguousarray(values)]
        if cuts:
            self.edges[columns.start : columns.stop] = torch.from_numpy(np.stack(cuts))

    @torch.no_grad()
    def _combine_anew(self, kept: tuple[Tensor, Tensor, Tensor, Tensor], before: int = 0) -> None:
        """Choose combinations by the rows kept if that is due; otherwise count those with a number in the new bins."""
        found, sample = self.combinations, self.sample
        if found is None or sample is None or sample.count < self.options.choose_after:
            return
        numbers, rows, labels, logits = kept
        scored = (logits < UNSCORED).nonzero().squeeze(1)
        if not len(scored):
            return
        if len(scored) < len(labels):
            numbers, rows, labels, logits = (one.index_select(0, scored) for one in (numbers, rows, labels, logits))
        counts = self._counts_for(numbers, rows)
        values = self._values(numbers, rows) if counts is None else counts.values(numbers, rows)
        total, labels = float(self.total[0]), labels.float()
        found.read(values, labels, logits, total, found.reading(range(self._numbers)))
        four_times = before.bit_length() // 2 < sample.count.bit_length() // 2  # as many rows as at the last choice
        if before < self.options.choose_after or four_times:
            found.choose(values, labels, logits, total, lambda: self.strength_by_column().tolist())

    def _fade(self, rows: int) -> None:
        assert self.options.half_life is not None
        share = 2.0 ** (-rows / self.options.half_life)
        for counts in (self.total, self.number_counts, self.row_counts):
            counts *= share
        if self.combinations is not None:
            self.combinations.errors *= share

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any, **options: Any) -> None:
        known = f"{prefix}total" in state_dict  # a state of other parts alone changes nothing here
        if known and self.sample is not None and f"{prefix}sample.seen" not in state_dict:
            self.freeze()  # as the state was
        if known and f"{prefix}recent.errors" not in state_dict:
            self.recent = None  # a state may lack recent errors
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def _are_floats(rows: int, *tensors: Tensor | None) -> bool:
    """Whether each of these tensors has a float32 number for every row."""
    for one in tensors:  # noqa: SIM110 (quicker than `all`)
        if one is not None and (one.dtype != torch.float32 or one.shape != (rows,)):
            return False
    return True


def _seen(labels: Tensor) -> Tensor:
    """Views and clicks of labelled rows, (B, 2)."""
    return torch.stack([torch.ones_like(labels), labels], 1).double()


def _click_rate(rows: _Number, clicks: _Number) -> _Number:
    """p̄ = (clicks + 2) / (rows + 10)."""
    return (clicks + 2) / (rows + 10)


def _both(numbers: Tensor | None, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """Numbers and rows, without columns where a model has none."""
    if numbers is None:
        assert rows is not None
        numbers = torch.empty(rows.shape[0], 0, device=rows.device)
    if rows is None:
        rows = torch.empty(numbers.shape[0], 0, dtype=torch.int64, device=numbers.device)
    return numbers, rows
