"""NaryDis: the number of a bin written in several bases, one row per digit (a reconstruction)."""

from collections.abc import Sequence
from math import sqrt
from typing import Unpack

import torch
from torch import Tensor, nn

from daes.choices import check_choice
from daes.embedding.base import SharedOptions
from daes.embedding.binning import EdgeEmbedding
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "narydis",
    title="hybrid N-ary encoding",
    short="NaryDis",
    family="neural",
    reference=Reference(
        "Bo Chen et al.",
        "Numerical Feature Representation with Hybrid N-ary Encoding",
        "CIKM",
        2022,
    ),
    order=7,
    distribution_aware=True,
    reconstruction=True,
)
class NaryDis(EdgeEmbedding):
    """Hybrid N-ary encoding: fine equal-frequency bins whose number is written in several bases.

        digits_b(j) = j in base b,   c_b = pool over positions of E_{b, position, digit},   e(x) = pool over b of c_b

    so that few rows distinguish many bins, and bins with the same leading digits share rows. `pool="attention"` weights
    the pooled vectors by softmax(⟨u, ·⟩/√d), with u a learned query per feature and base (within a base) or per feature
    (across bases); `pool="sum"` adds them. All this depends only on the bin, so it is computed once per bin, and a
    value needs one look-up.

    **Shape.** values (B, q) → (B, q, d); `table` (q, R, d) with R = Σ_b b·(digits of num_bins − 1 in base b);
    `edges` (q, num_bins − 1); with attention `digit_query` (q, number of bases, d) and `base_query` (q, d).

    **A reconstruction**: the authors' code is not public. Known: numbers are discretised, bin numbers written in
    several bases, digits embedded and aggregated by attention within a base and across bases (Chen et al., CIKM 2022);
    the variant that sums the digits is Pan et al., KDD 2024. EasyRec has public code of a simpler variant: it encodes
    the value itself, truncated to an integer, sums or averages the digits of a base, and concatenates the bases. Chosen
    here: bases 2 and 3, 100 equal-frequency bins, attention by a learned query, and the sum also across bases, where
    the published variant concatenates, so that the dimension stays d.

    >>> method = NaryDis(1, dim=4, num_bins=6).fit(torch.arange(6.0).unsqueeze(1))
    >>> method.table.shape  # 3 binary and 2 ternary digits
    torch.Size([1, 12, 4])
    >>> method.digits[5].int().tolist()  # 5 is 101 and 12, from the lowest digit on: a row for each possible digit
    [0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0]

    Args:
        num_bins: number of bins.
        bases: the bases, each at least 2.
        pool: "attention" or "sum".
    """

    digits: Tensor

    refits = True

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_bins: int = 100,
        bases: Sequence[int] = (2, 3),
        pool: str = "attention",
        **shared: Unpack[SharedOptions],
    ) -> None:
        if not bases or any(isinstance(base, bool) or not isinstance(base, int) or base < 2 for base in bases):
            raise ValueError(f"bases must be integers, each at least 2, got {bases!r}")
        check_choice("pool", pool, ("attention", "sum"))
        super().__init__(num_features, dim, num_bins=num_bins, **shared)
        self.bases = tuple(bases)
        self.pool = pool
        self.num_digits = tuple(_num_digits(num_bins - 1, base) for base in bases)
        self.register_buffer("digits", _digits_of_bins(num_bins, self.bases, self.num_digits), persistent=False)
        self.table = self.new_table(num_features, self.digits.shape[1], dim)
        if pool == "attention":
            self.digit_query = nn.Parameter(torch.randn(num_features, len(self.bases), dim))
            self.base_query = nn.Parameter(torch.randn(num_features, dim))

    def rows(self) -> Tensor:
        if self.pool == "sum":
            return self.digits.to(self.table.dtype) @ self.table
        pooled, start = [], 0
        for base, num_digits, query in zip(self.bases, self.num_digits, self.digit_query.unbind(1), strict=True):
            part = slice(start, start + base * num_digits)
            scores = _agreement(self.table[:, part], query).unsqueeze(1)
            weights = torch.softmax(scores.masked_fill(~self.digits[:, part], -torch.inf), -1)
            pooled.append(weights.to(self.table.dtype) @ self.table[:, part])
            start = part.stop
        bases = torch.stack(pooled, 2)
        weights = torch.softmax(_agreement(bases, self.base_query.unsqueeze(1)), -1)
        return torch.einsum("qnb,qnbd->qnd", weights.to(bases.dtype), bases)


def _num_digits(number: int, base: int) -> int:
    digits = 1
    while number >= base:
        number //= base
        digits += 1
    return digits


def _digits_of_bins(num_bins: int, bases: Sequence[int], num_digits: Sequence[int]) -> Tensor:
    """Whether a bin's number has the digit of a row, (num_bins, rows); rows are ordered by base, position and digit."""
    bins = torch.arange(num_bins).unsqueeze(1)
    return torch.cat(
        [
            bins // base**position % base == torch.arange(base)
            for base, positions in zip(bases, num_digits, strict=True)
            for position in range(positions)
        ],
        dim=1,
    )


def _agreement(vectors: Tensor, query: Tensor) -> Tensor:
    """⟨query, vector⟩ / √d: vectors (…, k, d), query (…, d) → (…, k)."""
    return (vectors @ query.unsqueeze(-1)).squeeze(-1) / sqrt(vectors.shape[-1])
