"""EFD against its definition, on hostile columns."""

import math

import pytest
import torch
from safetensors.torch import load, save

from daes.embedding.base import NotFittedError
from daes.embedding.efd import EFD


def quantile_by_definition(column: list[float], numerator: int, denominator: int) -> float:
    """The smallest value x with #{values ≤ x}/n ≥ numerator/denominator, in whole numbers."""
    for candidate in sorted(column):
        if sum(value <= candidate for value in column) * denominator >= numerator * len(column):
            return candidate
    raise AssertionError


def encoded_one_by_one(method: EFD, data: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    result = torch.empty(len(values), method.num_features, method.dim)
    for feature in range(method.num_features):
        column = [value for value in data[:, feature].tolist() if math.isfinite(value)]
        bins = method.num_bins
        quantiles = [quantile_by_definition(column, i, bins) for i in range(1, bins)] if column else []
        for row, value in enumerate(values[:, feature].tolist()):
            if math.isnan(value):
                result[row, feature] = method.missing[feature]
            else:
                result[row, feature] = method.table[feature, sum(quantile < value for quantile in quantiles)]
    return result


@pytest.mark.parametrize(("num_rows", "num_bins"), [(1, 10), (7, 10), (97, 10), (100, 7), (100, 1)])
def test_equals_the_definition(num_rows: int, num_bins: int) -> None:
    torch.manual_seed(num_rows)
    data = torch.randn(num_rows, 6)
    data[:, 1] = data[:, 1].clamp(min=0.2).round()
    data[:, 2] = 3.0
    data[:, 3] = torch.nan
    data[::2, 4] = torch.nan
    data[::3, 5], data[1::3, 5] = torch.inf, -torch.inf
    method = EFD(6, 3, num_bins=num_bins).fit(data)
    probes = torch.cat([data, torch.randn(50, 6) * 3, torch.full((1, 6), torch.inf), torch.full((1, 6), -torch.inf)])
    assert torch.equal(method(probes), encoded_one_by_one(method, data, probes))


def test_bins_are_equally_frequent() -> None:
    torch.manual_seed(0)
    data = torch.randperm(1000).float().unsqueeze(1)
    counts = EFD(1, num_bins=8).fit(data).index(data).flatten().bincount()
    assert counts.tolist() == [125] * 8


def test_ties_drop_no_row() -> None:
    data = torch.cat([torch.zeros(60), torch.arange(1.0, 41.0)]).unsqueeze(1)
    method = EFD(1, num_bins=10).fit(data)
    assert method.table.shape == (1, 10, 16)
    assert method.index(torch.tensor([[0.0], [1.0], [10.0], [11.0], [40.0]])).flatten().tolist() == [0, 6, 6, 7, 9]


def test_unfitted_says_so() -> None:
    with pytest.raises(NotFittedError, match="fit"):
        EFD(2)(torch.zeros(1, 2))


def test_a_fresh_module_loads_the_state_strictly() -> None:
    torch.manual_seed(0)
    method = EFD(2).fit(torch.randn(50, 2))
    fresh = EFD(2)
    fresh.load_state_dict(load(save(method.state_dict())), strict=True)
    values = torch.randn(20, 2)
    assert torch.equal(fresh(values), method(values))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"num_bins must .*got 0"):
        EFD(2, num_bins=0)
