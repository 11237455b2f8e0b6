"""Log odds from counts of past clicks, as inputs of a network."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import embedding

from daes.embedding import kernels
from daes.evidence.counting import EvidenceCounting
from daes.evidence.odds import confidence


class EvidenceInputs(EvidenceCounting):
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

    >>> from daes.evidence import Evidence
    >>> counted = EvidenceInputs(Evidence(bins=2, pair_bins=1), num_numerical=1, offsets=[0], table_rows=3)
    >>> numbers, rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> counted(numbers, rows).tolist()[0]  # nothing is known yet
    [0.0, 0.0, -1.0]
    >>> counted.update(numbers, rows, torch.tensor([0.0, 0.0, 1.0, 1.0]))
    >>> counted(numbers, rows)[:, 0].sign().tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """

    def forward(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor:
        numbers, rows = _both(numbers, rows)
        if (counts := self._counts_for(numbers, rows)) is not None:
            return counts.inputs(numbers, rows)
        numbers, rows = self._counted(numbers, rows)
        if kernels.usable(numbers, rows):
            counted = self.total, self.edges, self.number_counts, self.row_counts
            of_all: Tensor = kernels.evidence(numbers, rows, *counted, self.options.strength)
            return of_all
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
            known = self.edges, self.total, found.fields, found.errors, found.weight.float()
            moved: Tensor = kernels.combine(*self._counted(numbers, rows), *known, self._fine_bins, found.strength)[0]
            return moved
        if (counts := self._counts_for(numbers, rows)) is not None:
            odds = counts.combine(numbers, rows)
        elif self._tables is not None and torch.compiler.is_exporting():
            odds = embedding(found.places(self._values(numbers, rows)), self._tables[-1]).squeeze(-1)
        else:
            odds = found(self._values(numbers, rows), self._spread())
        return (odds * found.weight.float()).sum(1)  # a product of matrices might be of half precision

    def recent_errors(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor:
        """The recent errors z of a batch, (B, 2·(1 + q + p))."""
        recent, (numbers, rows) = self.recent, _both(numbers, rows)
        assert recent is not None
        if (counts := self._counts_for(numbers, rows)) is not None:
            return counts.recall(numbers, rows)
        found: Tensor
        if kernels.usable(numbers, rows, self.edges):
            counted = self.total, self.edges, recent.errors, recent.clock
            numbers, rows = self._counted(numbers, rows)
            found = kernels.recall(numbers, rows, *counted, recent.waiting, recent.half_life, recent.strength)
        else:
            found = recent(self.cells(numbers, rows), self._spread())
        return found

    def correction(self, numbers: Tensor | None, rows: Tensor | None) -> Tensor | None:
        """Correction of the logits for recent errors, (B,); None without `recent`."""
        if self.recent is None:
            return None
        return self.recent_errors(numbers, rows) @ self.recent.weight.float()

    def logit(self, inputs: Tensor | None = None) -> Tensor:
        """The logit of rows by counts alone, (B,), given the inputs (B, `dim`) of `forward`.

        Without inputs it is the logit of the click rate so far, a scalar.
        """
        base = torch.logit(self._prior())
        if inputs is None:
            return base
        assert self.weight is not None
        return base.to(inputs.dtype) + (inputs * self.weight.to(inputs.dtype)).sum(1)

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


def _both(numbers: Tensor | None, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """Numbers and rows, without columns where a model has none."""
    if numbers is None:
        assert rows is not None
        numbers = torch.empty(rows.shape[0], 0, device=rows.device)
    if rows is None:
        rows = torch.empty(numbers.shape[0], 0, dtype=torch.int64, device=numbers.device)
    return numbers, rows
