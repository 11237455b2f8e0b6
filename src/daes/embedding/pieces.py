"""Functions of one number each as parabolas between cuts, for exported programs: a search and a few look-ups.

With cuts b_1 < b_2 < … of a feature, between which its functions are parabolas and outside of which they are constant,

    f(x) = c_0 + t·(c_1 + t·c_2),   t = (x − b_j) / (last_j − b_j),   j = #{i : b_i ≤ x},

where last_j is the largest float below b_{j+1}, since f may jump there. The coefficients follow from f(b_j), f(last_j)
and f halfway.
"""

from collections.abc import Callable
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

LARGEST = torch.finfo(torch.float32).max
_NEGLIGIBLE = 1e-9
"""Coefficients up to this are rounding errors."""
_VALUES = 256
"""So many values of each feature are computed at a time."""


class NumberTables(nn.Module):
    """The functions of q features' numbers, m of each, from tables with a row for every piece.

    The cuts are in about √N blocks: a number is compared with the first cut of every block, then with the cuts of one
    block, and how many cuts it has passed gives its place. The first cut is −∞, which a missing number alone does not
    pass.

    **Shape.** `find`: values (B, q), NaN = missing → places (B, q). forward: values and places → (B, q, m).

    Args:
        cuts: (q, N) in any order; what is not finite does not count.
        functions: values (n, q) in double precision, NaN = missing → (n, q, m). Infinite numbers are never asked for:
            their functions are those of the largest finite ones.

    >>> def functions(values):
    ...     return values.clamp(0, 10).nan_to_num(-1).unsqueeze(-1)
    >>> clamped = NumberTables(torch.tensor([[0.0, 10.0]]), functions)
    >>> values = torch.tensor([[-torch.inf], [2.5], [10.0], [torch.nan]])
    >>> clamped(values, clamped.find(values)).flatten()
    tensor([ 0.0000,  2.5000, 10.0000, -1.0000])
    """

    cuts: Tensor
    blocks: Tensor
    first: Tensor
    left: Tensor
    width: Tensor

    def __init__(self, cuts: Tensor, functions: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        # 0 is a cut, so that no piece is wider than the largest number.
        distinct = [torch.unique(one[one.isfinite()]) for one in pad(cuts.float(), (0, 1))]
        count = 1 + max(len(one) for one in distinct)
        self._size = isqrt(count - 1) + 1
        blocks = -(-count // self._size)
        starts = torch.full((len(cuts), blocks * self._size), torch.nan)
        starts[:, 0] = -torch.inf
        for feature, one in enumerate(distinct):
            starts[feature, 1 : 1 + len(one)] = one
        self.register_buffer("cuts", starts.view(-1, self._size))
        self.register_buffer("blocks", starts[:, self._size :: self._size].contiguous())
        self.register_buffer("first", torch.arange(len(cuts), dtype=torch.int32) * blocks)
        self._starts = starts.nan_to_num(0.0, neginf=-LARGEST)
        self._tabulate_pieces(starts, functions)

    def _tabulate_pieces(self, starts: Tensor, functions: Callable[[Tensor], Tensor]) -> None:
        next_starts = pad(starts[:, 1:], (0, 1), value=torch.nan)
        inner = starts.isfinite() & next_starts.isfinite()
        first = self._starts
        last = torch.where(inner, torch.nextafter(next_starts, torch.tensor(-torch.inf)), first)
        low, middle, high = (self.tabulate(functions, at) for at in (first, (first.double() + last) / 2, last))
        varies = self._rows(inner.unsqueeze(-1), torch.zeros(len(inner), 1, dtype=torch.bool))
        higher = (4 * middle - 3 * low - high, 2 * (low + high - 2 * middle))
        coefficients = [low, *(torch.where(varies, one, 0.0) for one in higher)]
        while len(coefficients) > 1 and bool((coefficients[-1].abs() <= _NEGLIGIBLE).all()):
            del coefficients[-1]
        self.coefficients = nn.ParameterList(one.float() for one in coefficients).requires_grad_(False)
        # Both infinite numbers are to have t = ∞: below the first cut widths are negative.
        below = starts == -torch.inf
        left = torch.where(below, LARGEST, first)
        width = torch.where(below, -1.0, torch.where(last > first, last - first, 1.0))
        self.register_buffer("left", self._rows(left.unsqueeze(-1), torch.zeros(len(left), 1)))
        self.register_buffer("width", self._rows(width.unsqueeze(-1), torch.ones(len(left), 1)))

    def tabulate(self, functions: Callable[[Tensor], Tensor], at: Tensor | None = None) -> Tensor:
        """A table (rows, m) of functions, by a value (q, N) of every piece: its first if that is None."""
        values = (self._starts if at is None else at).double().T
        found = torch.cat([functions(part) for part in torch.split(values, _VALUES)])
        return self._rows(found.transpose(0, 1), functions(torch.full_like(values[:1], torch.nan))[0])

    def _rows(self, pieces: Tensor, missing: Tensor) -> Tensor:
        """The rows by place: pieces (q, N, m), with one row before each block, the first one for missing (q, m)."""
        rows = pad(pieces.view(len(pieces), -1, self._size, pieces.shape[2]), (0, 0, 1, 0))
        rows[:, 0, 0] = missing
        return rows.flatten(0, 2)

    def find(self, values: Tensor) -> Tensor:
        x = values.unsqueeze(-1)
        # Sums along dimension 2, not −1: onnxruntime gives that of no rows the wrong shape.
        block = (self.blocks <= x).sum(2, dtype=torch.int32) + self.first
        passed = (embedding(block, self.cuts) <= x).sum(2, dtype=torch.int32)
        return block * (self._size + 1) + passed

    def forward(self, values: Tensor, places: Tensor) -> Tensor:
        found, *higher = (embedding(places, one) for one in self.coefficients)
        if higher:
            left = embedding(places, self.left)
            t = (values.unsqueeze(-1) - left) / embedding(places, self.width)
            # t is 1 at most, or the number is missing or infinite, and any finite t will do. In onnxruntime this takes
            # 20 times as long with a scalar.
            t = torch.where(t <= 2, t, left)
            found = found + t * (higher[0] + t * higher[1] if len(higher) > 1 else higher[0])
        return found
