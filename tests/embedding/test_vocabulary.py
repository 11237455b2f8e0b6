import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from daes.embedding.vocabulary import StreamVocabulary

NO_KEY = 2**63 - 1


def word(number: int) -> int:
    """SplitMix64: the state goes up by a constant each step, and is mixed for the output."""
    z = (0x9E3779B97F4A7C15 * (number + 1)) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return z ^ (z >> 31)


def signed(unsigned: int) -> int:
    return (unsigned + 2**63) % 2**64 - 2**63


def key_of(field: int, number: int) -> int:
    return signed(number * (word(2 * field) | 1) + word(2 * field + 1))


def id_of(field: int, key: int) -> int:
    """The id that has this key."""
    return signed((key - word(2 * field + 1)) * pow(word(2 * field) | 1, -1, 2**64))


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
            for field, number in enumerate(row):
                if number != 0 and number not in self.rows[field]:
                    self.sighting(field, number)
            self.observed += 1
            if self.observed % (self.counters // 4) == 0:
                self.counts //= 2

    def sighting(self, field: int, number: int) -> None:
        smallest = self.min_count
        for table in range(3):
            place = (key_of(field, number) // 2 ** (21 * table)) % self.counters
            self.counts[field, table, place] = min(self.counts[field, table, place] + 1, self.min_count)
            smallest = min(smallest, self.counts[field, table, place])
        if smallest < self.min_count:
            return
        if len(self.rows[field]) < self.sizes[field]:
            self.rows[field][number] = 2 + len(self.rows[field])
        else:
            self.overflow[field] += 1

    def lookup(self, ids: list[list[int]]) -> list[list[int]]:
        return [[self.rows[field].get(number, 1) if number else 0 for field, number in enumerate(row)] for row in ids]


def compare(vocabulary: StreamVocabulary, oracle: Oracle, ids: Tensor) -> None:
    assert vocabulary(ids).tolist() == oracle.lookup(ids.tolist())
    assert vocabulary.used.tolist() == [len(rows) for rows in oracle.rows]
    assert vocabulary.overflow.tolist() == oracle.overflow
    assert vocabulary.counts.tolist() == oracle.counts.reshape(-1).tolist()
    assert int(vocabulary.observed) == oracle.observed
    keys = sorted(key_of(field, number) for field, rows in enumerate(oracle.rows) for number in rows)
    assert vocabulary.keys.tolist() == keys + [NO_KEY] * (len(vocabulary.keys) - len(keys))


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


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 2, 3, 2**62, NO_KEY - 1, NO_KEY])), max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(1, 4),
    st.sampled_from([4, 8, 64]),
)
def test_equals_one_value_at_a_time_on_few_ids(
    rows: list[tuple[int, int]], cuts: list[int], min_count: int, counters: int
) -> None:
    ids = torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)
    vocabulary = StreamVocabulary([3, 4], min_count=min_count, counters=counters)
    oracle = Oracle([3, 4], min_count, counters)
    for batch in ids.tensor_split(sorted(cuts)):
        vocabulary.observe(batch)
    oracle.observe(ids.tolist())
    compare(vocabulary, oracle, torch.cat([ids, torch.arange(20).reshape(10, 2)]))


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
    vocabulary = StreamVocabulary([5], min_count=1)
    ids = torch.tensor([[NO_KEY], [1], [-1], [NO_KEY - 1], [-NO_KEY - 1]])
    vocabulary.observe(ids)
    assert vocabulary(ids).T.tolist() == [[2, 3, 4, 5, 6]]


def test_the_key_of_a_free_place() -> None:
    """The id with that key stays unseen, takes no row from others and does not overflow."""
    vocabulary = StreamVocabulary([1, 1], min_count=1)
    nobody = id_of(1, NO_KEY)
    assert key_of(1, nobody) == NO_KEY
    for other in (8, 9):
        ids = torch.tensor([[5, nobody], [5, other]])
        vocabulary.observe(ids)
        assert vocabulary(ids).tolist() == [[2, 1], [2, 2 if other == 8 else 1]]
    assert vocabulary.used.tolist() == [1, 1]
    assert vocabulary.overflow.tolist() == [0, 1]


def test_keys() -> None:
    assert word(0) == 0xE220A8397B1DCDAF  # the first output of SplitMix64 from seed 0, as published
    vocabulary = StreamVocabulary([9] * 40, min_count=1)
    ids = torch.tensor([[1] * 40, [NO_KEY] * 40])
    vocabulary.observe(ids)
    expected = sorted(key_of(field, number) for field in range(40) for number in (1, NO_KEY))
    assert vocabulary.keys[:80].tolist() == expected
    assert len(set(expected)) == 80


def test_fields_that_share_a_key() -> None:
    """As rare as can be, and then the row is still one of the field's."""
    vocabulary = StreamVocabulary([5, 1], min_count=1)
    twins = [id_of(0, 1234), id_of(1, 1234)]
    vocabulary.observe(torch.tensor([[11, 0], [12, 0], [twins[0], 0], [0, twins[1]]]))
    assert vocabulary(torch.tensor([twins])).tolist() == [[4, 2]]
    assert vocabulary.used.tolist() == [3, 0]


@pytest.mark.parametrize("sizes", [[3], [1, 2], [64], [7, 50, 1000]])
@pytest.mark.parametrize("rows", [0, 40, 4000])
def test_the_search_of_exported_models_finds_the_same(
    sizes: list[int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an array that is empty, partly filled and, but for the last size, full."""
    vocabulary = StreamVocabulary(sizes, min_count=1)
    ids = stream(rows, len(sizes), 700)
    vocabulary.observe(ids)
    held = vocabulary.keys[vocabulary.keys != NO_KEY]
    key = torch.cat([held, held - 1, held + 1, torch.tensor([NO_KEY, NO_KEY - 1, -NO_KEY - 1, 0])])
    rows_of_keys, rows_of_ids = vocabulary._find(key), vocabulary(ids)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.delattr(torch, "searchsorted")
    assert torch.equal(vocabulary._find(key), rows_of_keys)
    assert torch.equal(vocabulary(ids), rows_of_ids)
    assert (rows_of_keys[: len(held)] > 1).all()
    assert (rows_of_keys[-4:] == 1).all()


@pytest.mark.parametrize("assign", [False, True])
def test_goes_on_from_a_loaded_state(assign: bool) -> None:
    """Windows too go on where they stood, whatever the vocabulary had seen before."""
    first, then = stream(100, 2, 50).split(63)
    whole, other = (nn.Sequential(StreamVocabulary([9, 20], min_count=3, counters=64)) for _ in range(2))
    whole[0].observe(first)
    other[0].observe(first[:6])
    other.load_state_dict(copy.deepcopy(whole.state_dict()), assign=assign)
    copied = copy.deepcopy(whole)
    for model in (whole, other, copied):
        model[0].observe(then)
        assert int(model[0].observed) == 100
    assert same_state(other[0], whole[0])
    assert same_state(copied[0], whole[0])
    assert not torch.equal(whole[0].counts, torch.zeros_like(whole[0].counts))


def test_ids_in_any_layout() -> None:
    ids = stream(300, 3, 100)
    plain, transposed = (StreamVocabulary([5, 40, 100], min_count=2) for _ in range(2))
    plain.observe(ids)
    columns = ids.T.contiguous().T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transposed.observe(columns)
        assert torch.equal(transposed(columns), plain(ids))
    assert same_state(transposed, plain)


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
        ({"sizes": [3], "min_count": 0}, r"min_count must .*got 0"),
        ({"sizes": [3], "min_count": 256}, r"min_count must .*got 256"),
        ({"sizes": [3], "counters": 100}, r"counters must .*got 100"),
        ({"sizes": [3], "counters": 2**22}, r"counters must .*got 4194304"),
        ({"sizes": [3], "counters": 2}, r"counters must .*got 2"),
    ],
)
def test_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamVocabulary(**arguments)  # type: ignore[arg-type]
