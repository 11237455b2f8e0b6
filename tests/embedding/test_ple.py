"""PLE against its definition and against the authors' package."""

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from rtdl_num_embeddings import PiecewiseLinearEmbeddings, PiecewiseLinearEncoding

from daes.embedding import PLE


@pytest.fixture
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def data(rows: int = 500) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(rows, 3) * torch.tensor([1.0, 100.0, 0.01]) + torch.tensor([0.0, -50.0, 3.0])


def inside(knots: torch.Tensor) -> torch.Tensor:
    """Values within the range of the knots, the knots among them."""
    return torch.cat([knots.T, torch.lerp(knots[:, 0], knots[:, -1], torch.rand(200, len(knots)))])


@pytest.mark.usefixtures("float64")  # theirs cancels in float32 where bins are narrow and far from 0
@pytest.mark.parametrize("num_meta", [2, 10, 50])
def test_equals_the_authors_package_inside_the_range(num_meta: int) -> None:
    ple = PLE(3, 4, num_meta=num_meta).fit(data())
    values = inside(ple.knots)
    bins = list(ple.knots)
    theirs = PiecewiseLinearEmbeddings(bins, 4, activation=False, version="A")
    with torch.no_grad():
        theirs.linear.weight.copy_(ple.meta_embeddings)
        theirs.linear.bias.zero_()
    torch.testing.assert_close(ple(values), theirs(values), rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        ones = PLE(3, num_meta, num_meta=num_meta).fit(data())
        ones.meta_embeddings.copy_(torch.eye(num_meta).expand(3, -1, -1))
    encoded = PiecewiseLinearEncoding(bins)(values).view(len(values), 3, num_meta)
    torch.testing.assert_close(ones(values), encoded, rtol=0, atol=1e-9)


def test_outside_the_range_it_stops_where_theirs_goes_on() -> None:
    ple = PLE(3, 4).fit(data())
    low, high = ple.knots[:, :1].T, ple.knots[:, -1:].T
    assert torch.equal(ple(low - 1000), ple(low))
    assert torch.equal(ple(high + 1000), ple(high))


def test_equals_the_definition_on_tied_columns() -> None:
    torch.manual_seed(1)
    seen = torch.stack([torch.randn(97).clamp(min=0).round(decimals=1), torch.full((97,), 2.0), torch.randn(97)], 1)
    seen[::4, 2] = torch.nan
    ple = PLE(3, 2, num_meta=5, init_std=1.0).double().fit(seen.double())
    values = torch.cat([seen, torch.randn(30, 3), torch.full((1, 3), 2.0)]).double()
    result = ple(values)
    for row, line in enumerate(values.tolist()):
        for feature, x in enumerate(line):
            if math.isnan(x):
                expected = ple.missing[feature].tolist()
            else:
                column = sorted(y for y in seen[:, feature].tolist() if math.isfinite(y))
                inner = [
                    next(y for r, y in enumerate(column, start=1) if r * 5 >= i * len(column)) for i in range(1, 5)
                ]
                expected = [0.0, 0.0]
                for i, (left, right) in enumerate(pairwise([column[0], *inner, column[-1]])):
                    share = min(max((x - left) / (right - left), 0.0), 1.0) if right > left else float(x >= left)
                    vector = ple.meta_embeddings[feature, i].tolist()
                    expected = [e + share * component for e, component in zip(expected, vector, strict=True)]
            assert result[row, feature].tolist() == pytest.approx(expected, abs=1e-9)


def test_a_new_fit_replaces_the_old() -> None:
    ple = PLE(1, num_meta=2).fit(torch.tensor([[0.0], [1.0]]))
    ple.fit(torch.tensor([[10.0], [20.0], [30.0], [40.0]]))
    assert ple.knots.tolist() == [[10.0, 20.0, 40.0]]


def test_bad_arguments_are_shown() -> None:
    with pytest.raises(ValueError, match=r"num_meta must .*got 0"):
        PLE(2, num_meta=0)
    with pytest.raises(ValueError, match="at least one row to fit on"):
        PLE(2).fit(torch.empty(0, 2))
    with pytest.raises(ValueError, match=r"labels must have one entry per row, got shape \(3,\) for 2 rows"):
        PLE(2).fit(torch.zeros(2, 2), torch.zeros(3))
