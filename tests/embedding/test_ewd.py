"""EWD against its formula in exact arithmetic."""

from fractions import Fraction
from math import floor

import pytest
import torch

from daes.embedding.ewd import EWD


def row_by_formula(value: float, low: float, high: float, num_bins: int) -> int:
    if high == low:
        return 0
    place = (Fraction(value) - Fraction(low)) * num_bins / (Fraction(high) - Fraction(low))
    return min(max(floor(place), 0), num_bins - 1)


@pytest.mark.parametrize("num_bins", [1, 3, 10, 49])
def test_equals_the_formula(num_bins: int) -> None:
    torch.manual_seed(num_bins)
    data = torch.stack([torch.arange(-49.0, 50.0), torch.randn(99), torch.full((99,), -2.0)], 1)
    data[3, 1], data[4, 1] = torch.nan, torch.inf
    method = EWD(3, 4, num_bins=num_bins).fit(data)
    finite = data.nan_to_num(0.0, 0.0)
    probes = torch.cat([finite, torch.randn(50, 3) * 60])
    output = method(probes)
    for feature in range(3):
        low, high = finite[:, feature].min().item(), finite[:, feature].max().item()
        for row, value in enumerate(probes[:, feature].tolist()):
            expected = method.table[feature, row_by_formula(value, low, high, num_bins)]
            assert torch.equal(output[row, feature], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_widest_range_has_all_bins(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    data = torch.linspace(-1.0, 1.0, 41, dtype=dtype).unsqueeze(1) * largest
    method = EWD(1, num_bins=10).to(dtype).fit(data)
    assert method.index(data).flatten().unique().tolist() == list(range(10))


def test_a_column_never_seen_has_one_bin() -> None:
    method = EWD(1, num_bins=10).fit(torch.tensor([[torch.nan], [torch.inf]]))
    assert method.index(torch.tensor([[-5.0], [0.0], [1e30]])).flatten().tolist() == [0, 0, 0]
