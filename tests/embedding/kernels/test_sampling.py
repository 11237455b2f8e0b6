"""The oracle is the plain version of the host."""

import numpy as np
import pytest
import torch

from daes.evidence import Evidence, EvidenceInputs
from daes.evidence.sample import RowSample

pytest.importorskip("triton")


def rows_of(count, device, seed=0):
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(count, 3)).astype(np.float32)
    numbers[random.random(numbers.shape) < 0.2] = np.nan
    numbers[0, 0] = np.inf
    rows = random.integers(0, 5, (count, 2)) + np.array([0, 5])
    labels = (random.random(count) < 0.3).astype(np.float32)
    return [torch.from_numpy(array).to(device) for array in (numbers, rows, labels)]


def assert_equal(mine, theirs):
    for (name, one), other in zip(mine.named_buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-9, atol=0, msg=name)


@pytest.mark.parametrize("size", [7, 150])
def test_the_same_rows_are_kept(kernel_device, size):
    mine, theirs = RowSample(size, 3, 2, seed=3).to(kernel_device), RowSample(size, 3, 2, seed=3)
    for seed, count in enumerate((1, 200, 70)):
        batch = rows_of(count, kernel_device, seed)
        mine.advance(count)
        mine.update_ahead(*batch)
        theirs.update(*(tensor.cpu() for tensor in batch))
        assert_equal(mine, theirs)
    assert mine.count == int(mine.seen) == 271


def test_the_host_may_see_some_rows_itself(kernel_device):
    mine, theirs = RowSample(30, 3, 2).to(kernel_device), RowSample(30, 3, 2)
    for seed in range(12):
        batch = rows_of(10 * 2 ** (seed // 2), kernel_device, seed)
        if seed % 3:
            mine.update(*batch)
        else:
            mine.advance(len(batch[2]))
            mine.update_ahead(*batch)
        theirs.update(*(tensor.cpu() for tensor in batch))
        assert_equal(mine, theirs)
    positions = mine.recorded()[0]
    assert (positions.diff() >= 0).all()


def test_columns_of_one_kind_alone(kernel_device):
    numbers, rows, labels = rows_of(90, kernel_device)
    for batch in ((numbers[:, :0], rows, labels), (numbers, rows[:, :0], labels)):
        shapes = batch[0].shape[1], batch[1].shape[1]
        mine, theirs = RowSample(20, *shapes).to(kernel_device), RowSample(20, *shapes)
        mine.advance(90)
        mine.update_ahead(*batch)
        theirs.update(*(tensor.cpu() for tensor in batch))
        assert_equal(mine, theirs)


@pytest.mark.parametrize("options", [{}, {"pairs": 2}, {"half_life": 50.0}, {"numbers": False}, {"categories": False}])
def test_evidence_counts_the_same(kernel_device, options):
    made = Evidence(bins=8, pair_bins=4, sample_rows=40, **options)
    mine, theirs = (EvidenceInputs(made, 3, [0, 5], 10) for _ in range(2))
    first, second = rows_of(1200, "cpu"), rows_of(60, "cpu", seed=1)
    for one in (mine, theirs):
        one.update(*first)
    mine.to(kernel_device)
    assert mine.can_count_ahead
    assert not mine.due(60)
    mine.advance(60)
    mine.count_ahead(*(tensor.to(kernel_device) for tensor in second))
    theirs.update(*second)
    assert_equal(mine, theirs)


def test_bins_are_cut_and_pairs_chosen_with_the_host(kernel_device):
    counted = EvidenceInputs(Evidence(bins=8, pair_bins=4, sample_rows=40, pairs=1), 3, [0, 5], 10).to(kernel_device)
    assert counted.due(10)
    counted.update(*rows_of(1020, kernel_device))
    assert counted.due(10)  # 1024 rows
    counted.update(*rows_of(10, kernel_device))
    assert not counted.due(10)
    assert counted.can_count_ahead
    assert not counted.freeze().can_count_ahead
