"""The distributions of a model's numerical features: jump reservoirs as tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native
from daes.distribution import JumpReservoir
from daes.distribution.base import check_positive, rank_of
from daes.distribution.jump import Skip
from daes.distribution.schedule import Origin, make_schedule
from daes.embedding import kernels
from daes.embedding.acceptance import AcceptanceTable
from daes.embedding.compilation import outside_graphs
from daes.embedding.knots import FeatureKnots, check_bounds

LIKELY_LEVELS = (np.arange(200) + 0.5) / 200
"""Levels of 200 equally likely quantiles, whose mean and deviation are centre and scale: outliers do not move them."""

_MOST_BATCHES = 16
"""On a device the knots are refreshed after so many batches at the latest."""

_FLOATS = ("slots", "minimum", "maximum", "knots", "centre", "scale")


class FeatureDistributions(FeatureKnots):
    """A uniform sample of the stream of each of q features, and the knots that follow it, in buffers.

    Feature f's sample is, bit for bit, that of `JumpReservoir(reservoir_size, skip, seed)` fed with column f: NaN and
    ±inf are skipped and counted, every value seen so far is a member with probability exactly m/t. One schedule of
    acceptances, drawn ahead of the stream by `daes.distribution`, serves all features, so samples of different features
    are not independent of each other.

    Knots follow as far as `tolerance` asks for: they are refreshed once more than that share of a sample was
    overwritten. On an accelerator nothing is ever read back, so that observing never stalls it: how much was
    overwritten is then estimated from the number of rows, and 16 batches are the longest wait.

    Everything is a buffer: `state_dict`, `to`, `deepcopy` and safetensors work as for any module, and training goes on
    bit for bit from a saved state.

    **Shape.** `observe` takes values (B, q), and labels (B,) with `keep_labels`. Buffers: `slots` (q, m+1), of which
    the last column is scratch space; `count`, `skipped`, `minimum`, `maximum` (q,); `knots` (q, K+1); `centre`, `scale`
    (q,); `labels` (q, m+1) with `keep_labels`; the rest restores the schedule.

    Args:
        num_features: the number q of features.
        num_knots: the number K of intervals between knots.
        reservoir_size: the number m of slots per feature.
        seed: where the random numbers start. Give modules that will be merged different seeds.
        skip: "exact" (Li's Algorithm L) or "paper", as of `JumpReservoir`.
        tolerance: how far a rank may lag behind the sample before the knots are refreshed.
        bounds: a fixed pair (low, high), or one per feature, in place of the smallest and largest value seen.
        keep_labels: whether the sample also remembers the label of each row.

    >>> distributions = FeatureDistributions(num_features=2, num_knots=4)
    >>> distributions.observe(torch.tensor([[1.0, 5.0], [2.0, torch.nan], [3.0, 6.0], [4.0, 7.0]]))
    >>> distributions.knots
    tensor([[1., 1., 2., 3., 4.],
            [5., 5., 6., 7., 7.]])
    >>> distributions.count.tolist(), distributions.skipped.tolist()
    ([4, 3], [0, 1])
    """

    slots: Tensor
    labels: Tensor | None
    count: Tensor
    skipped: Tensor
    minimum: Tensor
    maximum: Tensor
    pending: Tensor
    lag: Tensor
    restarts: Tensor
    log_threshold: Tensor
    _acceptances: list[tuple[AcceptanceTable, NDArray[np.int64]]] | None
    _levels: Tensor | None
    _follow: list[Tensor] | None
    _order: "_Order | None"
    _part: tuple[int, int]
    _rows: int | None
    _expected: float
    _batches: float

    def __init__(
        self,
        num_features: int,
        num_knots: int = 100,
        *,
        reservoir_size: int = 100_000,
        seed: int = 0,
        skip: Skip = "exact",
        tolerance: float = 1e-2,
        bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
        keep_labels: bool = False,
    ) -> None:
        check_positive(num_features=num_features, num_knots=num_knots)
        super().__init__(torch.full((num_features, num_knots + 1), torch.nan))
        check_positive(reservoir_size=reservoir_size)
        JumpReservoir(1, skip, seed, tolerance=tolerance)  # checks these arguments
        self.reservoir_size = reservoir_size
        self.seed = seed
        self.skip = skip
        self.tolerance = tolerance
        self.levels = np.arange(1, num_knots) / num_knots
        self._all_levels = np.append(self.levels, LIKELY_LEVELS)
        self._bounds = check_bounds(bounds, num_features)
        self.register_buffer("slots", torch.zeros(num_features, reservoir_size + 1))
        self.register_buffer(
            "labels", torch.zeros(num_features, reservoir_size + 1, dtype=torch.uint8) if keep_labels else None
        )
        for name in ("count", "skipped", "pending"):
            self.register_buffer(name, torch.zeros(num_features, dtype=torch.int64))
        for name in ("minimum", "maximum"):
            self.register_buffer(name, torch.full((num_features,), torch.nan))
        # On a device: writes expected and batches seen since the knots were refreshed; known to the host while it runs.
        self.register_buffer("lag", torch.zeros(2, dtype=torch.float64))
        # Where each feature's schedule was last restarted: generation, stream position, slots filled; and log W there.
        self.register_buffer("restarts", torch.zeros(num_features, 3, dtype=torch.int64))
        self.register_buffer("log_threshold", torch.zeros(num_features, dtype=torch.float64))
        self._part = 0, 1
        self._forget_host()
        self.register_state_dict_pre_hook(_write_lag)  # type: ignore[no-untyped-call]

    @property
    def follows(self) -> bool:
        return bool(self.slots.shape[1])

    @outside_graphs
    def observe(self, values: Tensor, labels: Tensor | None = None) -> None:
        if not self.follows or not values.shape[0]:
            return
        if self.labels is not None and labels is None:
            raise ValueError("labels must be given to distributions that keep labels, got None")
        slots = self.slots
        if self.labels is None and native.serves(values, slots) and values.dtype == torch.float32 == slots.dtype:
            self._observe_compiled(values)
        elif self._part != (0, 1):
            raise ValueError("features are divided among several processes in single precision, on the CPU")
        else:
            self._observe_plainly(values, labels)

    @torch.no_grad()
    def _observe_plainly(self, values: Tensor, labels: Tensor | None) -> None:
        values = values.detach().to(self.slots.dtype)
        if values.device.type == "cpu":
            self._observe_on_host(values.numpy(), None if labels is None else labels.detach().numpy())
            due = self._due_on_host()
            self._set_ends()
            self._set_knots(due)
        else:
            self.observe_ahead(values, labels, refresh=self.advance(len(values)))

    def divide(self, part: int, parts: int) -> list[Tensor]:
        """Let `observe` follow features `part`, `part` + `parts`, … alone, if compiled loops serve.

        With `part` = `parts` it follows none of them. Returns what it changes: whoever has these tensors in memory that
        is shared with the other parts has all of it. Nothing is divided if the list is empty. With (0, 1) all features
        are followed again.
        """
        buffers = self.slots, self.count, self.skipped, self.pending, self.minimum, self.maximum
        found = [*buffers, self.knots, self.centre, self.scale]
        plain = self.labels is not None or self._bounds is not None or self.slots.dtype != torch.float32
        if not self.follows or plain or not native.serves(*found):
            return []
        self._part, self._order = (part, parts), None
        return found

    def freeze(self) -> Self:
        """Keep the knots and drop the samples: `observe` changes nothing from then on, and a saved state is small."""
        self.slots = self.slots.new_empty(self.num_features, 0)
        if self.labels is not None:
            self.labels = self.labels.new_empty(self.num_features, 0)
        self._forget_host()
        return self

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        """Take in the distributions of a disjoint stream: afterwards each sample is a uniform one of both streams.

        As `JumpReservoir.merge` per feature, bit for bit.
        """
        if other is self:
            raise ValueError("other must cover a disjoint stream; it is this very module")
        if not (self.follows and other.follows):
            raise ValueError("distributions that were frozen have no samples to merge")
        if (self.labels is None) != (other.labels is None):
            raise ValueError("both distributions must keep labels to merge, or neither; only one of them does")
        for name in ("num_features", "num_knots", "reservoir_size", "skip"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"other must have the same {name} to merge, got {getattr(other, name)} for {getattr(self, name)}"
                )
        for feature in range(self.num_features):
            self._merge_feature(feature, other)
        self._forget_host()
        self.pending.zero_()
        self.lag.zero_()
        self._set_ends()
        self._set_knots(np.arange(self.num_features))

    def reservoir(self, feature: int) -> JumpReservoir:
        """A copy of one feature's reservoir as a `JumpReservoir`, which would go on exactly as this module does."""
        filled = min(int(self.count[feature]), self.reservoir_size)
        return self._reservoir(feature, self.slots[feature, :filled].double().cpu().numpy())

    def quantile(self, levels: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantiles of every feature's sample as it is now, (q, L), NaN where nothing was seen. Waits for a device."""
        wanted = np.asarray(levels, dtype=np.float64)
        found = np.full((self.num_features, wanted.size), np.nan)
        samples = self.slots.double().cpu().numpy()
        for feature, filled in enumerate(self._filled()):
            if filled:
                found[feature] = np.sort(samples[feature, :filled])[rank_of(wanted, filled).astype(np.int64) - 1]
        return found

    # --- the host: NumPy on the buffers' memory ---------------------------------------------------------------------

    def _observe_compiled(self, values: Tensor) -> None:
        """As `_observe_on_host`, without labels, in one loop per schedule."""
        if self._part[0] >= min(self._part[1], self.num_features):
            return
        if self._order is None:
            self._order = _Order(self)
        order = self._order
        least, most = order.reservoirs.counts
        part, parts = self._part
        for table, features in self._tables():
            own = features if parts == 1 else features[features % parts == part]
            due = order.reservoirs.observe(values, own, *table.reaching(least, most + values.shape[0]))
            if self._bounds is not None:
                self._set_ends()
            if due.size:
                order.refresh(due, self)

    def _observe_on_host(self, batch: NDArray[Any], labels: NDArray[Any] | None) -> None:
        rows = batch.shape[0]
        self._order = None
        count, low, high = self.count.numpy(), *_column_range(batch)
        whole = np.isfinite(low) & np.isfinite(high)
        seen = np.full(self.num_features, rows)
        finite = None
        if not whole.all():
            finite = np.isfinite(batch)
            seen = np.count_nonzero(finite, axis=0)
            low = np.where(finite, batch, np.inf).min(axis=0)
            high = np.where(finite, batch, -np.inf).max(axis=0)
        for table, features in self._tables():
            whole_here = features[whole[features]]
            for start in np.unique(count[whole_here]).tolist():  # one, unless values were missing before
                together = whole_here[count[whole_here] == start]
                accepted = table.between(start, start + rows)
                if accepted.slots.size:
                    self._write(together[:, None], accepted.slots, accepted.positions - (start + 1), batch, labels)
            for feature in features[~whole[features]].tolist():
                start = int(count[feature])
                accepted = table.between(start, start + int(seen[feature]))
                if accepted.slots.size:
                    assert finite is not None
                    kept = np.flatnonzero(finite[:, feature])[accepted.positions - (start + 1)]
                    self._write(np.array([[feature]]), accepted.slots, kept, batch, labels)
        some = seen > 0
        count += seen
        self.skipped.numpy()[:] += rows - seen
        np.fmin(self.minimum.numpy(), np.where(some, low, np.nan), out=self.minimum.numpy())
        np.fmax(self.maximum.numpy(), np.where(some, high, np.nan), out=self.maximum.numpy())
        for table, features in self._tables():
            table.forget(int(count[features].min()))

    def _write(
        self,
        features: NDArray[np.int64],
        slots: NDArray[np.int64],
        rows: NDArray[np.int64],
        batch: NDArray[Any],
        labels: NDArray[Any] | None,
    ) -> None:
        # Of equal slots NumPy keeps the value that was written last: the latest acceptance.
        self.slots.numpy()[features, slots] = batch[rows, features]
        if self.labels is not None and labels is not None:
            self.labels.numpy()[features, slots] = labels[rows] > 0
        self.pending.numpy()[features] += slots.size

    def _due_on_host(self) -> NDArray[np.int64]:
        """The features whose knots lag behind more than the tolerance allows."""
        count, pending = self.count.numpy(), self.pending.numpy()
        new = np.isnan(self.knots.numpy()[:, 0]) & (count > 0)
        return np.flatnonzero(new | (pending > self.tolerance * np.minimum(count, self.reservoir_size)))

    def _set_knots(self, features: NDArray[np.int64]) -> None:
        """Refresh the knots of these features from their samples, but for the outer ones."""
        filled = self._filled()
        features = features[filled[features] > 0]
        if not features.size:
            return
        size = filled[features][:, None]
        where = torch.from_numpy(features)
        members = self.slots[where, : int(size.max())].cpu().numpy()
        if (size < size.max()).any():  # samples of different sizes are sorted together
            members[np.arange(members.shape[1]) >= size] = np.inf
        members.sort(axis=1)
        rank = rank_of(self._all_levels, size).astype(np.int64)
        found = torch.from_numpy(np.take_along_axis(members, rank - 1, axis=1)).to(self.knots.device)
        inner = found[:, : len(self.levels)]
        self.knots[where, 1:-1] = inner.clamp(self.knots[where, :1], self.knots[where, -1:])
        self._set_bulk(where, found[:, len(self.levels) :])
        self.pending[where] = 0

    def _set_ends(self) -> None:
        low, high = self.minimum, self.maximum
        if self._bounds is not None:
            pair = self._bounds.to(self.knots)
            low, high = (torch.where(self.count > 0, pair[:, side], torch.nan) for side in (0, 1))
        self.knots[:, 0], self.knots[:, -1] = low, high

    def _set_bulk(self, features: Tensor | slice, likely: Tensor) -> None:
        likely = likely.double()  # a sum of large numbers may leave float32
        self.centre[features] = likely.mean(1).to(self.centre.dtype)
        self.scale[features] = likely.std(1, correction=0).to(self.scale.dtype)

    # --- a device: shapes never depend on the data and nothing is read back ---------------------------------------

    @property
    def rows_seen(self) -> int:
        """Rows observed on a device, as far as the fullest feature knows."""
        if self._rows is None:  # once after a load; the only time that the device is waited for
            self._rows = int(self.count.max())
            self._expected, self._batches = self.lag.tolist()
        return self._rows

    def advance(self, rows: int) -> bool:
        """The host's part of observing the next rows on a device; whether the knots are to be refreshed after them."""
        before = self.rows_seen
        self._rows = before + rows
        self._expected += rows * min(1.0, self.reservoir_size / (before + 1))
        self._batches += 1
        for table, _ in self._tables():
            table.shipped(self._rows, self.slots.device)
        allowed = self.tolerance * min(self._rows, self.reservoir_size)
        due = self._expected >= self._rows or self._expected > allowed or self._batches >= _MOST_BATCHES
        if due:
            self._expected, self._batches = 0.0, 0
        return due

    @torch.no_grad()
    def observe_ahead(self, values: Tensor, labels: Tensor | None = None, *, refresh: bool) -> None:
        """The device's part of observing rows that the host was told of by `advance`: it can be recorded."""
        values = values.detach().to(self.slots.dtype)
        if self.labels is None and kernels.usable(values, self.slots):
            self._observe_by_kernels(values, refresh)
            return
        self._accept(values, labels)
        if refresh:
            self._refresh()
        self._set_ends()

    def _accept(self, values: Tensor, labels: Tensor | None) -> None:
        assert self._rows is not None
        columns = values.t()
        finite = torch.isfinite(columns)
        positions = finite.cumsum(1) + self.count.unsqueeze(1)
        self.count += finite.sum(1)
        self.skipped += (~finite).sum(1)
        slot = torch.full_like(positions, self.reservoir_size)
        for table, features in self._tables():
            where = slice(None) if len(features) == self.num_features else torch.from_numpy(features)
            slot[where] = table.slots_of(
                positions[where], finite[where], self.count[where].unsqueeze(1), self._rows, self.reservoir_size
            )
        self.slots.scatter_(1, slot, columns)
        self.slots[:, -1] = 0  # which of many values was written there last is up to the device
        if self.labels is not None and labels is not None:
            self.labels.scatter_(1, slot, (labels > 0).to(torch.uint8).expand_as(slot))
            self.labels[:, -1] = 0
        low, high = torch.where(finite, columns, torch.inf).amin(1), torch.where(finite, columns, -torch.inf).amax(1)
        # A feature without a finite value has no range: NaN, which fmin and fmax ignore.
        self.minimum.copy_(torch.fmin(self.minimum, torch.where(low <= high, low, torch.nan)))
        self.maximum.copy_(torch.fmax(self.maximum, torch.where(low <= high, high, torch.nan)))

    def _observe_by_kernels(self, values: Tensor, refresh: bool) -> None:
        from daes.embedding.kernels import observation

        assert self._rows is not None
        for table, members in zip(self._device_tables(), self._members(), strict=True):
            observation.accept(
                values, members, *table, self.slots, self.count, self.skipped, self.minimum, self.maximum, self.knots,
                ends=self._bounds is None,
            )  # fmt: skip
        if self._bounds is not None:
            self._set_ends()
        if refresh:
            most = min(self._rows, self.reservoir_size)
            observation.refresh(
                self.slots[:, :most], self.count, self._device_levels(), self.knots, self.centre, self.scale
            )  # fmt: skip

    def _refresh(self) -> None:
        assert self._rows is not None
        most = min(self._rows, self.reservoir_size)  # slots are filled from the first on
        filled = self.count.clamp(max=self.reservoir_size).unsqueeze(1)
        taken = torch.arange(most, device=self.slots.device) < filled
        ordered = torch.where(taken, self.slots[:, :most], torch.inf).sort(1).values
        place = (rank_of(self._device_levels(), filled).long() - 1).clamp(min=0)
        picked = torch.where(filled > 0, ordered.gather(1, place), torch.nan)
        self._set_ends()
        inner, likely = picked[:, : len(self.levels)], picked[:, len(self.levels) :]
        self.knots[:, 1:-1] = inner.clamp(self.knots[:, :1], self.knots[:, -1:])
        self._set_bulk(slice(None), likely.nan_to_num())

    def _device_levels(self) -> Tensor:
        if self._levels is None or self._levels.device != self.slots.device:
            self._levels = torch.tensor(self._all_levels, device=self.slots.device)
        return self._levels

    def _device_tables(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        assert self._rows is not None
        return [table.shipped(self._rows, self.slots.device) for table, _ in self._tables()]

    def _members(self) -> list[Tensor]:
        """Which features follow each of the tables, on the device."""
        if self._follow is None:
            self._follow = [
                torch.from_numpy(np.isin(np.arange(self.num_features), features).astype(np.int8)).to(self.slots.device)
                for _, features in self._tables()
            ]
        return self._follow

    def recorded(self) -> list[Tensor]:
        """Tensors beside the buffers that a recording of `observe_ahead` reads."""
        return [tensor for table, _ in self._acceptances or () for tensor in table.on_device]

    # --- schedules --------------------------------------------------------------------------------------------------

    def _tables(self) -> list[tuple[AcceptanceTable, NDArray[np.int64]]]:
        """The acceptances ahead, with the features that follow them; features restarted alike follow one table."""
        if self._acceptances is None:
            origins = [self._origin(feature) for feature in range(self.num_features)]
            counts = self.count.cpu().numpy()
            tables = []
            for origin in dict.fromkeys(origins):
                features = np.array([place for place, other in enumerate(origins) if other == origin])
                schedule = make_schedule(self.skip, self.reservoir_size, self.seed, origin)
                tables.append((AcceptanceTable(schedule, int(counts[features].min())), features))
            self._acceptances = tables
        return self._acceptances

    def _origin(self, feature: int) -> Origin:
        generation, position, filled = self.restarts[feature].tolist()
        return Origin(generation, position, filled, float(self.log_threshold[feature]))

    def _filled(self) -> NDArray[np.int64]:
        filled: NDArray[np.int64] = np.minimum(self.count.cpu().numpy(), self.reservoir_size)
        return filled

    def _reservoir(self, feature: int, members: NDArray[np.float64]) -> JumpReservoir:
        count = int(self.count[feature])
        made = JumpReservoir(self.reservoir_size, self.skip, self.seed, tolerance=self.tolerance)
        made.restore(
            members,
            make_schedule(self.skip, self.reservoir_size, self.seed, self._origin(feature)),
            count=count,
            skipped=int(self.skipped[feature]),
            minimum=float(self.minimum[feature]),
            maximum=float(self.maximum[feature]),
        )
        return made

    def _merge_feature(self, feature: int, other: Self) -> None:
        # Which members stay does not depend on their values: merge reservoirs of slot numbers, then move the slots.
        sizes = int(self._filled()[feature]), int(other._filled()[feature])
        mine = self._reservoir(feature, np.arange(sizes[0], dtype=np.float64))
        theirs = other._reservoir(feature, np.arange(sizes[1], dtype=np.float64) + self.reservoir_size)
        mine.merge(theirs)
        chosen = torch.from_numpy(mine.sample.astype(np.int64)).to(self.slots.device)
        for name in ("slots", "labels"):
            ours, others = getattr(self, name), getattr(other, name)
            if ours is not None:
                both = torch.cat([ours[feature, :-1], others[feature, : sizes[1]].to(ours)])
                ours[feature, : len(chosen)] = both[chosen]
        self.count[feature], self.skipped[feature] = mine.count, mine.skipped
        for name, least in (("minimum", torch.fmin), ("maximum", torch.fmax)):
            values = getattr(self, name)
            values[feature] = least(values[feature], getattr(other, name)[feature].to(values))
        *restart, self.log_threshold[feature] = mine.schedule.origin
        self.restarts[feature] = torch.tensor(restart)

    # --- state ------------------------------------------------------------------------------------------------------

    def _forget_host(self) -> None:
        """What the host knows beside the buffers is to be found anew."""
        self._acceptances = None
        self._levels = None
        self._follow = None
        self._order = None
        self._rows = None
        self._expected, self._batches = 0.0, 0.0

    def _may_become(self, name: str, dtype: torch.dtype) -> bool:
        return name in _FLOATS and super()._may_become(name, dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        _write_lag(self)
        super()._apply(fn, recurse)
        self._forget_host()
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any, **options: Any
    ) -> None:
        for name in ("slots", "labels"):  # a frozen state fits, and freezes
            stored, own = state_dict.get(prefix + name), getattr(self, name)
            if stored is not None and own is not None and stored.shape[1:] in ((0,), (self.reservoir_size + 1,)):
                setattr(self, name, own.new_zeros(self.num_features, stored.shape[1]))
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        self._forget_host()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reservoir_size={self.reservoir_size}"


class _Order:
    """The samples of q features in ascending order, kept up to date by what was written into them."""

    def __init__(self, of: FeatureDistributions) -> None:
        statistics = of.count, of.skipped, of.pending, of.minimum, of.maximum
        self.reservoirs = native.Reservoirs(
            of.slots, statistics, of.knots, ends=of._bounds is None, tolerance=of.tolerance, part=of._part
        )
        self._members = np.empty((of.num_features + 1, of.reservoir_size + self.reservoirs.ROOM), np.float32)
        self._rows = np.arange(of.num_features + 1)  # of the members of each feature; the last one is free
        self._known = np.zeros(of.num_features, bool)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy finds its own order

    def refresh(self, features: NDArray[np.int64], of: FeatureDistributions) -> None:
        """As `FeatureDistributions._set_knots`, for features that have values."""
        pending, slots, filled = of.pending.numpy(), of.slots.numpy(), of._filled()
        few = np.minimum(filled[features] // 4, self.reservoirs.ROOM)  # with more writes sorting is as quick
        for feature in features[~self._known[features] | (pending[features] > few)].tolist():
            members = self._members[self._rows[feature], : filled[feature]]
            np.add(slots[feature, : filled[feature]], np.float32(0), out=members)  # no negative zeros
            members.sort()
            pending[feature], self._known[feature] = 0, True
        self.reservoirs.refresh(features, self._members, self._rows, of._all_levels, of.centre, of.scale)


def _write_lag(module: FeatureDistributions, *_: Any) -> None:
    """The host's counters into their buffer, before it is saved or moved."""
    if module._rows is not None:
        module.lag.copy_(torch.tensor([module._expected, module._batches]))


def _column_range(batch: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The smallest and largest value of each column, NaN where it has one.

    A reduction over few columns runs in a short inner loop; many rows laid side by side make it long.
    """
    rows, columns = batch.shape
    wide = max(1, 1024 // columns)
    fold = rows // wide
    if fold < 2 or not batch.flags.c_contiguous:
        return np.minimum.reduce(batch, axis=0), np.maximum.reduce(batch, axis=0)
    body, rest = batch[: fold * wide].reshape(fold, wide * columns), batch[fold * wide :]
    low = np.minimum.reduce(body, axis=0).reshape(wide, columns)
    high = np.maximum.reduce(body, axis=0).reshape(wide, columns)
    return np.minimum.reduce(np.concatenate([low, rest]), axis=0), np.maximum.reduce(
        np.concatenate([high, rest]), axis=0
    )
