"""MultiHot against its sum, row by row."""

import pytest
import torch

from daes.embedding.efd import EFD
from daes.embedding.multihot import MultiHot


@pytest.mark.parametrize(("num_bins", "neighbours"), [(10, 1), (10, 3), (4, 9), (1, 1), (10, 0)])
def test_equals_the_sum_over_neighbours(num_bins: int, neighbours: int) -> None:
    torch.manual_seed(0)
    data = torch.randn(60, 3)
    data[:, 2] = data[:, 2].round()
    method = MultiHot(3, 4, num_bins=num_bins, neighbours=neighbours).double().fit(data.double())
    output = method(data.double())
    index = EFD(3, 4, num_bins=num_bins).fit(data).index(data)
    for row in range(60):
        for feature in range(3):
            expected = torch.zeros(4, dtype=torch.float64)
            for bin_ in range(num_bins):
                if abs(bin_ - index[row, feature].item()) <= neighbours:
                    expected += method.table[feature, bin_]
            torch.testing.assert_close(output[row, feature], expected)


def test_features_share_no_rows() -> None:
    data = torch.arange(20.0).reshape(10, 2)
    method = MultiHot(2, 4).fit(data)
    method(data)[:, 0].sum().backward()
    assert method.table.grad is not None
    assert method.table.grad[0].abs().min() > 0
    assert method.table.grad[1].abs().max() == 0


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"neighbours must .*got -1"):
        MultiHot(2, neighbours=-1)
