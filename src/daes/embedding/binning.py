"""What the binning methods share: a sorted search that also exports, and look-ups in one flat table."""

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from daes.distribution.base import Floats
from daes.embedding.base import Context, NumericalEmbedding, check_positive


def count_below(edges: Tensor, values: Tensor, *, inclusive: bool = False) -> Tensor:
    """How many of its feature's edges lie below each value (at or below it, if `inclusive`).

    **Shape.** edges (q, E), ascending in each row; values (B, q); output (B, q), int64 from 0 to E.

    >>> edges = torch.tensor([[1.0, 2.0, 2.0]])
    >>> values = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> count_below(edges, values).flatten().tolist()
    [0, 0, 1, 3]
    >>> count_below(edges, values, inclusive=True).flatten().tolist()
    [0, 1, 3, 3]
    """
    if values.device.type == "cpu" or torch.compiler.is_exporting():
        return _unrolled_search(edges, values, inclusive)
    return torch.searchsorted(edges.contiguous(), values.T.contiguous(), right=inclusive).T


def _unrolled_search(edges: Tensor, values: Tensor, inclusive: bool) -> Tensor:
    # A binary search over 2^k - 1 edges is k look-ups without a branch. On the CPU, where a branch on random data is
    # mispredicted half of the time, it is three times as fast as searchsorted; and ONNX has no searchsorted.
    num_features, num_edges = edges.shape
    steps = num_edges.bit_length()
    padded = torch.nn.functional.pad(edges, (1, 2**steps - 1 - num_edges), value=torch.inf).flatten()
    start = torch.arange(num_features, device=edges.device, dtype=torch.int32) * 2**steps
    flat = values.reshape(-1)
    found = start.expand(values.shape).reshape(-1)
    for step in reversed(range(steps)):
        edge = padded.index_select(0, found + 2**step)
        passed = edge <= flat if inclusive else edge < flat
        found = found + passed.to(torch.int32) * 2**step
    rank: Tensor = (found.view(values.shape) - start).clamp(max=num_edges)
    return rank.long()


class RowEmbedding(NumericalEmbedding):
    """Base of the methods that give each value a row of its feature's table.

    A method writes `index`, the row of each value; `rows` may be more than the table itself, as long as it
    depends on the parameters alone: it is made once a batch, not once a value.

    Args:
        num_rows: how many rows a feature has.
    """

    offline = True
    offsets: Tensor

    def __init__(self, num_features: int, dim: int, *, num_rows: int, init_std: float) -> None:
        super().__init__(num_features, dim, init_std=init_std)
        self.num_rows = num_rows
        self.register_buffer("offsets", torch.arange(num_features) * num_rows, persistent=False)

    @abstractmethod
    def index(self, values: Tensor) -> Tensor:
        """The row of each value (B, q), int64 from 0 to num_rows - 1."""

    @abstractmethod
    def rows(self) -> Tensor:
        """The rows to choose from, (q, num_rows, d)."""

    def encode(self, values: Tensor, context: Tensor | Context | None) -> Tensor:
        return embedding(self.index(values) + self.offsets, self.rows().flatten(0, 1))


class EdgeEmbedding(RowEmbedding):
    """Base of the methods whose bins are found offline: row i is for values in (edge i, edge i+1].

    A bin is closed on the right, as the inverted CDF asks: a quantile belongs to the bin that it ends. Edges
    may coincide, then the bins between them stay empty and keep their rows. A feature never seen has one bin.

    Args:
        num_bins: the number of bins; `edges` is a buffer (q, num_bins - 1), padded with +inf.
    """

    edges: Tensor

    def __init__(self, num_features: int, dim: int, *, num_bins: int, init_std: float) -> None:
        check_positive(num_bins=num_bins)
        super().__init__(num_features, dim, num_rows=num_bins, init_std=init_std)
        self.num_bins = num_bins
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

    @abstractmethod
    def find_edges(self, column: Floats, labels: Floats | None) -> Floats:
        """At most num_bins - 1 edges for one feature's finite values, at least one of them."""

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_bins={self.num_bins}"


def _round_down(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of `dtype` that are not above: a value of that type is above one iff above the other."""
    rounded = numbers.to(dtype)
    below = torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    return torch.where(rounded.to(numbers.dtype) > numbers, below, rounded)
