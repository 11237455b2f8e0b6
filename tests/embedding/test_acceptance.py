"""Acceptances ahead of a stream; whole reservoirs are tested in test_distributions.py."""

import numpy as np
import pytest

from daes.embedding.acceptance import _overwritten_at


@pytest.mark.parametrize(("count", "slots"), [(0, 5), (1, 1), (500, 3), (70_000, 70_000), (300, 2**40)])
def test_when_slots_are_overwritten_next(count, slots):
    random = np.random.default_rng(0)
    positions, slots = np.cumsum(random.integers(1, 9, count)), random.integers(0, slots, count)
    expected, last = [], {}
    for position, slot in zip(positions[::-1].tolist(), slots[::-1].tolist(), strict=True):
        expected.append(last.get(slot, np.iinfo(np.int64).max))
        last[slot] = position
    np.testing.assert_array_equal(_overwritten_at(positions, slots), expected[::-1])
