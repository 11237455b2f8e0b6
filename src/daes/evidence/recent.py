"""What a model has lately got wrong, per value: errors that fade, kept where they were made."""

import torch
from torch import Tensor, nn

from daes.embedding.precision import KeepsPrecision

GRAIN = 2.0**-30
"""Errors are multiples of it, so that their sums have no rounding and do not depend on the order of a batch."""


class RecentErrors(KeepsPrecision):
    """How far the scores of the last rows were off, per value, as log odds to add to the next ones.

    Every cell (one for all rows, one per bin of a number and per id) has, with y the label and p the score of a row
    that had its value, and age the number of labelled rows since,

        S = Σ 2^(−age / h)·(y − p),    V = Σ 2^(−age / h)·p·(1 − p),    z = S / (V + a·p̄·(1 − p̄))

    z is one step of Newton's method from the scores of the last h rows or so towards their labels, shrunk as if a
    rows of average spread p̄·(1 − p̄) had been scored rightly. The correction is Σ w·z; w is learned and starts
    at 0.1, or at 4/n where there are more than 40 cells in a row: many may say the same, and what they say adds up.

    **Shape.** forward: cells (B, n) → z (B, n). Buffers: `errors` (cells, 3): S and V when they last changed, and the
    labelled row at which they did; `clock` (): labelled rows. Parameter: `weight` (n,).

    Args:
        num_cells: cells of all features together.
        num_features: cells n that a row has.
        half_life: rows after which an error counts half, h.
        strength: a.

    >>> recent = RecentErrors(num_cells=3, num_features=2, half_life=10.0, strength=20.0)
    >>> cells = torch.tensor([[0, 1], [0, 2]])
    >>> recent.update(cells, labels=torch.tensor([1.0, 0.0]), logits=torch.zeros(2))
    >>> recent(cells, spread=0.25).sign().tolist()  # too low for the first, too high for the second, which is newer
    [[-1.0, 1.0], [-1.0, -1.0]]
    """

    errors: Tensor
    clock: Tensor

    def __init__(self, num_cells: int, num_features: int, half_life: float, strength: float) -> None:
        super().__init__()
        self.half_life = half_life
        self.strength = strength
        self.waiting = 0
        """Rows since whose labels are not known yet: errors are so much older."""
        self.weight = nn.Parameter(torch.full((num_features,), min(0.1, 4 / num_features)))
        self.register_buffer("errors", torch.zeros(num_cells, 3, dtype=torch.float64))
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, cells: Tensor, spread: Tensor | float) -> Tensor:
        """z, given p̄·(1 − p̄)."""
        errors, variance = self._faded(cells, self.waiting).unbind(-1)
        return (errors / (variance + self.strength * spread)).float()

    @torch.no_grad()
    def update(self, cells: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Take in scored rows once their labels are known: cells (B, n), labels (B,) and logits (B,)."""
        rows = len(labels)
        self.clock += rows
        kept = _round(self._faded(cells))
        # A cell that occurs twice gets the same values twice.
        self.errors[cells] = torch.cat([kept, self.clock.double().expand(*cells.shape, 1)], -1)
        scores = torch.sigmoid(logits.double())
        ages = torch.arange(rows - 1, -1, -1, device=labels.device, dtype=torch.float64)
        seen = torch.stack([labels - scores, scores * (1 - scores)], 1) * torch.exp2(-ages / self.half_life)[:, None]
        each = nn.functional.pad(_round(seen), (0, 1)).unsqueeze(1).expand(-1, cells.shape[1], -1).reshape(-1, 3)
        self.errors.index_add_(0, cells.flatten(), each)

    def reset(self, cells: slice = slice(None)) -> None:
        """Forget the errors of these cells."""
        self.errors[cells, :2] = 0

    def _faded(self, cells: Tensor, waiting: int = 0) -> Tensor:
        """S and V as they count now, (…, 2)."""
        errors = self.errors[cells]
        ages = self.clock + waiting - errors[..., 2:]
        return errors[..., :2] * torch.exp2(-ages / self.half_life)

    def _may_become(self, name: str, dtype: torch.dtype) -> bool:
        return False


def _round(errors: Tensor) -> Tensor:
    return torch.round(errors / GRAIN) * GRAIN
