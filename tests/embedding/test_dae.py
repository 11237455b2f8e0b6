"""DAE: batch quantiles against the estimator, the formula against loops."""

import math

import numpy as np
import pytest
import torch

from daes.distribution.order_statistics import OrderStatistics
from daes.embedding.dae import DAE, BatchQuantiles


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    result = []
    for size in (50, 1, 33, 7, 110):
        batch = torch.randn(size, 5, generator=generator, dtype=torch.float64).exp() * 10
        batch[:, 1] = batch[:, 1].round()
        batch[:, 2] = torch.nan
        batch[torch.rand(size, generator=generator) < 0.5, 3] = torch.nan
        batch[0, 4] = torch.inf
        result.append(batch)
    return result


@pytest.mark.parametrize("num_quantiles", [1, 4, 10, 99])
def test_batch_quantiles_equal_the_estimator(num_quantiles: int) -> None:
    quantiles = BatchQuantiles(5, num_quantiles)
    levels = np.arange(1, num_quantiles + 1) / (num_quantiles + 1)
    estimators = [OrderStatistics(levels) for _ in range(5)]
    for batch in batches():
        quantiles.observe(batch)
        for estimator, column in zip(estimators, batch.T.numpy(), strict=True):
            estimator.update(column)
    for feature in (0, 1, 3, 4):
        expected = estimators[feature].quantile(levels)
        np.testing.assert_allclose(quantiles.quantiles[feature].numpy(), expected, rtol=1e-12)
        assert quantiles.batches[feature].item() == estimators[feature].batches
    assert torch.equal(quantiles.quantiles[2], torch.zeros(num_quantiles, dtype=torch.float64))
    assert quantiles.batches[2].item() == 0


def test_momentum_weighs_the_newest_batch() -> None:
    quantiles = BatchQuantiles(1, 1, momentum=0.25)
    for value in (8.0, 16.0, 2.0):
        quantiles.observe(torch.tensor([[value]]))
    assert quantiles.quantiles.item() == (8.0 * 0.75 + 16.0 * 0.25) * 0.75 + 2.0 * 0.25


def encoded_one_by_one(
    method: DAE, value: float, column: list[float], quantiles: list[float], feature: int
) -> list[float]:
    mean = sum(column) / len(column)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / len(column))
    distances = [abs(value - quantile) / deviation for quantile in quantiles]
    first, second = method.first_weight[feature].tolist(), method.second_weight[feature].tolist()
    hidden = method.first_bias[feature].tolist()
    for h in range(len(hidden)):
        hidden[h] += sum(distance * first[h][i] for i, distance in enumerate(distances))
        hidden[h] = hidden[h] if hidden[h] > 0 else 0.01 * hidden[h]
    scores = method.second_bias[feature].tolist()
    for i in range(len(scores)):
        scores[i] += sum(h * second[i][j] for j, h in enumerate(hidden))
    powers = [math.exp(score) for score in scores]
    rows = method.table[feature].tolist()
    return [
        sum(power * row[k] for power, row in zip(powers, rows, strict=True)) / sum(powers) for k in range(method.dim)
    ]


def test_equals_loops() -> None:
    torch.manual_seed(0)
    method = DAE(2, 3, num_meta=4, hidden=5).double()
    parts = [torch.randn(n, 2, dtype=torch.float64) * torch.tensor([1.0, 50.0]) for n in (9, 30)]
    method(parts[0])
    output = method(parts[1])
    for feature in range(2):
        columns = [part[:, feature].tolist() for part in parts]
        quantiles = [
            sum(sorted(column)[math.ceil(i * len(column) / 5) - 1] for column in columns) / 2 for i in range(1, 5)
        ]
        for row, value in enumerate(columns[1]):
            expected = encoded_one_by_one(method, value, columns[0] + columns[1], quantiles, feature)
            assert output[row, feature].tolist() == pytest.approx(expected)


def test_nothing_observed_depends_on_no_value() -> None:
    output = DAE(2).eval()(torch.tensor([[5.0, -3e38], [0.0, 1.0]]))
    assert output.isfinite().all()
    assert torch.equal(output[0], output[1])


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"momentum must .*got 1\.5"):
        DAE(2, momentum=1.5)
    with pytest.raises(ValueError, match=r"hidden must .*got 0"):
        DAE(2, hidden=0)
