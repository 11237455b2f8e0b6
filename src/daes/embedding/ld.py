"""LD: logarithmic bins for counts, one row each."""

from typing import Unpack

import numpy as np

from daes.distribution.base import Floats, check_positive
from daes.embedding.base import SharedOptions
from daes.embedding.binning import EdgeEmbedding
from daes.embedding.registry import register_method
from daes.registry import Reference

_LARGEST_VALUE = 2.0
"""Values up to this one are their own ids; larger ones share ids."""


@register_method(
    "ld",
    title="logarithmic discretisation",
    short="LD",
    family="static binning",
    reference=Reference(
        "Yuchin Juan, Yong Zhuang, Wei-Sheng Chin, Chih-Jen Lin",
        "Field-Aware Factorization Machines for CTR Prediction",
        "RecSys",
        2016,
    ),
    order=3,
)
class LD(EdgeEmbedding):
    """Logarithmic discretisation, for counts: small values have their own ids, large ones share them by logarithm.

        id(x) = floor(ln(x)²) if x > 2, otherwise x itself,      e(x) = E_id(x)

    The two kinds of ids never collide: 1 itself and floor(ln(3)²) = 1 have a row each. The vocabulary is that of the
    fitted data. An unknown id is replaced by the nearest known id of its kind, the lower of two equally near, or, if no
    id of its kind is known, by the outermost of the other kind. Since ids follow the order of the values, each known id
    owns an interval, and a look-up is one search among the ends of the intervals.

    **Shape.** values (B, q) → (B, q, d); `table` (q, max_ids, d), `edges` (q, max_ids − 1).

    NOTE[DIFF]: the 3 Idiots' code, the source of the rule, first truncates the values to integers; here they are not
    changed. It also keeps the two kinds of ids apart, by the prefix SP for a small value.

    >>> import torch
    >>> method = LD(1, dim=2).fit(torch.tensor([[0.0], [1.0], [3.0], [20.0], [22.0]]))  # ln² = 1.2, 8.97, 9.6
    >>> method.index(torch.tensor([[-7.0], [0.4], [2.0], [2.5], [4.0], [20.0], [21.0], [1e9]])).flatten().tolist()
    [0, 0, 1, 2, 2, 3, 4, 4]

    Args:
        max_ids: largest number of ids per feature. If the data have more, the most frequent ones are known.
    """

    def __init__(
        self, num_features: int, dim: int = 16, *, max_ids: int = 1024, **shared: Unpack[SharedOptions]
    ) -> None:
        check_positive(max_ids=max_ids)
        super().__init__(num_features, dim, num_bins=max_ids, **shared)
        self.table = self.new_table(num_features, max_ids, dim)

    def find_edges(self, column: Floats, labels: Floats | None) -> Floats:
        large = column > _LARGEST_VALUE
        small_ids, small_counts = np.unique(column[~large], return_counts=True)
        large_ids, large_counts = np.unique(np.floor(np.log(column[large]) ** 2), return_counts=True)
        counts = np.concatenate([small_counts, large_counts])
        known = np.zeros(counts.size, dtype=np.bool_)
        known[np.argsort(-counts, kind="stable")[: self.num_bins]] = True
        small_ids, large_ids = small_ids[known[: small_ids.size]], large_ids[known[small_ids.size :]]
        between = [_LARGEST_VALUE] if small_ids.size and large_ids.size else []
        return np.concatenate([_between_values(small_ids), between, _between_logarithms(large_ids)])


def _between_values(ids: Floats) -> Floats:
    """The largest value between each two ids that is not nearer to the upper one."""
    lower, upper = ids[:-1], ids[1:]
    middle = lower / 2 + upper / 2
    return np.clip(middle, lower, np.nextafter(upper, -np.inf))


def _between_logarithms(ids: Floats) -> Floats:
    """The largest value between each two ids whose logarithmic id is not nearer to the upper one."""
    first_of_upper = np.floor((ids[:-1] + ids[1:]) / 2) + 1
    edges: Floats = np.nextafter(np.exp(np.sqrt(first_of_upper)), -np.inf)
    return edges
