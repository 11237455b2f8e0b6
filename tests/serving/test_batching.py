"""Requests that are scored together: which, by which model, and what becomes of errors."""

import asyncio
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from daes.serving.batching import MicroBatcher, Overloaded
from daes.stream.batch import Batch


def rows(count, value=0.0):
    return Batch(np.full((count, 1), value, np.float32), np.zeros((count, 0), np.int64))


class Model:
    """Scores rows by their own value; `sizes` are those of the batches."""

    def __init__(self):
        self.sizes = []

    def score(self, batch):
        if np.isnan(batch.numerical).any():
            raise ValueError("a row to fail on")
        self.sizes.append(len(batch))
        return batch.numerical[:, 0].astype(np.float64)


@pytest.fixture
def model():
    return Model()


def batcher(model, **options):
    served = SimpleNamespace(scorer=model, version="v")
    return closing(MicroBatcher(lambda: served, **options))


def test_each_request_gets_its_own_scores(model):
    async def ask(batching):
        return await asyncio.gather(*(batching.score(rows(1 + place, place)) for place in range(20)))

    with batcher(model, wait=0.2) as batching:
        answers = asyncio.run(ask(batching))
        assert batching.waiting == 0
    for place, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.scores, np.full(1 + place, place))
    assert sum(model.sizes) == sum(range(21))
    assert len(model.sizes) < 20


def test_a_batch_has_a_limit_and_a_larger_request_is_one_of_its_own(model):
    async def ask(batching):
        await asyncio.gather(*(batching.score(rows(count)) for count in (3, 3, 3, 30, 3)))

    with batcher(model, wait=0.2, max_rows=8) as batching:
        asyncio.run(ask(batching))
    assert sum(model.sizes) == 42
    assert max(model.sizes) == 30
    assert sorted(model.sizes)[-2] <= 8


def test_an_error_reaches_those_that_wait_and_no_others(model):
    async def ask(batching):
        with pytest.raises(ValueError, match="a row to fail on"):
            await batching.score(rows(1, np.nan))
        return await batching.score(rows(1, 3.0))

    with batcher(model) as batching:
        assert asyncio.run(ask(batching)).scores.tolist() == [3.0]
        assert batching.waiting == 0


def test_more_rows_than_may_wait(model):
    async def ask(batching):
        first = asyncio.ensure_future(batching.score(rows(4)))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="4 rows are waiting, 5 is the maximum"):
            await batching.score(rows(2))
        return await first

    with batcher(model, wait=0.5, max_waiting=5) as batching:
        assert len(asyncio.run(ask(batching)).scores) == 4


def test_one_that_gave_up_does_no_harm(model):
    async def ask(batching):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batching.score(rows(1)), 0.01)
        return await batching.score(rows(1, 2.0))

    seen = []
    with batcher(model, wait=0.2, on_scored=lambda batch, scores: seen.append(len(batch))) as batching:
        assert asyncio.run(ask(batching)).scores.tolist() == [2.0]
    assert sum(seen) == 2
