"""The soft choice among meta-embeddings against loops."""

import math

import pytest
import torch

from daes.embedding.aggregation import aggregate


def test_equals_loops() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 4, 5, dtype=torch.float64) * 300
    table = torch.randn(3, 4, 2, dtype=torch.float64)
    output = aggregate(scores, table)
    assert output.shape == (5, 3, 2)
    for row in range(5):
        for feature in range(3):
            column = scores[feature, :, row].tolist()
            powers = [math.exp(score - max(column)) for score in column]
            for k in range(2):
                expected = sum(power * table[feature, i, k].item() for i, power in enumerate(powers)) / sum(powers)
                assert output[row, feature, k].item() == pytest.approx(expected)


def test_the_result_has_the_dtype_of_the_table() -> None:
    assert aggregate(torch.zeros(1, 2, 0), torch.zeros(1, 2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
