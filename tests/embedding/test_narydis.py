"""NaryDis against digits written out and pooled one by one."""

import math

import pytest
import torch

from daes.embedding.efd import EFD
from daes.embedding.narydis import NaryDis


def digits_of(number: int, base: int, count: int) -> list[int]:
    """Lowest digit first."""
    return [number // base**position % base for position in range(count)]


def pooled(vectors: list[torch.Tensor], query: torch.Tensor) -> torch.Tensor:
    scores = [math.exp(float((query @ vector).detach()) / math.sqrt(len(query))) for vector in vectors]
    return sum((score / sum(scores)) * vector for score, vector in zip(scores, vectors, strict=True))  # type: ignore[return-value]


def row_one_by_one(method: NaryDis, bin_: int, feature: int) -> torch.Tensor:
    start, bases = 0, []
    for number, base in enumerate(method.bases):
        count = 1
        while base**count < method.num_bins:
            count += 1
        vectors = []
        for digit in digits_of(bin_, base, count):
            vectors.append(method.table[feature, start + digit])
            start += base
        if method.pool == "sum":
            bases.append(torch.stack(vectors).sum(0))
        else:
            bases.append(pooled(vectors, method.digit_query[feature, number]))
    assert start == method.table.shape[1]
    return torch.stack(bases).sum(0) if method.pool == "sum" else pooled(bases, method.base_query[feature])


@pytest.mark.parametrize("pool", ["attention", "sum"])
@pytest.mark.parametrize(("num_bins", "bases"), [(100, (2, 3)), (9, (3,)), (27, (3, 10, 2)), (1, (2,)), (2, (2, 5))])
def test_equals_digits_pooled_one_by_one(num_bins: int, bases: tuple[int, ...], pool: str) -> None:
    torch.manual_seed(0)
    method = NaryDis(2, 4, num_bins=num_bins, bases=bases, pool=pool, init_std=1.0).double()
    data = torch.randn(200, 2, dtype=torch.float64)
    output = method.fit(data)(data)
    index = EFD(2, num_bins=num_bins).double().fit(data).index(data)
    for row in range(0, 200, 4):
        for feature in range(2):
            expected = row_one_by_one(method, int(index[row, feature]), feature)
            torch.testing.assert_close(output[row, feature], expected)


def test_few_rows_tell_all_bins_apart() -> None:
    method = NaryDis(1)
    assert method.table.shape[1] == 2 * 7 + 3 * 5
    assert len({tuple(row) for row in method.digits.tolist()}) == 100


def test_sum_has_no_queries() -> None:
    assert {name for name, _ in NaryDis(1, pool="sum").named_parameters()} == {"missing", "table"}


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"bases must .*got \(2, 1\)"):
        NaryDis(1, bases=(2, 1))
    with pytest.raises(ValueError, match=r"bases must .*got \(\)"):
        NaryDis(1, bases=())
    with pytest.raises(ValueError, match=r"pool must .*got 'mean'"):
        NaryDis(1, pool="mean")
