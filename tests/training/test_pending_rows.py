"""Rows that wait for labels in memory and on disk, against a plain queue."""

from collections import deque

import numpy as np
import pytest

from daes.storage.checkpoint import CheckpointStore
from daes.storage.segments import Segments
from daes.stream.batch import KeyedBatch
from daes.training.pending_rows import PendingRows


def batch_of(first, count):
    """Rows whose key, time and only number are their own."""
    row = np.arange(first, first + count, dtype=np.int64)
    return KeyedBatch(row[:, None].astype(np.float32), np.zeros((count, 0), np.int64), key=row + 10**6, sent=row)


@pytest.mark.parametrize("most", [1, 30, 50, 60, 100])
@pytest.mark.parametrize("seed", range(3))
def test_rows_on_disk_are_those_that_were_put_in_whatever_the_rates(most, seed, tmp_path):
    """Rows come and go in batches of any size, while the number of those that wait rises and falls."""
    random = np.random.default_rng(seed)
    rows = PendingRows(most)
    rows._segment_rows = 50
    rows.segments = Segments(tmp_path / "pending", CheckpointStore(tmp_path / "checkpoints"))
    waiting = deque()  # the row and its label
    added = spilled = 0
    for step in range(600):
        count = int(random.integers(1, 12))
        rows.add(batch_of(added, count), np.arange(added, added + count, dtype=np.float32))
        waiting.extend([row, 0.0] for row in range(added, added + count))
        added += count
        place = int(random.integers(len(waiting)))
        assert rows.assign(waiting[place][0] + 10**6, waiting[place][0], 1.0, window=1)
        waiting[place][1] = 1.0
        spilled = max(spilled, rows.spilled)
        assert rows.count - rows.spilled < most + 3 * 62
        while len(waiting) > (400 if step % 200 < 120 else 10):
            taken = rows.take(min(int(random.integers(1, 12)), len(waiting)))
            expected = [waiting.popleft() for _ in range(len(taken.batch))]
            assert taken.row == expected[0][0]
            assert [*zip(taken.batch.numerical[:, 0], taken.batch.label, strict=True)] == [*map(tuple, expected)]
            assert taken.logits.tolist() == [row for row, _ in expected]
    assert spilled > 100
