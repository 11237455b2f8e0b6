"""Which pairs of fields tell more together than apart, and the cells their combinations are counted in."""

from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.evidence.options import Evidence

_MOST_FIELDS = 64
"""Of more fields only those that tell most by themselves are paired: the number of pairs grows with their square."""

_PRIME = 1_000_003


def pair_cells(first: Any, second: Any, cells: int) -> Any:
    """The cell that two fields' values share, by hashing; tensors or arrays of whole numbers."""
    remainder = torch.remainder if isinstance(first, torch.Tensor) else np.remainder
    return remainder(first * _PRIME + second, cells)


def choose_pairs(
    cells: NDArray[np.int64],
    parts: NDArray[np.float64],
    labels: NDArray[np.float64],
    prior: float,
    options: Evidence,
    count: int,
) -> list[tuple[int, int]]:
    """The pairs of fields whose combinations stray farthest from what their parts lead to expect.

        Σ_cells (c − Σe)² / (Σ e(1 − e) + 1) − #cells,    e = sigmoid(logit p̄ + z_i + z_j)

    with c the clicks of a cell and the inner sums over its rows. Pairs with more cells than rows are left out.

    **Shape.** cells and parts z (N, fields), labels (N,).
    """
    fields = list(range(cells.shape[1]))
    if len(fields) > _MOST_FIELDS:
        told = np.abs(parts).mean(axis=0)
        fields = sorted(np.argsort(-told)[:_MOST_FIELDS].tolist())
    base = np.log(prior / (1 - prior))
    scores = {}
    for pair in combinations(fields, 2):
        key = pair_cells(cells[:, pair[0]], cells[:, pair[1]], options.pair_cells)
        views = np.bincount(key, minlength=options.pair_cells)
        used = np.flatnonzero(views)
        if used.size >= len(labels):
            continue
        expected = 1 / (1 + np.exp(-(base + parts[:, pair[0]] + parts[:, pair[1]])))
        excess = np.bincount(key, labels - expected, options.pair_cells)[used]
        spread = np.bincount(key, expected * (1 - expected), options.pair_cells)[used]
        scores[pair] = float((excess**2 / (spread + 1)).sum() - used.size)
    return sorted(sorted(scores, key=lambda pair: -scores[pair])[:count])
