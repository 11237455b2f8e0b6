"""A table whose rows are divided among several processes."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from daes.embedding.categorical import CategoricalEmbedding
from daes.embedding.processes import num_processes

_DRAWN = 1 << 16
"""Rows drawn at once. The random numbers are the same as for all rows at once, since torch draws 16 at a time."""


class DividedEmbedding(CategoricalEmbedding):
    """A `CategoricalEmbedding` whose rows are divided equally among the processes of `torch.distributed`.

    `weight` has the rows of this process, from `first_row` on. `fetch` gets the vectors of some ids from the processes
    that have them; all processes call it together, each with its own ids, possibly none. A forward can then look up
    these ids, alone and more than once. Its backward leaves their gradients here, not in `weight`: `gradient` returns
    them, to be sent to the processes that have the rows, as `GradientExchange` does.

    The initial rows are those of `CategoricalEmbedding` with the same seed, for any number of processes.

    **Shape.** As in `CategoricalEmbedding`: ids (B, p) int64, 0 = missing → (B, p, d).
    """

    def _make_table(self) -> None:
        rank = dist.get_rank() if num_processes() > 1 else 0
        self.rows_each = -(-self.num_rows // num_processes())
        """Rows per process; the last processes may have fewer."""
        self.first_row = min(self.rows_each * rank, self.num_rows)
        """Index of the first row of this process."""
        count = min(self.rows_each, self.num_rows - self.first_row)
        self.weight = nn.Parameter(self._allocate(count))
        self.reset_parameters()
        self._fetched = torch.empty(0, dtype=torch.int64)
        self._vectors = torch.empty(0, self.dim)

    def _allocate(self, count: int) -> Tensor:
        """Memory for the rows of this process, (count, d)."""
        return torch.empty(count, self.dim)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the rows of all processes again and keep those of this one; a vocabulary does not change."""
        start = 0
        while start < self.num_rows:
            stop = self.num_rows if self.num_rows - start < 2 * _DRAWN else start + _DRAWN
            drawn = nn.init.normal_(torch.empty(stop - start, self.dim), std=self.init_std)
            own = drawn[max(self.first_row - start, 0) : max(self.first_row + len(self.weight) - start, 0)]
            place = max(start - self.first_row, 0)
            self.weight[place : place + len(own)] = own
            start = stop

    @property
    def elsewhere(self) -> int:
        """How many numbers of the table other processes have."""
        return self.num_rows * self.dim - self.weight.numel()

    def owners(self, rows: Tensor) -> Tensor:
        """The ranks of the processes that have these rows."""
        return rows // self.rows_each

    @torch.no_grad()
    def fetch(self, ids: Tensor) -> None:
        """Get the current vectors of these ids (B, p); called in all processes."""
        self._fetched = torch.unique(self.rows(ids))
        self._vectors = self._bring(self._fetched).requires_grad_(self.weight.requires_grad)

    def _bring(self, rows: Tensor) -> Tensor:
        """The vectors (n, d) of rows (n,), which are in increasing order, from the processes that have them."""
        if num_processes() == 1:
            return self.weight[rows]
        to = torch.bincount(self.owners(rows), minlength=num_processes())
        of = torch.empty_like(to)
        dist.all_to_all_single(of, to)
        sent, wanted = to.tolist(), of.tolist()
        asked = rows.new_empty(sum(wanted))
        dist.all_to_all_single(asked, rows, wanted, sent)
        found = self.weight.new_empty(len(rows), self.dim)
        dist.all_to_all_single(found, self.weight[asked - self.first_row], sent, wanted)
        return found

    def look_up(self, rows: Tensor) -> Tensor:
        """The vectors of these rows, (B, p) → (B, p, d), from the last `fetch`."""
        places = torch.searchsorted(self._fetched, rows)
        if not torch.equal(F.pad(self._fetched, (0, 1), value=-1)[places], rows):
            raise RuntimeError("a divided table can only look up ids that were passed to the last fetch")
        return self._look_up(self._vectors, places)

    def gradient(self) -> tuple[Tensor, Tensor]:
        """Rows (n,), distinct and in increasing order, and their gradients (n, d) from the last backward."""
        gradient = self._vectors.grad
        if gradient is None:
            return self._fetched[:0], self._vectors.detach()[:0]
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            return self._fetched[gradient.indices()[0]], gradient.values()
        return self._fetched, gradient

    def with_rows(self, weight: Tensor) -> CategoricalEmbedding:
        """A plain table with the given rows of all processes; it shares them and the vocabulary."""
        sizes = dict(zip(self.names, self.sizes, strict=True))
        made = CategoricalEmbedding(sizes, self.dim, weight=weight, **self.options)
        made.vocabulary = self.vocabulary
        return made.train(self.training)
