"""YouTube's powers against the formula."""

import math
from itertools import pairwise

import pytest
import torch

from daes.embedding.youtube import YouTube


def test_plain_inputs_are_rank_square_and_root() -> None:
    torch.manual_seed(0)
    method = YouTube(2, 4, num_knots=10).double()
    data = torch.stack([torch.arange(101.0), torch.arange(101.0) ** 2], 1).double()
    method.observe(data)
    probes = torch.tensor([[0.0, 0.0], [37.0, 2450.0], [100.0, 1e4], [-5.0, 1e30], [math.nan, 4.0]]).double()
    output = method.eval().outputs(probes).plain
    assert output.shape == (5, method.plain_dim) == (5, 6)
    for row in range(5):
        for feature in range(2):
            value = probes[row, feature].item()
            triple = output[row, 3 * feature : 3 * feature + 3]
            if math.isnan(value):
                assert torch.equal(triple, method.missing[feature])
                continue
            knots = [(10.0 * i) ** (feature + 1) for i in range(11)]
            steps = (min(max((value - a) / (b - a), 0.0), 1.0) for a, b in pairwise(knots))
            rank = sum(steps) / 10
            assert triple.tolist() == pytest.approx([rank, rank**2, math.sqrt(rank)])


def test_there_is_no_embedding() -> None:
    method = YouTube(3, 8)
    assert (method.num_outputs, method.missing.shape) == (0, (3, 3))
    assert method(torch.randn(5, 3)).shape == (5, 0, 8)
    assert method(torch.randn(0, 3)).shape == (0, 0, 8)


def test_plain_inputs_need_no_call_before() -> None:
    method, other = YouTube(1), YouTube(1)
    values = torch.randn(50, 1)
    plain = method.outputs(values).plain
    other(values)  # observes as well
    assert torch.equal(plain, other.eval().outputs(values).plain)
    assert plain.std() > 0.1


def test_further_plain_inputs_come_after_the_powers() -> None:
    method = YouTube(2, plain=["score"])
    values = torch.randn(50, 2)
    plain = method.outputs(values).plain
    assert plain.shape == (50, method.plain_dim) == (50, 8)
    distributions = method.distributions
    torch.testing.assert_close(plain[:, 6:], distributions.score(distributions.place(values)))


def test_missing_triples_learn() -> None:
    method = YouTube(2)
    method.observe(torch.randn(20, 2))
    method.eval().outputs(torch.tensor([[math.nan, 1.0]])).plain.sum().backward()
    assert method.missing.grad is not None
    assert method.missing.grad.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_before_anything_was_observed() -> None:
    assert torch.equal(YouTube(2).eval().outputs(torch.tensor([[3.0, -math.inf]])).plain, torch.zeros(1, 6))
