"""A vocabulary learned in the stream: which ids have been seen often enough to get a row of their own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from daes.embedding.compilation import outside_graphs

MISSING, UNSEEN, FIRST = 0, 1, 2
"""The first rows of every field: for a missing value, for an id without a row of its own, then the ids' rows."""

_TABLES = 3
_TABLE_BITS = 21  # three tables share 63 bits of a key
_NO_KEY = torch.iinfo(torch.int64).max


class StreamVocabulary(nn.Module):
    """Ids → rows, per field, in fixed memory; in `train()` `observe` learns, in `eval()` nothing changes.

    An id gets the next free row of its field at its `min_count`-th sighting, until the field's rows are used up. Ids
    that come too late share the row of unseen ids, and each of their sightings is counted in `overflow`.

    **Keys.** The fields share one sorted array of keys, so that a look-up is one search for all of them. In field f

        key = id · multiplier_f + salt_f  mod 2⁶⁴,    multiplier_f odd,

    with fixed pseudo-random multipliers and salts. Within a field different ids have different keys. Among n ids two
    of different fields have the same key, and then share a row number, with probability n² / 2⁶⁵: as rare as two
    categories with the same 63-bit hash. The id whose key is 2⁶³ − 1, the mark of a free place, never gets a row.

    **Counting in fixed memory.** Every field has 3 tables of `counters` 8-bit counters. A sighting of an id without a
    row adds 1, up to `min_count`, to one counter of each table, chosen by 21 bits of the key each; the id has been seen
    as often as the smallest of its three counters says. Ids that share all three counters may get a row too early,
    never too late. Every `window` = counters / 4 rows all counters are halved, so that an endless stream of rare ids
    does not fill them: an id is frequent when it is seen `min_count` times within a window, or a little more than half
    as often in each of several. In the worst case, ids that are all different, an id is let in at first sight with
    probability below 2 % at min_count = 2 and 10⁻⁹ at min_count = 5.

    **Split invariance.** The vocabulary (ids, their rows, counters) depends on the order of the rows alone, not on how
    they were cut into batches: what is computed is what one row at a time would give.

    It is each process's own: replicas that see different rows learn different rows. Train distributed models with
    hashed tables, or share one vocabulary before the start.

    **Shape.** (B, p) int64 ids → (B, p) int64: 0 missing (id 0), 1 unseen, 2 … size + 1 the field's ids.

    Args:
        sizes: rows for ids of each field.
        min_count: sightings before an id gets a row, 1 to 255.
        counters: counters a table, a power of two up to 2²¹.

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
        fields, places = len(self.sizes), sum(self.sizes) + 1
        # The keys are sorted, with room at the end: one place at least, so that every search ends within the array.
        # key_rows says which row, within its field, the key at that place has.
        self.register_buffer("keys", torch.full((places,), _NO_KEY))
        self.register_buffer("key_rows", torch.full((places,), UNSEEN))
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
        # `observed` as the host knows it: to read it from a device for every batch would wait for the device.
        self._rows_observed: int | None = None
        self.register_load_state_dict_post_hook(_forget_rows_observed)  # type: ignore[no-untyped-call]

    def forward(self, ids: Tensor) -> Tensor:
        row = self._find(self._keys_of(ids).reshape(-1)).reshape(ids.shape)
        # Should ids of two fields share a key, the row is still one of the field's.
        row = torch.minimum(row, self._last_rows)
        return torch.where(ids == 0, MISSING, row)

    @outside_graphs
    @torch.no_grad()
    def observe(self, ids: Tensor) -> None:
        """Take in the next rows of the stream; their ids count in the order of the rows."""
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
        # In order, one search runs through the places that the search before has brought into the cache.
        ordered, order = torch.sort(key)
        row = self._row_at(torch.searchsorted(self.keys, ordered), ordered)
        return torch.empty_like(row).scatter_(0, order, row)

    def _row_at(self, place: Tensor, key: Tensor) -> Tensor:
        return torch.where(_pick(self.keys, place) == key, _pick(self.key_rows, place), UNSEEN)

    def _search(self, key: Tensor) -> Tensor:
        """`torch.searchsorted` in plain look-ups and comparisons, for want of an ONNX operator.

        It ends at the last key that is not above the one sought: the place of that one if it is there at all.
        """
        place, left = torch.zeros_like(key), len(self.keys)
        while left > 1:
            probe = place + left // 2
            place = torch.where(_pick(self.keys, probe) <= key, probe, place)
            left -= left // 2
        return place

    def _observe(self, ids: Tensor) -> None:
        """Take in rows that lie in one window."""
        ids, key = ids.reshape(-1), self._keys_of(ids).reshape(-1)
        unknown = ((self._find(key) == UNSEEN) & (ids != 0) & (key != _NO_KEY)).nonzero().squeeze(1)
        if not len(unknown):
            return
        field, key = unknown % len(self.sizes), _pick(key, unknown)
        frequent = self._count(field, key).nonzero().squeeze(1)
        if len(frequent):
            self._admit(_pick(field, frequent), _pick(key, frequent))

    def _count(self, field: Tensor, key: Tensor) -> Tensor:
        """Count sightings, in order; which of them found their id seen `min_count` times, that sighting included.

        An id that is let in here goes on being counted up to the end of the window. That changes nothing, because its
        counters stand at `min_count` by then: it is why they stop there, and what makes splits not matter.
        """
        counter = (key >> (_TABLE_BITS * self._tables)) & (self.counters - 1)
        counter += (field * _TABLES + self._tables) * self.counters
        ordered, order = torch.sort(counter.reshape(-1), stable=True)
        seen = (_pick(self.counts, ordered) + _rank(ordered) + 1).clamp(max=self.min_count)
        # The last sighting of a counter has the highest count.
        self.counts.scatter_reduce_(0, ordered, seen.to(torch.uint8), "amax")
        frequent = torch.empty_like(order, dtype=torch.bool).scatter_(0, order, seen == self.min_count)
        return frequent.reshape(_TABLES, -1).all(0)

    def _admit(self, field: Tensor, key: Tensor) -> None:
        """Give rows to frequent ids in the order of their first sighting here, as far as there are any left."""
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
        """Merge new keys, sorted, into the others."""
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
    """Of sorted values: each one's rank among its equals, from 0."""
    rank = torch.arange(len(ordered), device=ordered.device)
    rank[1:] -= torch.cummax(rank[1:] * (ordered[1:] != ordered[:-1]), 0).values
    return rank


def _pick(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(0, places)  # several times as quick as values[places]


def _forget_rows_observed(vocabulary: nn.Module, _: object) -> None:
    assert isinstance(vocabulary, StreamVocabulary)
    vocabulary._rows_observed = None
