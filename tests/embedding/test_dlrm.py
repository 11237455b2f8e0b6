"""DLRM's bottom network against loops."""

import math

import pytest
import torch
from torch import nn

from daes.embedding.dlrm import DLRM


def test_equals_loops() -> None:
    torch.manual_seed(0)
    method = DLRM(3, 4, hidden=(5, 6)).double()
    data = torch.randn(40, 3, dtype=torch.float64) * torch.tensor([1.0, 30.0, 0.1]) + 7
    data[::4, 1] = math.nan
    data[::3, 2] = math.nan
    output = method(data)
    assert output.shape == (40, 1, 4)
    layers = [layer for layer in method.network if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [5, 6, 4]
    columns = [[x for x in data[:, f].tolist() if not math.isnan(x)] for f in range(3)]
    means = [sum(column) / len(column) for column in columns]
    deviations = [
        math.sqrt(sum((x - mean) ** 2 for x in column) / len(column))
        for column, mean in zip(columns, means, strict=True)
    ]
    for row in range(40):
        values = data[row].tolist()
        hidden = [0.0 if math.isnan(x) else (x - means[f]) / deviations[f] for f, x in enumerate(values)]
        for layer in layers:
            weight, bias = layer.weight.tolist(), layer.bias.tolist()
            hidden = [
                max(0.0, bias[o] + sum(weight[o][i] * hidden[i] for i in range(len(hidden)))) for o in range(len(bias))
            ]
        for feature, value in enumerate(values):
            if math.isnan(value):
                hidden = [h + m for h, m in zip(hidden, method.missing[feature].tolist(), strict=True)]
        assert output[row, 0].tolist() == pytest.approx(hidden)


def test_one_field_whatever_the_number_of_features() -> None:
    method = DLRM(13)
    assert method.num_outputs == 1
    assert method(torch.randn(2, 13)).shape == (2, 1, 16)
    assert method(torch.randn(0, 13)).shape == (0, 1, 16)


def test_encode_is_forward_without_missing_values() -> None:
    torch.manual_seed(0)
    method = DLRM(3)
    values = torch.randn(10, 3)
    method.observe(values)
    method.eval()
    assert torch.equal(method(values), method.encode(values, None, None))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"hidden must .*got 0"):
        DLRM(2, hidden=(8, 0))
