"""The shared search and rounding against definitions."""

import numpy as np
import pytest
import torch

from daes.embedding.binning import _round_down
from daes.embedding.search import _search_in_blocks, _unrolled_search, count_below, finite


def counted_one_by_one(edges: torch.Tensor, values: torch.Tensor, inclusive: bool) -> list[list[int]]:
    return [
        [
            sum(edge <= value if inclusive else edge < value for edge in edges[feature].tolist())
            for feature, value in enumerate(row)
        ]
        for row in values.tolist()
    ]


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("num_edges", [0, 1, 2, 3, 4, 7, 8, 9, 10, 31, 32, 100])
def test_all_searches_count_edges(num_edges: int, inclusive: bool) -> None:
    generator = torch.Generator().manual_seed(num_edges)
    edges = torch.randint(-4, 5, (3, num_edges), generator=generator).float().sort(1).values
    edges[2] = torch.inf
    values = torch.randint(-5, 6, (40, 3), generator=generator).float()
    values[0], values[1] = 3.4e38, -3.4e38
    expected = counted_one_by_one(edges, values, inclusive)
    assert count_below(edges, values, inclusive=inclusive).tolist() == expected
    assert _unrolled_search(edges, values, inclusive).tolist() == expected
    assert _search_in_blocks(edges, values, inclusive).tolist() == expected


def test_exported_values_are_finite_in_the_same_way() -> None:
    class Finite(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return finite(values)

    values = torch.tensor([1.0, -0.0, torch.nan, torch.inf, -torch.inf, 3e38])
    assert torch.equal(torch.export.export(Finite(), (values,)).module()(values), finite(values))
    assert finite(values).isfinite().all()


def test_rounding_down_keeps_every_comparison() -> None:
    generator = np.random.default_rng(0)
    single = generator.normal(size=500).astype(np.float32)
    double = single.astype(np.float64)
    edges = np.concatenate([double, np.nextafter(double, np.inf), np.nextafter(double, -np.inf), [np.inf]])
    rounded = _round_down(torch.from_numpy(edges), torch.float32).numpy()
    around = np.concatenate([single, np.nextafter(single, np.float32(np.inf)), np.nextafter(single, np.float32(-9))])
    for value in around[:300]:
        assert np.array_equal(edges < np.float64(value), rounded < value)
