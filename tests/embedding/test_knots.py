"""What is read off knots, against plain Python."""

import math
from itertools import pairwise
from statistics import NormalDist

import pytest
import torch

from daes.embedding.distributions import FeatureDistributions
from daes.embedding.estimator_knots import make_distributions
from daes.embedding.knots import FeatureKnots


def finite_column(data: torch.Tensor, feature: int) -> list[float]:
    return [value for value in data[:, feature].tolist() if math.isfinite(value)]


def rank_of(value: float, column: list[float], num_knots: int) -> float:
    """The mean of the thermometer vector, component by component."""
    ordered = sorted(column)

    def quantile(i: int) -> float:
        return next(x for n, x in enumerate(ordered, 1) if n * num_knots >= i * len(ordered))

    knots = [ordered[0], *(quantile(i) for i in range(1, num_knots)), ordered[-1]]
    total = 0.0
    for left, right in pairwise(knots):
        if right > left:
            total += min(max((value - left) / (right - left), 0.0), 1.0)
        else:
            total += float(value >= left)
    return total / num_knots


@pytest.mark.parametrize("num_batches", [1, 7, 300])
def test_rank_and_score_equal_those_of_the_whole_stream(num_batches: int, hostile_stream: torch.Tensor) -> None:
    data = hostile_stream
    known = FeatureDistributions(6, 100, tolerance=0.0).double()
    for batch in data.tensor_split(num_batches):
        known.observe(batch)
    probes = torch.cat([data[:40].nan_to_num(0.0, 1e9, -1e9), torch.tensor([[-1e30] * 6, [1e30] * 6]).double()])
    ranks, scores = known.rank(probes), known.score(known.place(probes))
    for feature in range(6):
        column = finite_column(data, feature)
        for row, value in enumerate(probes[:, feature].tolist()):
            expected = rank_of(value, column, 100) if column else 0.0
            assert ranks[row, feature].item() == pytest.approx(expected, abs=1e-9), (feature, value)
            score = NormalDist().inv_cdf(min(max(expected, 0.005), 0.995)) if column else 0.0
            assert scores[row, feature].item() == pytest.approx(score, abs=1e-6), (feature, value)


def test_knots_of_a_sample_that_expiry_has_emptied_stay() -> None:
    known = make_distributions(1, 4, reservoir_size=1, options={"expiry": 4})
    stream, emptied = torch.arange(300.0).unsqueeze(1), 0
    for batch in stream.split(3):
        before = known.knots.clone()
        known.observe(batch)
        if not known.bank.estimators[0].sample.size:
            emptied += 1
            assert torch.equal(known.knots[:, 1:-1], before[:, 1:-1])
        assert torch.equal(known.knots, known.knots.sort(1).values)  # none of them is NaN
    assert emptied


def test_fixed_knots_keep_their_precision() -> None:
    third = torch.tensor([[0.0, 1 / 3, 1.0]], dtype=torch.float64)
    known = FeatureKnots(third)
    assert torch.equal(known.knots, third)
    assert known.place(torch.tensor([[1 / 3]], dtype=torch.float64)).item() == 1.0
    just_below = math.nextafter(1 / 3, 0)
    assert known.place(torch.tensor([[just_below]], dtype=torch.float64)).item() < 1.0


def test_standardised_values_are_clamped_and_a_constant_has_none() -> None:
    known = FeatureKnots(torch.tensor([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]]))
    result = known.standardised(torch.tensor([[1.0, 5.0], [1e30, 9.0], [-1e30, -9.0]]))
    assert result.tolist() == [[0.0, 0.0], [4.0, 0.0], [-4.0, 0.0]]


def test_a_deviation_whose_half_is_nothing_is_that_of_a_constant() -> None:
    known = FeatureKnots(torch.tensor([[0.0, 2.8e-45]]))
    assert known.scale.item() == 2.0**-149
    assert known.standardised(torch.tensor([[0.0], [2.8e-45]])).tolist() == [[0.0], [0.0]]


def test_fixed_knots_observe_nothing() -> None:
    known = FeatureKnots(torch.tensor([[0.0, 1.0]]))
    known.observe(torch.full((3, 1), 9.0))
    assert not known.follows
    assert known.knots.tolist() == [[0.0, 1.0]]
