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
