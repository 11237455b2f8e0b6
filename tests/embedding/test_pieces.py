"""Functions by pieces against the functions themselves, at cuts, beside them and far away."""

import numpy as np
import pytest
import torch

from daes.embedding.pieces import NumberTables

LARGEST = float(np.finfo(np.float32).max)
HARD = [
    [0.0],
    [-1.0, 1.0],
    [3.0, 3.0, 3.0, 1.0],
    [-LARGEST, LARGEST],
    [-LARGEST, -3e38, 3e38],
    [1e-45, 2e-45, 1e-38],
    [-0.0, 1e-45],
    [1e7, 1e7 + 1, 1e7 + 2],
    list(range(-60, 60)),
]


def probes(cuts):
    """Every cut and its neighbours, values in between, the largest and infinite ones, a missing one: (n, 1)."""
    at = np.array([*cuts, 0.0], np.float32)
    infinity = np.float32(np.inf)
    with np.errstate(over="ignore"):
        near = [at, np.nextafter(at, infinity), np.nextafter(at, -infinity)]
    between = np.linspace(float(at.min()), float(at.max()), 50).astype(np.float32)
    far = np.array([-np.inf, -LARGEST, LARGEST, np.inf, np.nan], np.float32)
    return torch.from_numpy(np.concatenate([*near, between, far])).unsqueeze(1)


def stairs(cuts):
    """A function that is a parabola between cuts, each another, and constant outside; 7 and −7 for missing."""
    ordered = torch.tensor(sorted(np.unique(np.array(cuts, np.float32)).tolist()), dtype=torch.float64)

    def function(values):
        place = (values >= ordered).sum(1)
        inner = (place > 0) & (place < len(ordered))
        low = ordered[(place - 1).clamp(0)]
        width = torch.where(inner, ordered[place.clamp(max=len(ordered) - 1)] - low, 1.0)
        share = torch.where(inner, (values[:, 0] - low) / width, 0.0)
        found = torch.stack([place + share * (1 - 0.3 * share), -3.0 * place + 0.5 * share], 1)
        return torch.where(values.isnan(), torch.tensor([7.0, -7.0]), found).unsqueeze(1)

    return function


@pytest.mark.parametrize("cuts", HARD)
def test_pieces_are_the_function(cuts):
    function, values = stairs(cuts), probes(cuts)
    pieces = NumberTables(torch.tensor([cuts]), function)
    found = pieces(values, pieces.find(values))
    expected = function(values.double().clamp(-LARGEST, LARGEST))
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


def test_features_have_their_own_cuts_and_missing_values():
    random = np.random.default_rng(0)
    columns = [random.normal(size=count) * 10.0**place for place, count in enumerate((1, 40, 7, 300))]
    cuts = torch.full((4, 300), torch.nan)
    for row, column in zip(cuts, columns, strict=True):
        row[: len(column)] = torch.from_numpy(column)
    functions = [stairs(column) for column in columns]

    def together(values):
        return torch.cat([function(values[:, [place]]) for place, function in enumerate(functions)], 1)

    values = torch.randn(5000, 4) * torch.tensor([1.0, 10.0, 100.0, 1000.0])
    values[torch.rand(5000, 4) < 0.1] = torch.nan
    pieces = NumberTables(cuts, together)
    torch.testing.assert_close(
        pieces(values, pieces.find(values)).double(), together(values.double()), rtol=1e-6, atol=1e-5
    )


def test_an_infinite_number_is_at_the_largest_cut_on_its_side():
    pieces = NumberTables(
        torch.tensor([[-LARGEST, 5.0, LARGEST]]), lambda values: (values >= LARGEST).float().unsqueeze(-1)
    )
    values = torch.tensor([[torch.inf], [LARGEST], [-torch.inf], [6.0]])
    assert pieces(values, pieces.find(values)).flatten().tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("degree", "power"), [(0, 0), (1, 1), (2, 2)])
def test_there_are_no_coefficients_but_those_needed(degree, power):
    pieces = NumberTables(
        torch.tensor([[1.0, 2.0]]), lambda values: values.clamp(1, 2).nan_to_num().unsqueeze(-1) ** power
    )
    assert len(pieces.coefficients) == degree + 1


def test_no_cuts_and_no_rows():
    constant = NumberTables(torch.empty(2, 0), lambda values: torch.full((*values.shape, 3), 4.0, dtype=torch.float64))
    values = torch.tensor([[0.0, -9.0], [torch.inf, torch.nan]])
    assert constant(values, constant.find(values)).flatten().tolist() == [4.0] * 12
    assert constant(values[:0], constant.find(values[:0])).shape == (0, 2, 3)


def test_a_table_of_another_function_has_the_same_places():
    pieces = NumberTables(torch.tensor([[1.0, 2.0]]), lambda values: values.new_zeros(*values.shape, 1))
    table = pieces.tabulate(lambda values: (values >= 2).long().unsqueeze(-1) - 5 * values.isnan().long().unsqueeze(-1))
    values = torch.tensor([[torch.nan], [-torch.inf], [0.5], [1.5], [2.0], [torch.inf]])
    assert table[pieces.find(values).long()].flatten().tolist() == [-5, 0, 0, 0, 1, 1]
