"""AutoDis against the published formula, without the identity that makes it fast."""

import math

import pytest
import torch

from daes.embedding.autodis import AutoDis


def softmax(scores: list[float]) -> list[float]:
    largest = max(scores)
    powers = [math.exp(score - largest) for score in scores]
    return [power / sum(powers) for power in powers]


def encoded_one_by_one(method: AutoDis, place: float, feature: int) -> list[float]:
    size, w = method.num_meta, method.first_weight[feature].tolist()
    matrix, rows = method.second_weight[feature].tolist(), method.table[feature].tolist()
    h = [w[i] * place if w[i] * place > 0 else method.slope * w[i] * place for i in range(size)]
    z = [sum(matrix[i][j] * h[j] for j in range(size)) + method.alpha * h[i] for i in range(size)]
    weights = softmax([score / method.temperature for score in z])
    return [sum(weights[i] * rows[i][k] for i in range(size)) for k in range(method.dim)]


@pytest.mark.parametrize("options", [{}, {"num_meta": 4, "alpha": -0.3, "temperature": 2.0, "slope": 0.5}])
def test_equals_the_published_formula(options: dict[str, float]) -> None:
    torch.manual_seed(0)
    method = AutoDis(3, 5, **options).double()  # type: ignore[arg-type]
    data = torch.randn(30, 3, dtype=torch.float64).exp() * 10
    output = method(data)
    low, high = data.amin(0).tolist(), data.amax(0).tolist()
    for row in range(30):
        for feature in range(3):
            place = (data[row, feature].item() - low[feature]) / (high[feature] - low[feature])
            assert output[row, feature].tolist() == pytest.approx(encoded_one_by_one(method, place, feature))


def test_nothing_observed_is_the_mean_of_the_rows() -> None:
    method = AutoDis(2).eval()
    output = method(torch.tensor([[7.0, -3e38]]))
    torch.testing.assert_close(output[0], method.table.mean(1))


def test_continuous() -> None:
    torch.manual_seed(0)
    method = AutoDis(1, 4).double()
    method.observe(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    method.eval()
    steps = [
        method(torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)).diff(dim=0).abs().max().item()
        for n in (1001, 10001)
    ]
    assert steps[1] < 0.11 * steps[0]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"temperature must .*got 0"):
        AutoDis(2, temperature=0)
    with pytest.raises(ValueError, match=r"num_meta must .*got 0"):
        AutoDis(2, num_meta=0)
