"""DEER against piecewise linear interpolation by hand."""

import math

import pytest
import torch

from daes.embedding.deer import DEER


def encoded_one_by_one(method: DEER, place: float, feature: int) -> list[float]:
    powers = [math.exp(theta) for theta in method.theta[feature].tolist()]
    widths = [power / sum(powers) for power in powers]
    rows = method.table[feature].tolist()
    start = 0.0
    for bucket, width in enumerate(widths):
        if place <= start + width or bucket == len(widths) - 1:
            t = min((place - start) / width, 1.0)
            pairs = zip(rows[bucket], rows[bucket + 1], strict=True)
            return [(1 - t) * left + t * right for left, right in pairs]
        start += width
    return rows[0]


@pytest.mark.parametrize("num_meta", [1, 2, 10])
def test_equals_interpolation_by_hand(num_meta: int) -> None:
    torch.manual_seed(0)
    method = DEER(3, 4, num_meta=num_meta).double()
    with torch.no_grad():
        method.theta.copy_(torch.randn(3, num_meta - 1))
    data = torch.randn(40, 3, dtype=torch.float64) * 100
    output = method(data)
    low, high = data.amin(0).tolist(), data.amax(0).tolist()
    for row in range(40):
        for feature in range(3):
            place = (data[row, feature].item() - low[feature]) / (high[feature] - low[feature])
            assert output[row, feature].tolist() == pytest.approx(encoded_one_by_one(method, place, feature))


def test_widths_start_equal_and_learn() -> None:
    torch.manual_seed(0)
    method = DEER(1, 2, num_meta=5)
    with torch.no_grad():
        method.table.copy_(torch.arange(10.0).reshape(1, 5, 2))
    values = torch.linspace(0.0, 4.0, 9).unsqueeze(1)
    torch.testing.assert_close(method(values)[:, 0, 0], 2 * values[:, 0])
    method(values[1::2])[:, 0, 0].square().sum().backward()
    assert method.theta.grad is not None
    assert method.theta.grad.abs().max() > 0


def test_a_bucket_of_no_width_stays_finite() -> None:
    method = DEER(1, 2, num_meta=4)
    with torch.no_grad():
        method.theta.copy_(torch.tensor([[0.0, -500.0, 0.0]]))
    output = method(torch.linspace(0.0, 1.0, 101).unsqueeze(1))
    output.sum().backward()
    assert output.isfinite().all()
    assert method.theta.grad is not None
    assert method.theta.grad.isfinite().all()


def test_outside_the_range_and_before_it() -> None:
    method = DEER(1, 3).eval()
    assert torch.equal(method(torch.tensor([[9.0]]))[0], method.table[:, 0])
    method.observe(torch.tensor([[-1.0], [1.0]]))
    far = method(torch.tensor([[-1e30], [1e30]]))
    torch.testing.assert_close(far[:, 0], method.table[0, [0, -1]])
