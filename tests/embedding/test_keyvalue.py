"""Key-Value against its formula."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from daes.embedding.keyvalue import KeyValue


def encoded_one_by_one(method: KeyValue, place: float, feature: int) -> list[float]:
    size, rows = method.num_meta, method.table[feature].tolist()
    keys = [i / (size - 1) for i in range(size)] if size > 1 else [0.0]
    scores = [1 / (abs(place - key) + method.epsilon) for key in keys]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [
        sum(power * row[k] for power, row in zip(powers, rows, strict=True)) / sum(powers) for k in range(method.dim)
    ]


def places(column: list[float]) -> dict[str, Callable[[float], float]]:
    low, high = min(column), max(column)
    ordered = sorted(column)

    def rank(value: float) -> float:
        """Linear between the 0, 1/4, … 1 quantiles of 41 distinct values."""
        knots = [ordered[0], *(ordered[math.ceil(i * 41 / 4) - 1] for i in (1, 2, 3)), ordered[-1]]
        steps = (min(max((value - a) / (b - a), 0.0), 1.0) for a, b in pairwise(knots))
        return sum(steps) / 4

    return {"minmax": lambda value: (value - low) / (high - low), "rank": rank}


@pytest.mark.parametrize("num_meta", [1, 2, 10])
@pytest.mark.parametrize("kind", ["rank", "minmax"])
def test_equals_the_formula(kind: str, num_meta: int) -> None:
    torch.manual_seed(0)
    method = KeyValue(2, 3, num_meta=num_meta, input=kind, num_knots=4).double()
    data = torch.randn(41, 2, dtype=torch.float64).exp()
    output = method(data)
    for feature in range(2):
        column = data[:, feature].tolist()
        place = places(column)[kind]
        for row, value in enumerate(column):
            expected = encoded_one_by_one(method, place(value), feature)
            assert output[row, feature].tolist() == pytest.approx(expected, rel=1e-6)


def test_a_value_on_a_key_takes_its_row() -> None:
    method = KeyValue(1, 3, num_meta=5, input="minmax")
    output = method(torch.linspace(0.0, 8.0, 5).unsqueeze(1))
    torch.testing.assert_close(output[:, 0], method.table[0])


def test_half_precision_keeps_the_keys_apart() -> None:
    torch.manual_seed(0)
    method = KeyValue(1, 3, num_meta=5, input="minmax")
    values = torch.rand(50, 1)
    method.observe(values)
    expected = method.eval()(values)
    torch.testing.assert_close(method.bfloat16()(values).float(), expected, rtol=0.02, atol=1e-3)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"input must .*got 'raw'"):
        KeyValue(2, input="raw")
    with pytest.raises(ValueError, match=r"epsilon must .*got 0"):
        KeyValue(2, epsilon=0)
