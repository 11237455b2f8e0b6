"""The encoder against its definition, component by component in float64."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from daes.embedding.interpolation import (
    aggregate,
    basis_weights,
    coordinate,
    offline_knots,
    thermometer,
    value_at,
    weighted_sum,
)


def thermometer_by_definition(x: float, knots: list[float]) -> list[float]:
    components = []
    for left, right in pairwise(knots):
        if right > left:
            components.append(min(max((x - left) / (right - left), 0.0), 1.0))
        else:
            components.append(1.0 if x >= left else 0.0)
    return components


TIED = [
    [0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 5.0],
    [-3.0, -1.0, -1.0, -1.0, 0.0, 4.0, 4.0],
    [7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0],
    [-1e30, -2.0, 0.0, 1e-30, 1.0, 3.0, 1e30],
]


def probes(knots: list[list[float]]) -> torch.Tensor:
    """Every knot of every row, the middles between, both neighbours in floating point, and far away."""
    points = {x for row in knots for x in row}
    points |= {(a + b) / 2 for row in knots for a, b in pairwise(row)}
    points |= {math.nextafter(x, way) for x in points for way in (-math.inf, math.inf)} | {-1e300, 1e300}
    column = torch.tensor(sorted(points), dtype=torch.float64)
    return column.unsqueeze(1).repeat(1, len(knots))


def test_thermometer_equals_the_definition() -> None:
    values, knots = probes(TIED), torch.tensor(TIED, dtype=torch.float64)
    found = thermometer(values, knots)
    for row, column in np.ndindex(*values.shape):
        expected = thermometer_by_definition(float(values[row, column]), TIED[column])
        assert found[row, column].tolist() == pytest.approx(expected, abs=1e-12)


def test_coordinate_is_the_sum_of_the_thermometer() -> None:
    values, knots = probes(TIED), torch.tensor(TIED, dtype=torch.float64)
    found = coordinate(values, knots)
    for row, column in np.ndindex(*values.shape):
        expected = sum(thermometer_by_definition(float(values[row, column]), TIED[column]))
        assert float(found[row, column]) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-5, 5), min_size=2, max_size=8),
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=20),
)
def test_definition_and_monotony_on_any_knots(edges: list[int], points: list[float]) -> None:
    knots = sorted(float(edge) for edge in edges)
    values = torch.tensor(sorted(points), dtype=torch.float64).unsqueeze(1)
    vectors = thermometer(values, torch.tensor([knots], dtype=torch.float64)).squeeze(1)
    sums = coordinate(values, torch.tensor([knots], dtype=torch.float64)).squeeze(1)
    for x, vector, total in zip(values.flatten().tolist(), vectors.tolist(), sums.tolist(), strict=True):
        assert vector == pytest.approx(thermometer_by_definition(x, knots), abs=1e-12)
        assert total == pytest.approx(sum(vector), abs=1e-9)
    assert bool((vectors.diff(dim=0) >= 0).all())
    assert bool((sums.diff(dim=0) >= -1e-12).all())
    assert bool((vectors.diff(dim=1) <= 0).all())  # ones, a fraction, zeros


def test_sixty_percent_zeros() -> None:
    column = torch.cat([torch.zeros(60), torch.arange(1.0, 41.0)]).unsqueeze(1)
    knots = offline_knots(column, 10)
    assert knots.tolist() == [[0, 0, 0, 0, 0, 0, 0, 10, 20, 30, 40]]
    assert thermometer(torch.zeros(1, 1), knots.float()).flatten().tolist() == [1.0] * 6 + [0.0] * 4
    assert thermometer(torch.full((1, 1), -1e-30), knots.float()).flatten().tolist() == [0.0] * 10
    assert float(coordinate(torch.zeros(1, 1), knots.float())) == 6.0


def test_outside_the_range_is_the_end_of_it() -> None:
    knots = torch.tensor([[1.0, 2.0, 4.0]])
    values = torch.tensor([[-1e38], [0.999], [4.001], [1e38]])
    assert thermometer(values, knots).flatten(1).tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert coordinate(values, knots).flatten().tolist() == [0, 0, 2, 2]


def test_knots_of_a_feature_never_seen_give_zeros() -> None:
    knots = torch.tensor([[torch.nan] * 4, [0.0, 1.0, 2.0, 3.0]])
    values = torch.tensor([[5.0, 1.5], [0.0, -1.0]])
    assert thermometer(values, knots)[:, 0].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert coordinate(values, knots).tolist() == [[0.0, 1.5], [0.0, 0.0]]


def test_a_range_as_wide_as_the_numbers_does_not_overflow() -> None:
    largest = torch.finfo(torch.float32).max
    knots = torch.tensor([[-largest, largest]])
    values = torch.tensor([[-largest], [0.0], [largest / 2], [largest]])
    assert thermometer(values, knots).flatten().tolist() == [0.0, 0.5, 0.75, 1.0]
    assert coordinate(values, knots).flatten().tolist() == [0.0, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("num_bins", [1, 4, 10])
def test_basis_weights_equal_their_definition(num_bins: int) -> None:
    places = torch.linspace(0, num_bins, 8 * num_bins + 1, dtype=torch.float64).unsqueeze(1)
    thermometers, hats = (basis_weights(places, num_bins, basis).squeeze(1) for basis in ("thermometer", "hat"))
    assert (thermometers.shape[1], hats.shape[1]) == (num_bins, num_bins + 1)
    for place, vector, hat in zip(places.flatten().tolist(), thermometers.tolist(), hats.tolist(), strict=True):
        assert vector == [min(max(place - i, 0.0), 1.0) for i in range(num_bins)]
        assert hat == [max(0.0, 1 - abs(place - i)) for i in range(num_bins + 1)]
        steps = [1.0, *vector, 0.0]  # a hat is what is left of one step when the next begins
        assert hat == pytest.approx([steps[i] - steps[i + 1] for i in range(num_bins + 1)], abs=1e-12)


def test_weighted_sum_equals_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(5, 3, 4, generator=generator, dtype=torch.float64)
    table = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    found = weighted_sum(weights, table)
    for b, q, d in np.ndindex(5, 3, 2):
        expected = sum(float(weights[b, q, m] * table[q, m, d]) for m in range(4))
        assert float(found[b, q, d]) == pytest.approx(expected)


def test_offline_knots_are_the_quantiles_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(97, 4, generator=generator).round(decimals=1)
    data[::3, 1], data[:, 2], data[::2, 3] = torch.nan, torch.nan, torch.inf
    knots = offline_knots(data, 10)
    for feature in (0, 1, 3):
        column = sorted(x for x in data[:, feature].tolist() if math.isfinite(x))
        assert (knots[feature, 0], knots[feature, 10]) == (column[0], column[-1])
        for i in range(1, 10):
            smallest = next(x for x in column if sum(y <= x for y in column) * 10 >= i * len(column))
            assert float(knots[feature, i]) == smallest
    assert knots[2].isnan().all()


def test_aggregate_equals_loops() -> None:
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


def test_aggregate_has_the_dtype_of_the_table() -> None:
    assert aggregate(torch.zeros(1, 2, 0), torch.zeros(1, 2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_value_at_is_the_inverse_of_coordinate():
    knots = torch.tensor([[-3e38, -2.0, 0.5, 3e38], [1.0, 1.0, 2.0, 7.0]])
    places = torch.tensor([0.0, 0.25, 1.0, 1.5, 2.75, 3.0])
    values = value_at(places, knots)
    torch.testing.assert_close(coordinate(values.T, knots.double())[:, 0], places.double())
    assert values[1].tolist() == [1.0, 1.0, 1.0, 1.5, 5.75, 7.0]
