"""A vocabulary learned from the stream: ids that are seen often enough get their own row."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from daes.embedding.compilation import outside_graphs

MISSING, UNSEEN, FIRST = 0, 1, 2
"""Rows of every field: for a missing value, for ids without a row, and the first of the ids' own rows."""

_TABLES = 3
_TABLE_BITS = 21  # three tables share 63 bits of a key
_NO_KEY = torch.iinfo(torch.int64).max


class StreamVocabulary(nn.Module):
    """Ids → rows, per field, in fixed memory; `observe` updates the vocabulary.

    An id gets the next free row of its field at its `min_count`-th occurrence, until the field has no free row. Later
    ids share the row of unseen ids, and each of their occurrences is counted in `overflow`.

    **Keys.** The fields share one sorted array of keys, so that a look-up is one search for all of them. In field f

        key = id · multiplier_f + salt_f  mod 2⁶⁴,    multiplier_f odd,

    with fixed pseudo-random multipliers and salts. Within a field different ids have different keys. Among n ids, two
    of different fields have the same key, and hence the same row number, with probability n² / 2⁶⁵: as rarely as two
    categories have the same 63-bit hash. The id with the key 2⁶³ − 1, which marks a free entry, never gets a row.

    **Counting in fixed memory.** Every field has 3 tables of `counters` 8-bit counters. An occurrence of an id without
    a row adds 1, up to `min_count`, to one counter of each table, chosen by 21 bits of the key each; the smallest of
    the three is the number of occurrences. Ids that share all three counters may get a row too early, never too late.
    Every `window` = counters / 4 rows all counters are halved, so that an endless stream of rare ids does not fill
    them: an id is frequent if it occurs `min_count` times within a window, or a little more than half as often in each
    of several. In the worst case, when all ids are different, an id gets a row at its first occurrence with probability
    below 2 % at min_count = 2 and 10⁻⁹ at min_count = 5.

    **Split invariance.** The vocabulary (ids, their rows, counters) depends only on the order of the rows, not on how
    they are split into batches: it is that of one row at a time.

    Every process has its own vocabulary: replicas with different rows learn different ones. Train distributed models
    with hashed tables, or share a vocabulary before training.

    **Shape.** (B, p) int64 ids → (B, p) int64: 0 missing (id 0), 1 unseen, 2 … size + 1 the field's ids.

    Args:
        sizes: number of rows for ids of each field.
        min_count: number of occurrences after which an id gets a row, 1 to 255.
        counters: number of counters per table, a power of two up to 2²¹.

    >>> vocabulary = StreamVocabulary(sizes=[2], min_count=2)
    >>> ids = torch.tensor([[7], [9], [7], [0]])
    >>> vocabulary.observe(ids)
    >>> vocabulary(ids).T
    tensor([[2, 1, 2, 0]])
    >>> vocabulary.observe(torch.tensor([[9], [5], [5], [5]]))
    >>> vocabulary(torch.tensor([[7], [9], [5]])).T, vocabulary.used, vocabulary.overflow
    (tensor([[2, 3, 1]]), tensor([2]), tensor([2]))
    """

    keys: Tensor
    key_rows: Tensor
    used: Tensor
    overflow: Tensor
    counts: Tensor
    observed: Tensor
    _last_rows: Tensor
    _multipliers: Tensor
    _salts: Tensor
    _tables: Tensor

    def __init__(self, sizes: Sequence[int], *, min_count: int = 5, counters: int = 2**18) -> None:
        super().__init__()
        for field, size in enumerate(sizes):
            if size <= 0:
                raise ValueError(f"sizes must be positive, got sizes[{field}]={size}")
        if not 1 <= min_count <= 255:
            raise ValueError(f"min_count must be from 1 to 255, got {min_count}")
        if not 4 <= counters <= 2**_TABLE_BITS or counters & (counters - 1):
            raise ValueError(f"counters must be a power of two from 4 to 2^{_TABLE_BITS}, got {counters}")
        self.sizes = tuple(sizes)
        self.min_count = min_count
        self.counters = counters
        self.window = counters // 4
        fields, entries = len(self.sizes), sum(self.sizes) + 1
        # The keys are sorted, with at least one free entry at the end, so that every search ends within the array.
        # key_rows is the row of each key within its field.
        self.register_buffer("keys", torch.full((entries,), _NO_KEY))
        self.register_buffer("key_rows", torch.full((entries,), UNSEEN))
        self.register_buffer("used", torch.zeros(fields, dtype=torch.int64))
        self.register_buffer("overflow", torch.zeros(fields, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(fields * _TABLES * counters, dtype=torch.uint8))
        self.register_buffer("observed", torch.zeros((), dtype=torch.int64))
        multipliers = torch.tensor([_random_word(2 * field) | 1 for field in range(fields)], dtype=torch.int64)
        salts = torch.tensor([_random_word(2 * field + 1) for field in range(fields)], dtype=torch.int64)
        last_rows = torch.tensor([FIRST + size - 1 for size in self.sizes], dtype=torch.int64)
        self.register_buffer("_last_rows", last_rows, persistent=False)
        self.register_buffer("_multipliers", multipliers, persistent=False)
        self.register_buffer("_salts", salts, persistent=False)
        self.register_buffer("_tables", torch.arange(_TABLES).unsqueeze(1), persistent=False)
        # `observed` as known to the host: reading it from a device for every batch would stall the device.
        self._rows_observed: int | None = None
        self.register_load_state_dict_post_hook(_forget_rows_observed)  # type: ignore[no-untyped-call]

    def forward(self, ids: Tensor) -> Tensor:
        row = self._find(self._keys_of(ids).reshape(-1)).reshape(ids.shape)
        # If ids of two fields share a key, the row must still be one of the field's.
        row = torch.minimum(row, self._last_rows)
        return torch.where(ids == 0, MISSING, row)

    @outside_graphs
    @torch.no_grad()
    def observe(self, ids: Tensor) -> None:
        """Observe the next rows of the stream; their ids are counted in the order of the rows."""
        observed = int(self.observed) if self._rows_observed is None else self._rows_observed
        start = 0
        while start < len(ids):
            stop = min(start + self.window - observed % self.window, len(ids))
            self._observe(ids[start:stop])
            observed += stop - start
            if observed % self.window == 0:
                self.counts >>= 1
            start = stop
        self.observed.fill_(observed)
        self._rows_observed = observed

    def extra_repr(self) -> str:
        return f"fields={len(self.sizes)}, rows={sum(self.sizes)}, min_count={self.min_count}, counters={self.counters}"

    def _keys_of(self, ids: Tensor) -> Tensor:
        return ids * self._multipliers + self._salts

    def _find(self, key: Tensor) -> Tensor:
        """The row of each key, (n,) → (n,)."""
        if torch.compiler.is_compiling():
            return self._row_at(self._search(key), key)
        if key.device.type != "cpu":
            return self._row_at(torch.searchsorted(self.keys, key), key)
        # Sorted keys are found in entries that the previous search has brought into the cache.
        ordered, order = torch.sort(key)
        row = self._row_at(torch.searchsorted(self.keys, ordered), ordered)
        return torch.empty_like(row).scatter_(0, order, row)

    def _row_at(self, place: Tensor, key: Tensor) -> Tensor:
        return torch.where(_pick(self.keys, place) == key, _pick(self.key_rows, place), UNSEEN)

    def _search(self, key: Tensor) -> Tensor:
        """`torch.searchsorted` by look-ups and comparisons, since ONNX has no operator for it.

        It returns the last key that is not above the one sought, which is that key if it is there at all.
        """
        place, left = torch.zeros_like(key), len(self.keys)
        while left > 1:
            probe = place + left // 2
            place = torch.where(_pick(self.keys, probe) <= key, probe, place)
            left -= left // 2
        return place

    def _observe(self, ids: Tensor) -> None:
        """Observe rows of one window."""
        ids, key = ids.reshape(-1), self._keys_of(ids).reshape(-1)
        unknown = ((self._find(key) == UNSEEN) & (ids != 0) & (key != _NO_KEY)).nonzero().squeeze(1)
        if not len(unknown):
            return
        field, key = unknown % len(self.sizes), _pick(key, unknown)
        frequent = self._count(field, key).nonzero().squeeze(1)
        if len(frequent):
            self._admit(_pick(field, frequent), _pick(key, frequent))

    def _count(self, field: Tensor, key: Tensor) -> Tensor:
        """Count occurrences, in order; returns which of them were at least the `min_count`-th of their id.

        An id that gets a row here is still counted until the end of these rows. That changes nothing, because counters
        stop at `min_count`, which is why the split into batches does not matter.
        """
        counter = (key >> (_TABLE_BITS * self._tables)) & (self.counters - 1)
        counter += (field * _TABLES + self._tables) * self.counters
        ordered, order = torch.sort(counter.reshape(-1), stable=True)
        seen = (_pick(self.counts, ordered) + _rank(ordered) + 1).clamp(max=self.min_count)
        # The last occurrence of a counter has the highest count.
        self.counts.scatter_reduce_(0, ordered, seen.to(torch.uint8), "amax")
        frequent = torch.empty_like(order, dtype=torch.bool).scatter_(0, order, seen == self.min_count)
        return frequent.reshape(_TABLES, -1).all(0)

    def _admit(self, field: Tensor, key: Tensor) -> None:
        """Give free rows, as far as there are any, to frequent ids in the order of their first occurrence here."""
        ordered, order = torch.sort(key, stable=True)
        first = torch.empty_like(order, dtype=torch.bool).scatter_(0, order, _rank(ordered) == 0)
        newcomer = first.nonzero().squeeze(1)
        new_field, order = torch.sort(_pick(field, newcomer), stable=True)
        row = _pick(self.used, new_field) + _rank(new_field) + FIRST
        fits = (row <= _pick(self._last_rows, new_field)).nonzero().squeeze(1)
        if len(fits):
            new_key, order = torch.sort(_pick(key, _pick(newcomer, _pick(order, fits))))
            self._insert(new_key, _pick(row, _pick(fits, order)))
            self.used.index_add_(0, _pick(new_field, fits), torch.ones_like(fits))
        late = self._find(key) == UNSEEN
        self.overflow.index_add_(0, field, late.to(torch.int64))

    def _insert(self, key: Tensor, row: Tensor) -> None:
        """Merge new keys, which are sorted, into the others."""
        count = int(self.used.sum())
        total = count + len(key)
        spot = torch.searchsorted(self.keys[:count], key) + torch.arange(len(key), device=key.device)
        old = torch.ones(total, dtype=torch.bool, device=key.device).index_fill_(0, spot, False)
        for stored, new in ((self.keys, key), (self.key_rows, row)):
            merged = torch.empty_like(stored[:total]).scatter_(0, spot, new)
            stored[:total] = merged.masked_scatter_(old, stored[:count])


def _random_word(number: int) -> int:
    """The `number`-th output of SplitMix64 with seed 0, as a signed 64-bit integer."""
    word = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    word ^= word >> 31
    return word - 2**64 if word >= 2**63 else word


def _rank(ordered: Tensor) -> Tensor:
    """The rank, from 0, of each of the sorted values among those equal to it."""
    rank = torch.arange(len(ordered), device=ordered.device)
    rank[1:] -= torch.cummax(rank[1:] * (ordered[1:] != ordered[:-1]), 0).values
    return rank


def _pick(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(0, places)  # several times as fast as values[places]


def _forget_rows_observed(vocabulary: nn.Module, _: object) -> None:
    assert isinstance(vocabulary, StreamVocabulary)
    vocabulary._rows_observed = None
