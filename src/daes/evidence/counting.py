"""How evidence is counted: labelled rows, their sample, bins cut from it, and the errors of their scores."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from daes import native
from daes.embedding import kernels
from daes.evidence.division import Division
from daes.evidence.odds import NO_CUT, cut_points
from daes.evidence.sample import UNSCORED
from daes.evidence.state import EvidenceState, are_floats
from daes.native.evidence import Found, tally
from daes.native.threads import map_parts


class EvidenceCounting(EvidenceState):
    """Counts labelled rows: with compiled loops, in kernels of a device, or, as their reference, in torch."""

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
        if found is not None and not (native.serves(labels, logits) and are_floats(len(found.rows), labels, logits)):
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
            raise ValueError(
                "several processes count together only in float32, on the CPU, with the compiled loops (python -m "
                "daes.native)"
            )
        before, cut = 0 if sample is None else sample.count, self.due(new)
        noted = counts.note(numbers, rows, own, logits, new - stop, division.buffer)
        everyone = division.gather(noted, division.sizes(new))
        counts.count_columns(everyone, labels, scored=logits is not None, numbers_too=not cut, part=division.columns)
        if sample is not None:
            sample.update(numbers, rows, own, logits, part=(start, new))
        if cut:
            division.meet()  # all columns are counted, and all rows kept
            self._combine_anew(self._cut_anew(), before)

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

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        """Add the evidence of a disjoint stream: counts add up, bins and combinations are chosen again.

        Recent errors are dropped, since the order of both streams' rows is unknown.
        """
        shapes = [(one.options, one.num_numerical, one.table_rows, one._offsets.tolist()) for one in (self, other)]
        if shapes[0] != shapes[1]:
            raise ValueError("both must count the same things to merge")
        if self.frozen or other.frozen:
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

    @torch.no_grad()
    def _count_plainly(self, numbers: Tensor, rows: Tensor, labels: Tensor, logits: Tensor | None, cut: bool) -> None:
        """Count rows, except in bins that will be cut again, and the errors of logits, if given."""
        if logits is not None:
            self._note_errors(numbers, rows, labels, logits)
        if not cut and kernels.usable(numbers, rows, self.edges, labels):
            counted = self.edges, self.total, self.number_counts, self.row_counts
            kernels.count(*self._counted(numbers, rows), labels, *counted)
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
                kernels.note(*given, *errors, labels, logits, recent.half_life)
            if combined is not None:
                errors = self.edges, combined.fields, combined.errors
                kernels.note_combined(*given, *errors, labels, logits, self._fine_bins)
            return
        if recent is not None:
            recent.update(self.cells(numbers, rows), labels, logits)
        if combined is not None:
            combined.update(self._values(numbers, rows), labels, logits)

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
        if four_times or not found.are_chosen:
            found.choose(values, labels, logits, total, lambda: self.strength_by_column().tolist())

    def _fade(self, rows: int) -> None:
        assert self.options.half_life is not None
        share = 2.0 ** (-rows / self.options.half_life)
        for counts in (self.total, self.number_counts, self.row_counts):
            counts *= share
        if self.combinations is not None:
            self.combinations.errors *= share


def _seen(labels: Tensor) -> Tensor:
    """Views and clicks of labelled rows, (B, 2)."""
    return torch.stack([torch.ones_like(labels), labels], 1).double()
