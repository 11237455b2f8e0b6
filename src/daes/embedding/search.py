"""Search in sorted edges, in operations that can be exported."""

from math import isqrt

import torch
from torch import Tensor


def finite(values: Tensor) -> Tensor:
    """The values with NaN replaced by 0 and ±inf by the largest finite numbers."""
    if not torch.compiler.is_exporting():
        return values.nan_to_num()
    limits = torch.finfo(values.dtype)  # in ONNX three operations instead of nine
    return torch.where(values.isnan(), 0.0, values).clamp(limits.min, limits.max)


def count_below(edges: Tensor, values: Tensor, *, inclusive: bool = False) -> Tensor:
    """Number of its feature's edges below each value (at or below it, if `inclusive`).

    **Shape.** edges (q, E), ascending in each row; values (B, q); output (B, q), int64 from 0 to E.

    >>> edges = torch.tensor([[1.0, 2.0, 2.0]])
    >>> values = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> count_below(edges, values).flatten().tolist()
    [0, 0, 1, 3]
    >>> count_below(edges, values, inclusive=True).flatten().tolist()
    [0, 1, 3, 3]
    """
    if torch.compiler.is_exporting():
        return _search_in_blocks(edges, values, inclusive)
    if values.device.type == "cpu":
        return _unrolled_search(edges, values, inclusive)
    return torch.searchsorted(edges.contiguous(), values.T.contiguous(), right=inclusive).T


def _unrolled_search(edges: Tensor, values: Tensor, inclusive: bool) -> Tensor:
    # A binary search over 2^k - 1 edges takes k look-ups without branches. On the CPU, where a branch on random data is
    # mispredicted half of the time, that is three times as fast as searchsorted.
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


def _search_in_blocks(edges: Tensor, values: Tensor, inclusive: bool) -> Tensor:
    # With few operations, since each has a cost at run time, and without searchsorted, which ONNX does not have: the
    # edges are in about √E blocks, and a value is compared with the last edge of every block, then with the edges of
    # one block. The last edge is infinite, so that no value passes it.
    num_features, num_edges = edges.shape
    size = isqrt(num_edges) + 1
    num_blocks = num_edges // size + 1
    blocks = torch.nn.functional.pad(edges, (0, num_blocks * size - num_edges), value=torch.inf)
    blocks = blocks.view(num_features, num_blocks, size)

    def below(edges: Tensor) -> Tensor:
        passed = edges <= values.unsqueeze(-1) if inclusive else edges < values.unsqueeze(-1)
        # A product, because onnxruntime gives a sum over no rows the wrong shape.
        return (passed.to(torch.float32) @ torch.ones(edges.shape[-1], 1, device=edges.device)).squeeze(-1)

    block = below(blocks[..., -1])
    start = torch.arange(num_features, device=edges.device, dtype=torch.float32) * num_blocks
    own = torch.nn.functional.embedding((block + start).long(), blocks.flatten(0, 1))
    return (block * size + below(own)).long()
