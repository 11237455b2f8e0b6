"""A vocabulary learned in the stream: which ids have been seen often enough to get a row of their own."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

MISSING, UNSEEN, FIRST = 0, 1, 2
"""The first rows of every field: for a missing value, for an id without a row of its own, then the ids' rows."""

_TABLES = 3
_TABLE_BITS = 21  # three tables share the 63 bits of a hash
_NO_KEY = torch.iinfo(torch.int64).max


class StreamVocabulary(nn.Module):
    """Ids → rows, per field, in fixed memory; in `train()` `observe` learns, in `eval()` nothing changes.

    An id gets the next free row of its field at its `min_count`-th sighting, until the field's rows are used up. Ids
    that come too late share the row of unseen ids, and each of their sightings is counted in `overflow`.

    **Counting in fixed memory.** Every field has 3 tables of `counters` 8-bit counters. A sighting of an id without a
    row adds 1, up to `min_count`, to one counter of each table, chosen by 21 bits of the id each; the id has been seen
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
    _starts: Tensor
    _sizes: Tensor
    _steps: Tensor

    def __init__(self, sizes: Sequence[int], *, min_count: int = 5, counters: int = 2**18) -> None:
        super().__init__()
        for field, size in enumerate(sizes):
            if size <= 0:
                raise ValueError(f"sizes must be positive, however: sizes[{field}]={size}")
        if not 1 <= min_count <= 255:
            raise ValueError(f"min_count must be from 1 to 255, however: min_count={min_count}")
        if not 4 <= counters <= 2**_TABLE_BITS or counters & (counters - 1):
            raise ValueError(f"counters must be a power of two from 4 to 2^{_TABLE_BITS}, however: counters={counters}")
        self.sizes = tuple(sizes)
        self.min_count = min_count
        self.counters = counters
        self.window = counters // 4
        fields, total = len(self.sizes), sum(self.sizes)
        # Each field's keys are sorted, with room at the end; key_rows says which row the key at that place has.
        self.register_buffer("keys", torch.full((total,), _NO_KEY))
        self.register_buffer("key_rows", torch.full((total,), UNSEEN))
        self.register_buffer("used", torch.zeros(fields, dtype=torch.int64))
        self.register_buffer("overflow", torch.zeros(fields, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(fields * _TABLES * counters, dtype=torch.uint8))
        self.register_buffer("observed", torch.zeros((), dtype=torch.int64))
        starts = list(accumulate(self.sizes, initial=0))[:-1]
        self.register_buffer("_starts", torch.tensor(starts, dtype=torch.int64), persistent=False)
        self.register_buffer("_sizes", torch.tensor(self.sizes, dtype=torch.int64), persistent=False)
        self.register_buffer("_steps", _search_steps(self.sizes), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        # A binary search of ids in plain look-ups and comparisons, for want of an ONNX operator; each field's steps are
        # known beforehand. It ends at the last key that is not above the id.
        place = self._starts.expand_as(ids)
        for step in self._steps.unbind():
            probe = place + step
            place = torch.where(_pick(self.keys, probe) <= ids, probe, place)
        row = torch.where(_pick(self.keys, place) == ids, _pick(self.key_rows, place), UNSEEN)
        return torch.where(ids == 0, MISSING, row)

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    @torch.no_grad()
    def observe(self, ids: Tensor) -> None:
        """Take in the next rows of the stream; their ids count in the order of the rows."""
        start = 0
        while start < len(ids):
            stop = min(start + self.window - int(self.observed) % self.window, len(ids))
            self._observe(ids[start:stop])
            self.observed += stop - start
            if int(self.observed) % self.window == 0:
                self.counts >>= 1
            start = stop

    def extra_repr(self) -> str:
        return f"fields={len(self.sizes)}, rows={sum(self.sizes)}, min_count={self.min_count}, counters={self.counters}"

    def _observe(self, ids: Tensor) -> None:
        """Take in rows that lie in one window."""
        unknown = ((self(ids) == UNSEEN) & (ids != _NO_KEY)).reshape(-1).nonzero().squeeze(1)
        if not len(unknown):
            return
        field, key = unknown % len(self.sizes), ids.reshape(-1)[unknown]
        frequent = self._count(field, key).nonzero().squeeze(1)
        if len(frequent):
            self._admit(field[frequent], key[frequent])

    def _count(self, field: Tensor, key: Tensor) -> Tensor:
        """Count sightings, in order; which of them found their id seen `min_count` times, that sighting included.

        An id that is let in here goes on being counted up to the end of the window. That changes nothing, because its
        counters stand at `min_count` by then: it is why they stop there, and what makes splits not matter.
        """
        frequent = torch.ones_like(key, dtype=torch.bool)
        for table in range(_TABLES):
            counter = (field * _TABLES + table) * self.counters
            counter += (key >> (_TABLE_BITS * table)) & (self.counters - 1)
            ordered, order = torch.sort(counter, stable=True)
            rank, last = _runs(ordered)
            seen = self.counts[ordered] + rank + 1
            frequent[order] &= seen >= self.min_count
            self.counts[ordered[last]] = seen[last].clamp(max=self.min_count).to(torch.uint8)
        return frequent

    def _admit(self, field: Tensor, key: Tensor) -> None:
        """Give rows to frequent ids in the order of their first sighting here, as far as there are any left."""
        order = torch.sort(key, stable=True).indices
        order = order[torch.sort(field[order], stable=True).indices]
        leads = torch.ones_like(order, dtype=torch.bool)
        leads[1:] = (field[order].diff() != 0) | (key[order].diff() != 0)
        first = order[leads]  # each id's first sighting, by field and key
        in_time = first.sort().values
        in_time = in_time[torch.sort(field[in_time], stable=True).indices]
        place = torch.empty_like(key)
        place[in_time] = self.used[field[in_time]] + _runs(field[in_time])[0]
        fits = place[first] < self._sizes[field[first]]
        late = order[~fits[leads.cumsum(0) - 1]]
        self.overflow += torch.bincount(field[late], minlength=len(self.sizes))
        admitted = first[fits]
        for number in torch.unique(field[admitted]).tolist():
            new = admitted[field[admitted] == number]
            self._insert(number, key[new], place[new] + FIRST)

    def _insert(self, field: int, key: Tensor, row: Tensor) -> None:
        """Merge new keys, sorted, into a field's."""
        start, count = int(self._starts[field]), int(self.used[field])
        total = count + len(key)
        spot = torch.searchsorted(self.keys[start : start + count], key) + torch.arange(len(key), device=key.device)
        old = torch.ones(total, dtype=torch.bool, device=key.device)
        old[spot] = False
        for stored, new in ((self.keys, key), (self.key_rows, row)):
            merged = torch.empty(total, dtype=torch.int64, device=key.device)
            merged[spot], merged[old] = new, stored[start : start + count]
            stored[start : start + total] = merged
        self.used[field] = total


def _search_steps(sizes: Sequence[int]) -> Tensor:
    """(steps, fields): how far each step of a binary search among `size` keys reaches."""
    steps, left = [], list(sizes)
    while max(left, default=0) > 1:
        steps.append([size // 2 for size in left])
        left = [size - size // 2 for size in left]
    return torch.tensor(steps, dtype=torch.int64).reshape(len(steps), len(left))


def _pick(values: Tensor, places: Tensor) -> Tensor:
    return values.index_select(0, places.reshape(-1)).reshape(places.shape)  # twice as quick as values[places]


def _runs(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """Of sorted values: each one's rank among its equals, from 0, and whether it is the last of them."""
    place = torch.arange(len(ordered), device=ordered.device)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[1:] = ordered.diff() != 0
    rank = place - torch.cummax(torch.where(starts, place, 0), 0).values
    return rank, torch.cat([starts[1:], starts[:1]])
