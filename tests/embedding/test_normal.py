"""The normal score against the standard library's."""

from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from daes.embedding.normal import normal_score

TINY = [1e-30, 1e-12, 1e-9]
RANKS = [1e-7, 1e-4, 0.005, 0.02425, 0.07, 0.075, 0.08, 0.3, 0.5, 0.7, 0.925, 0.97575, 0.995, 0.9999, 1 - 1e-7]


class Score(nn.Module):
    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, rank: Tensor) -> Tensor:
        return normal_score(rank, self.margin)


def exported(rank: Tensor, margin: float = 0.0) -> Tensor:
    return torch.export.export(Score(margin), (rank,)).module()(rank)


@pytest.mark.parametrize(("score", "digits", "more"), [(normal_score, 1e-14, TINY), (exported, 4e-8, [])])
def test_equals_the_inverse_of_the_normal_cdf(score, digits: float, more: list[float]) -> None:
    rank = torch.tensor([*more, *RANKS, *torch.linspace(0.001, 0.999, 999).tolist()], dtype=torch.float64)
    expected = [NormalDist().inv_cdf(p) for p in rank.tolist()]
    assert score(rank).tolist() == pytest.approx(expected, rel=digits, abs=1e-14)


@pytest.mark.parametrize("score", [normal_score, exported])
def test_float32_keeps_six_digits(score) -> None:
    rank = torch.linspace(0.001, 0.999, 2001)
    expected = [NormalDist().inv_cdf(p) for p in rank.tolist()]
    assert score(rank).dtype == torch.float32
    assert score(rank).tolist() == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_the_exported_score_increases() -> None:
    rank = torch.linspace(0.0001, 0.9999, 20_001, dtype=torch.float64)
    assert bool((exported(rank).diff() > 0).all())


@pytest.mark.parametrize("margin", [0.005, 0.02, 0.0049, 1e-7])
def test_a_margin_leaves_the_digits_within_it(margin: float) -> None:
    rank = torch.linspace(margin, 1 - margin, 4001, dtype=torch.float64)
    expected = [NormalDist().inv_cdf(p) for p in rank.tolist()]
    assert exported(rank, margin).tolist() == pytest.approx(expected, rel=6e-8, abs=1e-14)
    assert bool((exported(rank, margin).diff() > 0).all())
