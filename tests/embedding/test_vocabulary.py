import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from daes.embedding.vocabulary import StreamVocabulary


class Oracle:
    """The rules of `StreamVocabulary`, one value at a time."""

    def __init__(self, sizes: list[int], min_count: int, counters: int) -> None:
        self.sizes, self.min_count, self.counters = sizes, min_count, counters
        self.counts = np.zeros((len(sizes), 3, counters), dtype=int)
        self.rows: list[dict[int, int]] = [{} for _ in sizes]
        self.overflow = [0] * len(sizes)
        self.observed = 0

    def observe(self, ids: list[list[int]]) -> None:
        for row in ids:
            for field, key in enumerate(row):
                if key != 0 and key not in self.rows[field]:
                    self.sighting(field, key)
            self.observed += 1
            if self.observed % (self.counters // 4) == 0:
                self.counts //= 2

    def sighting(self, field: int, key: int) -> None:
        smallest = self.min_count
        for table in range(3):
            place = (key // 2 ** (21 * table)) % self.counters
            self.counts[field, table, place] = min(self.counts[field, table, place] + 1, self.min_count)
            smallest = min(smallest, self.counts[field, table, place])
        if smallest < self.min_count:
            return
        if len(self.rows[field]) < self.sizes[field]:
            self.rows[field][key] = 2 + len(self.rows[field])
        else:
            self.overflow[field] += 1

    def lookup(self, ids: list[list[int]]) -> list[list[int]]:
        return [[self.rows[field].get(key, 1) if key else 0 for field, key in enumerate(row)] for row in ids]


def compare(vocabulary: StreamVocabulary, oracle: Oracle, ids: Tensor) -> None:
    assert vocabulary(ids).tolist() == oracle.lookup(ids.tolist())
    assert vocabulary.used.tolist() == [len(rows) for rows in oracle.rows]
    assert vocabulary.overflow.tolist() == oracle.overflow
    assert vocabulary.counts.tolist() == oracle.counts.reshape(-1).tolist()
    assert int(vocabulary.observed) == oracle.observed


def stream(rows: int, fields: int, distinct: int, seed: int = 0) -> Tensor:
    """Skewed ids: 63-bit hashes and a few missing."""
    generator = np.random.default_rng(seed)
    hashes = generator.integers(1, 2**63 - 1, (fields, distinct))
    rank = np.minimum(generator.zipf(1.3, (rows, fields)), distinct) - 1
    ids = np.take_along_axis(hashes.T, rank, axis=0)
    ids[generator.random((rows, fields)) < 0.05] = 0
    return torch.from_numpy(ids)


def same_state(one: StreamVocabulary, other: StreamVocabulary) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("min_count", [1, 2, 5])
@pytest.mark.parametrize("counters", [256, 1024, 2**14])
def test_equals_one_value_at_a_time(min_count: int, counters: int) -> None:
    """With few counters ids collide and windows are short; with many they hardly do."""
    sizes = [1, 7, 50, 1000]
    vocabulary = StreamVocabulary(sizes, min_count=min_count, counters=counters)
    oracle = Oracle(sizes, min_count, counters)
    ids = stream(3000, 4, 600)
    for batch in ids.split(331):
        vocabulary.observe(batch)
        oracle.observe(batch.tolist())
        compare(vocabulary, oracle, ids[:400])
    assert all(len(rows) == size for rows, size in zip(oracle.rows[:2], sizes[:2], strict=True))
    assert oracle.overflow[0] > 0


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60),
    st.integers(1, 4),
    st.sampled_from([4, 8, 64]),
)
def test_equals_one_value_at_a_time_on_small_ids(rows: list[tuple[int, int]], min_count: int, counters: int) -> None:
    ids = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)
    vocabulary = StreamVocabulary([3, 20], min_count=min_count, counters=counters)
    oracle = Oracle([3, 20], min_count, counters)
    vocabulary.observe(ids)
    oracle.observe(ids.tolist())
    compare(vocabulary, oracle, torch.arange(20).reshape(10, 2))


def test_splits_do_not_matter() -> None:
    ids = stream(2000, 3, 300)
    whole = StreamVocabulary([5, 40, 500], min_count=3, counters=1024)
    whole.observe(ids)
    for size in (1, 7, 256, 1999):
        split = StreamVocabulary([5, 40, 500], min_count=3, counters=1024)
        for batch in ids.split(size):
            split.observe(batch)
        assert same_state(split, whole)


def test_an_id_waits_for_its_count() -> None:
    vocabulary = StreamVocabulary([10], min_count=3)
    for expected in (1, 1, 2, 2):
        vocabulary.observe(torch.tensor([[123_456_789]]))
        assert vocabulary(torch.tensor([[123_456_789]])).item() == expected


def test_rows_are_given_in_the_order_of_the_stream() -> None:
    vocabulary = StreamVocabulary([2], min_count=2)
    vocabulary.observe(torch.tensor([[30], [10], [20], [10], [30], [20], [20]]))
    assert vocabulary(torch.tensor([[10], [30], [20]])).T.tolist() == [[2, 3, 1]]
    assert vocabulary.overflow.tolist() == [2]


def test_rare_ids_are_forgotten() -> None:
    """Once a window is less than `min_count` = 3 asks for, twice a window is enough: 2, 1 + 2."""
    vocabulary = StreamVocabulary([10], min_count=3, counters=64)
    for _ in range(50):
        window = torch.zeros(16, 1, dtype=torch.int64)
        window[3] = 5
        window[[4, 9]] = 77
        vocabulary.observe(window)
    assert vocabulary(torch.tensor([[5], [77]])).T.tolist() == [[1, 2]]


@pytest.mark.parametrize(("min_count", "bound"), [(2, 0.02), (5, 1e-5)])
def test_few_ids_come_in_early(min_count: int, bound: float) -> None:
    """The worst case of the docstring: every id is new."""
    counters, rows = 2**12, 200_000
    vocabulary = StreamVocabulary([rows], min_count=min_count, counters=counters)
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, 2**63 - 1, (rows, 1)))
    vocabulary.observe(ids)
    assert int(vocabulary.used[0]) / rows < bound


def test_extreme_ids() -> None:
    vocabulary = StreamVocabulary([4], min_count=1)
    largest = torch.iinfo(torch.int64).max
    ids = torch.tensor([[largest], [1], [largest - 1], [2**62]])
    vocabulary.observe(ids)
    # The largest integer marks a free place among the keys: such an id stays unseen, and takes no row from others.
    assert vocabulary(ids).T.tolist() == [[1, 2, 3, 4]]
    assert vocabulary.used.tolist() == [3]


def test_empty_batches_and_no_fields() -> None:
    vocabulary = StreamVocabulary([3, 3], min_count=1)
    before = copy.deepcopy(vocabulary)
    vocabulary.observe(torch.zeros(0, 2, dtype=torch.int64))
    assert same_state(vocabulary, before)
    assert vocabulary(torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2)
    nothing = StreamVocabulary([])
    nothing.observe(torch.zeros(5, 0, dtype=torch.int64))
    assert nothing(torch.zeros(5, 0, dtype=torch.int64)).shape == (5, 0)


def test_all_missing() -> None:
    vocabulary = StreamVocabulary([3], min_count=1)
    vocabulary.observe(torch.zeros(5, 1, dtype=torch.int64))
    assert vocabulary.used.tolist() == [0]
    assert vocabulary(torch.zeros(1, 1, dtype=torch.int64)).tolist() == [[0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": [3, 0]}, r"sizes\[1\]=0"),
        ({"sizes": [3], "min_count": 0}, "min_count=0"),
        ({"sizes": [3], "min_count": 256}, "min_count=256"),
        ({"sizes": [3], "counters": 100}, "counters=100"),
        ({"sizes": [3], "counters": 2**22}, "counters=4194304"),
        ({"sizes": [3], "counters": 2}, "counters=2"),
    ],
)
def test_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamVocabulary(**arguments)  # type: ignore[arg-type]
