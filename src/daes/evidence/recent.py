"""Recent errors of a model per value, with exponential decay."""

import torch
from torch import Tensor, nn

from daes.embedding.precision import KeepsPrecision

GRAIN = 2.0**-30
"""Errors are multiples of it, so that their sums have no rounding and do not depend on the order of a batch."""


FASTER = 10
"""The ratio of the two half-lives."""


class RecentErrors(KeepsPrecision):
    """The errors of the scores of the last rows, per value, as log odds to add to the next scores.

    Every cell (one for all rows, one per bin of a number and per id) has, with y the label and p the score of a row
    that had its value, and age the number of labelled rows since,

        S = Σ 2^(−age / h)·(y − p),    V = Σ 2^(−age / h)·p·(1 − p),    z = S / (V + a·p̄·(1 − p̄))

    for two half-lives: h, and a tenth of it, since a change may last for days or for minutes. z is one step of Newton's
    method from the scores of about the last h rows towards their labels, shrunk as if a rows of average spread
    p̄·(1 − p̄) had been scored correctly. The correction is Σ w·z; w is learned and starts at 0.1, or at 4/n if a row has
    more than 40 cells: the errors of correlated cells add up.

    **Shape.** forward: cells (B, n) → z (B, 2n), those of the longer half-life first. Buffers: `errors` (cells, 5): S
    and V of the longer half-life, then of the shorter one, when they last changed, and the labelled row at which they
    did; `clock` (): labelled rows. Parameter: `weight` (2n,).

    Args:
        num_cells: cells of all features together.
        num_features: cells n that a row has.
        half_life: rows after which an error counts half, h.
        strength: a.

    >>> recent = RecentErrors(num_cells=3, num_features=2, half_life=10.0, strength=20.0)
    >>> cells = torch.tensor([[0, 1], [0, 2]])
    >>> recent.update(cells, labels=torch.tensor([1.0, 0.0]), logits=torch.zeros(2))
    >>> recent(cells, spread=0.25).sign().tolist()  # too low for the first, too high for the second, which is newer
    [[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, -1.0, -1.0]]
    """

    errors: Tensor
    clock: Tensor

    def __init__(self, num_cells: int, num_features: int, half_life: float, strength: float) -> None:
        super().__init__()
        self.half_life = half_life
        self.strength = strength
        self.waiting = 0
        """Number of later rows whose labels are not known yet, by which errors are older."""
        self.weight = nn.Parameter(torch.full((2 * num_features,), min(0.1, 4 / num_features)))
        self.register_buffer("errors", torch.zeros(num_cells, 5, dtype=torch.float64))
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, cells: Tensor, spread: Tensor | float) -> Tensor:
        """z, given p̄·(1 − p̄)."""
        errors, variance = self._faded(cells, self.waiting).unbind(-1)  # (B, n, 2) each
        return (errors / (variance + self.strength * spread)).mT.flatten(1).float()

    @torch.no_grad()
    def update(self, cells: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Add the errors of scored rows: cells (B, n), labels (B,) and logits (B,)."""
        rows = len(labels)
        self.clock += rows
        kept = _round(self._faded(cells)).flatten(-2)
        # A cell that occurs twice gets the same values twice.
        self.errors[cells] = torch.cat([kept, self.clock.double().expand(*cells.shape, 1)], -1)
        scores = torch.sigmoid(logits.double())
        ages = torch.arange(rows - 1, -1, -1, device=labels.device, dtype=torch.float64)
        seen = torch.stack([labels - scores, scores * (1 - scores)], 1)
        seen = seen[:, None] * self._fading(ages[:, None])  # (B, 2, 2)
        each = nn.functional.pad(_round(seen).flatten(1), (0, 1))[:, None].expand(-1, cells.shape[1], -1)
        self.errors.index_add_(0, cells.flatten(), each.reshape(-1, 5))

    def reset(self, cells: slice = slice(None)) -> None:
        """Set the errors of these cells to zero."""
        self.errors[cells, :4] = 0

    def _faded(self, cells: Tensor, waiting: int = 0) -> Tensor:
        """S and V as they count now, for each half-life, (…, 2, 2)."""
        errors = self.errors[cells]
        ages = self.clock + waiting - errors[..., 4:]
        return errors[..., :4].view(*cells.shape, 2, 2) * self._fading(ages)

    def _fading(self, ages: Tensor) -> Tensor:
        """What is left of errors of these ages, for each half-life: (…, 1) → (…, 2, 1)."""
        return torch.exp2(torch.cat([ages, FASTER * ages], -1) / -self.half_life).unsqueeze(-1)


def _round(errors: Tensor) -> Tensor:
    return torch.round(errors / GRAIN) * GRAIN
