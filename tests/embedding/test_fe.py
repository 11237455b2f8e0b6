"""FE against its formula."""

import math

import pytest
import torch

from daes.embedding.fe import FE


def test_equals_the_formula() -> None:
    torch.manual_seed(0)
    method = FE(2, 3).double()
    data = torch.randn(30, 2, dtype=torch.float64) * 5 + 2
    data[3, 1] = math.nan
    output = method(data)
    for feature in range(2):
        column = [x for x in data[:, feature].tolist() if not math.isnan(x)]
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / len(column))
        for row, value in enumerate(data[:, feature].tolist()):
            vector = method.table[feature].tolist()
            expected = [v * (value - mean) / deviation for v in vector]
            if math.isnan(value):
                expected = method.missing[feature].tolist()
            assert output[row, feature].tolist() == pytest.approx(expected)


def test_training_observes_first_and_evaluation_never() -> None:
    method = FE(1, 2)
    values = torch.tensor([[1.0], [3.0]])
    assert torch.equal(method(values)[1, 0], method.table[0])
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.eval()(torch.tensor([[100.0], [math.nan]]))
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_nothing_observed_is_the_zero_vector() -> None:
    assert torch.equal(FE(2, 3).eval()(torch.tensor([[5.0, -3e38]])), torch.zeros(1, 2, 3))
