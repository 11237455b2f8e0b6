"""The law of the row sample, at sizes where a wrong one shows."""

import pytest
import torch
from scipy.stats import chisquare

from daes.evidence.sample import RowSample


def rows_of(first, last):
    index = torch.arange(first, last)
    return index.float().unsqueeze(1), index.unsqueeze(1), (index % 2).float()


def members(sample):
    return sample.categorical[: sample.filled, 0].tolist()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_row_is_kept_equally_often(size):
    counts = torch.zeros(30)
    for seed in range(3000):
        sample = RowSample(size, 1, 1, seed)
        for start in (0, 4, 11, 20):
            sample.update(*rows_of(start, {0: 4, 4: 11, 11: 20, 20: 30}[start]))
        counts[members(sample)] += 1
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_row_of_both_streams_is_kept_equally_often_after_a_merge(size):
    counts = torch.zeros(30)
    for seed in range(3000):
        one, other = RowSample(size, 1, 1, 2 * seed), RowSample(size, 1, 1, 2 * seed + 1)
        one.update(*rows_of(0, 8))
        other.update(*rows_of(8, 20))
        one.merge(other)
        one.update(*rows_of(20, 30))
        counts[members(one)] += 1
    assert chisquare(counts).pvalue > 1e-3


def test_the_columns_of_a_row_stay_together():
    sample = RowSample(50, 1, 1)
    for start in range(0, 1000, 70):
        sample.update(*rows_of(start, start + 70))
    numbers, ids, labels = sample.numerical[:, 0], sample.categorical[:, 0], sample.label
    assert torch.equal(numbers.long(), ids)
    assert torch.equal(labels, (ids % 2).to(torch.uint8))
    assert len(set(ids.tolist())) == 50
    assert sample.count == 1050


@pytest.mark.parametrize("kind", [torch.int32, torch.int16])
def test_rows_of_another_type_are_kept_as_they_are(kind):
    sample, expected = RowSample(10, 1, 3), RowSample(10, 1, 3)
    ids = torch.arange(3000).view(1000, 3)
    for made, rows in ((sample, ids.to(kind)), (expected, ids)):
        made.update(torch.zeros(1000, 1), rows, torch.ones(1000))
    assert torch.equal(sample.categorical, expected.categorical)


@pytest.mark.parametrize("wrong", range(4))
def test_rows_of_another_shape_are_refused(wrong):
    given = [torch.zeros(100, 2), torch.zeros(100, 2, dtype=torch.int64), torch.zeros(100), torch.zeros(100)]
    given[wrong] = given[wrong][:3] if wrong != 2 else torch.zeros(1000)
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        RowSample(1000, 2, 2).update(*given)
