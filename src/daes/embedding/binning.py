"""Base classes of the binning methods: look-ups in one flat table."""

from abc import abstractmethod
from typing import Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from daes.distribution.base import Floats, check_positive, inverted_cdf
from daes.embedding.base import Context, NumericalEmbedding, SharedOptions
from daes.embedding.search import count_below


class RowEmbedding(NumericalEmbedding):
    """Base of the methods that map each value to a row of its feature's table.

    A method creates its `table` and implements `index`, the row of each value. It may override `rows` with anything
    that depends only on the parameters: it is computed once per batch, not once per value.

    Args:
        num_bins: number of rows per feature.
    """

    offline = True
    offsets: Tensor
    table: nn.Parameter

    def __init__(self, num_features: int, dim: int, *, num_bins: int, **shared: Unpack[SharedOptions]) -> None:
        check_positive(num_bins=num_bins)
        super().__init__(num_features, dim, **shared)
        self.num_bins = num_bins
        self.register_buffer("offsets", torch.arange(num_features) * num_bins, persistent=False)

    @abstractmethod
    def index(self, values: Tensor) -> Tensor:
        """The row of each value, (B, q) int64 from 0 to num_bins - 1."""

    def rows(self) -> Tensor:
        """The rows of all features, (q, num_bins, d)."""
        return self.table

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        return embedding(self.index(values) + self.offsets, self.rows().flatten(0, 1))


class EdgeEmbedding(RowEmbedding):
    """Base of the methods whose bins are found offline: row i is for values in (edge i, edge i+1].

    Bins are closed on the right, as the inverted CDF requires: a quantile belongs to the bin that it ends. If edges
    coincide, the bins between them stay empty and keep their rows. A feature never seen has one bin.

    Args:
        num_bins: number of bins; `edges` is a buffer (q, num_bins - 1), padded with +inf.
    """

    edges: Tensor

    def __init__(self, num_features: int, dim: int, *, num_bins: int, **shared: Unpack[SharedOptions]) -> None:
        super().__init__(num_features, dim, num_bins=num_bins, **shared)
        self.register_buffer("edges", torch.full((num_features, num_bins - 1), torch.inf))

    def index(self, values: Tensor) -> Tensor:
        return count_below(self.edges, values)

    def _fit(self, values: Tensor, labels: Tensor | None) -> None:
        columns = values.double().cpu().numpy()
        targets = None if labels is None else labels.double().cpu().numpy()
        edges = np.full(self.edges.shape, np.inf)
        for feature in range(self.num_features):
            column = columns[:, feature]
            seen = np.isfinite(column)
            if seen.any():
                found = np.sort(self.find_edges(column[seen], None if targets is None else targets[seen]))
                edges[feature, : found.size] = found
        self.edges.copy_(_round_down(torch.from_numpy(edges), self.edges.dtype))

    def find_edges(self, column: Floats, labels: Floats | None) -> Floats:
        """At most num_bins - 1 edges for the finite values of one feature, of which there is at least one.

        Here they are the i/num_bins quantiles.
        """
        return inverted_cdf(np.sort(column), np.arange(1, self.num_bins) / self.num_bins)


def _round_down(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers rounded down to `dtype`: a value of that type exceeds the result if and only if it exceeds them."""
    rounded = numbers.to(dtype)
    below = torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    return torch.where(rounded.to(numbers.dtype) > numbers, below, rounded)
