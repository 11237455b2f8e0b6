"""The distributions of a model's numerical features: jump reservoirs as tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native
from daes.distribution import JumpReservoir
from daes.distribution.base import check_positive, inverted_cdf, rank_of
from daes.distribution.jump import Skip
from daes.distribution.schedule import Origin, make_schedule
from daes.embedding import kernels
from daes.embedding.acceptance import AcceptanceTable
from daes.embedding.compilation import outside_graphs
from daes.embedding.knots import Bounds, StreamKnots

_MOST_BATCHES = 16
"""On a device the knots are refreshed at least once in this many batches."""

_FLOATS = ("slots", "minimum", "maximum", "knots", "centre", "scale")


class FeatureDistributions(StreamKnots):
    """A uniform sample of the stream of each of q features, and the knots computed from it, in buffers.

    The sample of feature f is, bit for bit, that of `JumpReservoir(reservoir_size, skip, seed)` fed with column f: NaN
    and ±inf are skipped and counted, and every value seen so far is a member with probability exactly m/t. All features
    share one schedule of acceptances, drawn ahead of the stream by `daes.distribution`, so samples of different
    features are not independent of each other.

    The knots are refreshed once more than a fraction `tolerance` of a sample was overwritten. On an accelerator nothing
    is ever read back, so observing never stalls it: the number of overwritten members is then estimated from the number
    of rows, and knots are refreshed at least every 16 batches.

    Everything is a buffer: `state_dict`, `to`, `deepcopy` and safetensors work as for any module, and training resumes
    bit for bit from a saved state.

    **Shape.** `observe` takes values (B, q). Buffers: `slots` (q, m+1), whose last column is scratch space; `count`,
    `skipped`, `minimum`, `maximum` (q,); `knots` (q, K+1); `centre`, `scale` (q,); the others restore the schedule.

    Args:
        num_features: number q of features.
        num_knots: number K of intervals between knots.
        reservoir_size: number m of slots per feature.
        seed: of the random numbers. Modules that will be merged need different seeds.
        skip: "exact" (Li's Algorithm L) or "paper", as in `JumpReservoir`.
        tolerance: how far a rank may lag behind the sample before the knots are refreshed.
        bounds: a fixed pair (low, high), or one per feature, in place of the smallest and largest value seen.

    >>> distributions = FeatureDistributions(num_features=2, num_knots=4)
    >>> distributions.observe(torch.tensor([[1.0, 5.0], [2.0, torch.nan], [3.0, 6.0], [4.0, 7.0]]))
    >>> distributions.knots
    tensor([[1., 1., 2., 3., 4.],
            [5., 5., 6., 7., 7.]])
    >>> distributions.count.tolist(), distributions.skipped.tolist()
    ([4, 3], [0, 1])
    """

    slots: Tensor
    count: Tensor
    skipped: Tensor
    minimum: Tensor
    maximum: Tensor
    pending: Tensor
    lag: Tensor
    restarts: Tensor
    log_threshold: Tensor
    _acceptances: list[tuple[AcceptanceTable, NDArray[np.int64], Tensor]] | None
    _levels: Tensor
    _sorted: "_SortedSamples | None"
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
        bounds: Bounds | None = None,
    ) -> None:
        super().__init__(num_features, num_knots, bounds)
        check_positive(reservoir_size=reservoir_size)
        JumpReservoir(1, skip, seed, tolerance=tolerance)  # checks these arguments
        self.reservoir_size = reservoir_size
        self.seed = seed
        self.skip = skip
        self.tolerance = tolerance
        self.register_buffer("slots", torch.zeros(num_features, reservoir_size + 1))
        for name in ("count", "skipped", "pending"):
            self.register_buffer(name, torch.zeros(num_features, dtype=torch.int64))
        for name in ("minimum", "maximum"):
            self.register_buffer(name, torch.full((num_features,), torch.nan))
        # On a device: expected writes and batches since the last refresh; the host counts them while it runs.
        self.register_buffer("lag", torch.zeros(2, dtype=torch.float64))
        # Where each feature's schedule was last restarted: generation, stream position, filled slots; and log W there.
        self.register_buffer("restarts", torch.zeros(num_features, 3, dtype=torch.int64))
        self.register_buffer("log_threshold", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("_levels", torch.tensor(self.levels), persistent=False)
        self._part = 0, 1
        self._forget_host()
        self.register_state_dict_pre_hook(_write_lag)  # type: ignore[no-untyped-call]

    @property
    def follows(self) -> bool:
        return bool(self.slots.shape[1])

    @outside_graphs
    def observe(self, values: Tensor) -> None:
        if not self.follows or not values.shape[0]:
            return
        if values.ndim != 2 or values.shape[1] != self.num_features:
            raise ValueError(f"values must have shape (B, {self.num_features}), got {tuple(values.shape)}")
        if native.serves(values, self.slots) and values.dtype == torch.float32 == self.slots.dtype:
            self._observe_compiled(values)
        elif self._part != (0, 1):
            raise ValueError("features are divided among several processes in single precision, on the CPU")
        elif values.device.type == "cpu":
            self._observe_on_host(values)
        else:
            self.observe_ahead(values, refresh=self.advance(len(values)))

    def divide(self, part: int, parts: int) -> list[Tensor]:
        """Let `observe` follow only features `part`, `part` + `parts`, …, if there are compiled loops for them.

        With `part` = `parts` it follows none, with (0, 1) all features again. Returns the tensors that it changes,
        which the caller places in memory shared by all parts; an empty list if the features cannot be divided.
        """
        buffers = self.slots, self.count, self.skipped, self.pending, self.minimum, self.maximum
        found = [*buffers, self.knots, self.centre, self.scale]
        plain = self._bounds is not None or self.slots.dtype != torch.float32
        if not self.follows or plain or not native.serves(*found):
            return []
        self._part, self._sorted = (part, parts), None
        return found

    def freeze(self) -> Self:
        """Keep the knots and drop the samples: from then on `observe` changes nothing, and a saved state is small."""
        self.slots = self.slots.new_empty(self.num_features, 0)
        self._forget_host()
        return self

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        """Add the distributions of a disjoint stream: each sample becomes a uniform sample of both streams.

        As `JumpReservoir.merge` per feature, bit for bit.
        """
        if other is self:
            raise ValueError("other must cover a disjoint stream; it is this very module")
        if not (self.follows and other.follows):
            raise ValueError("distributions that were frozen have no samples to merge")
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
        self._set_ends(self.minimum, self.maximum, self.count)
        self._refresh(slice(None), int(self._filled().max()))

    def reservoir(self, feature: int) -> JumpReservoir:
        """A copy of one feature's reservoir as a `JumpReservoir`, which would continue exactly as this module does."""
        return self._reservoir(feature, self.slots[feature, : self._filled()[feature]].double().cpu().numpy())

    def quantile(self, levels: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantiles of every feature's current sample, (q, L), NaN where nothing was seen. Waits for a device."""
        wanted = np.asarray(levels, dtype=np.float64)
        found = np.full((self.num_features, wanted.size), np.nan)
        samples = self.slots.double().cpu().numpy()
        for feature, filled in enumerate(self._filled()):
            if filled:
                found[feature] = inverted_cdf(np.sort(samples[feature, :filled]), wanted)
        return found

    def _observe_compiled(self, values: Tensor) -> None:
        """As `_observe_on_host`, in one compiled loop per schedule."""
        part, parts = self._part
        if part >= min(parts, self.num_features):
            return
        if self._sorted is None:
            self._sorted = _SortedSamples(self)
        reservoirs = self._sorted.reservoirs
        least, most = reservoirs.counts
        for table, features, _ in self._tables():
            own = features if parts == 1 else features[features % parts == part]
            due = reservoirs.observe(values, own, *table.reaching(least, most + values.shape[0]))
            if self._bounds is not None:
                self._set_ends(self.minimum, self.maximum, self.count)
            if due.size:
                self._sorted.refresh(due, self)

    @torch.no_grad()
    def _observe_on_host(self, values: Tensor) -> None:
        """Observe with NumPy, on the memory of the buffers."""
        self._sorted = None
        batch: NDArray[Any] = values.detach().to(self.slots.dtype).numpy()
        slots, count, pending = self.slots.numpy(), self.count.numpy(), self.pending.numpy()
        finite = np.isfinite(batch)
        complete = finite.all()
        seen = np.full(self.num_features, len(batch)) if complete else np.count_nonzero(finite, axis=0)
        for table, features, _ in self._tables():
            for feature in features:
                start = int(count[feature])
                accepted = table.between(start, start + int(seen[feature]))
                if accepted.slots.size:
                    rows = accepted.positions - (start + 1)
                    rows = rows if complete else np.flatnonzero(finite[:, feature])[rows]
                    # Where a slot occurs twice, NumPy keeps the last value written: the latest acceptance.
                    slots[feature, accepted.slots] = batch[rows, feature]
                    pending[feature] += accepted.slots.size
            table.forget(int((count + seen)[features].min()))
        low = (batch if complete else np.where(finite, batch, np.inf)).min(axis=0)
        high = (batch if complete else np.where(finite, batch, -np.inf)).max(axis=0)
        count += seen
        self.skipped.numpy()[:] += len(batch) - seen
        for known, extreme, batch_extreme in ((self.minimum, np.fmin, low), (self.maximum, np.fmax, high)):
            extreme(known.numpy(), np.where(seen > 0, batch_extreme, np.nan), out=known.numpy())
        new = np.isnan(self.knots.numpy()[:, 0]) & (count > 0)
        due = np.flatnonzero(new | (pending > self.tolerance * self._filled()))
        self._set_ends(self.minimum, self.maximum, self.count)
        if due.size:
            self._refresh(torch.from_numpy(due), int(self._filled()[due].max()))
            pending[due] = 0

    @property
    def rows_seen(self) -> int:
        """Number of rows observed on a device: the count of the feature with the most values."""
        if self._rows is None:  # once after a load; the only time that the device is waited for
            self._rows = int(self.count.max())
            self._expected, self._batches = self.lag.tolist()
        return self._rows

    def advance(self, rows: int) -> bool:
        """The host's part of observing the next rows on a device; returns whether to refresh the knots after them."""
        before = self.rows_seen
        self._rows = before + rows
        self._expected += rows * min(1.0, self.reservoir_size / (before + 1))
        self._batches += 1
        for table, _, _ in self._tables():
            table.to_device(self._rows, self.slots.device)
        allowed = self.tolerance * min(self._rows, self.reservoir_size)
        due = self._expected >= self._rows or self._expected > allowed or self._batches >= _MOST_BATCHES
        if due:
            self._expected, self._batches = 0.0, 0
        return due

    @torch.no_grad()
    def observe_ahead(self, values: Tensor, *, refresh: bool) -> None:
        """The device's part of observing rows that `advance` was called for.

        It can be recorded: shapes do not depend on the data, and nothing is read back.
        """
        assert self._rows is not None
        values = values.detach().to(self.slots.dtype)
        observe = self._observe_by_kernels if kernels.usable(values, self.slots) else self._observe_by_torch
        observe(values, self._rows, refresh)

    def _observe_by_torch(self, values: Tensor, rows: int, refresh: bool) -> None:
        """Observe values on a device, of `rows` in all."""
        columns = values.t()
        finite = torch.isfinite(columns)
        positions = finite.cumsum(1) + self.count.unsqueeze(1)
        self.count += finite.sum(1)
        self.skipped += (~finite).sum(1)
        slot = torch.full_like(positions, self.reservoir_size)
        for table, features, _ in self._tables():
            where = slice(None) if len(features) == self.num_features else torch.from_numpy(features)
            slot[where] = table.slots_of(
                positions[where], finite[where], self.count[where].unsqueeze(1), rows, self.reservoir_size
            )
        self.slots.scatter_(1, slot, columns)
        self.slots[:, -1] = 0  # which of many values was written there last is up to the device
        low, high = torch.where(finite, columns, torch.inf).amin(1), torch.where(finite, columns, -torch.inf).amax(1)
        # A feature without a finite value has no range: NaN, which fmin and fmax ignore.
        self.minimum.copy_(torch.fmin(self.minimum, torch.where(low <= high, low, torch.nan)))
        self.maximum.copy_(torch.fmax(self.maximum, torch.where(low <= high, high, torch.nan)))
        self._set_ends(self.minimum, self.maximum, self.count)
        if refresh:
            self._refresh(slice(None), min(rows, self.reservoir_size))

    def _observe_by_kernels(self, values: Tensor, rows: int, refresh: bool) -> None:
        """As `_observe_by_torch`."""
        from daes.embedding.kernels import observation

        for table, _, mask in self._tables():
            positions, targets, following = table.to_device(rows, self.slots.device)
            observation.accept(
                values, mask, positions, targets, following,
                self.slots, self.count, self.skipped, self.minimum, self.maximum, self.knots, ends=self._bounds is None,
            )  # fmt: skip
        if self._bounds is not None:
            self._set_ends(self.minimum, self.maximum, self.count)
        if refresh:
            members = self.slots[:, : min(rows, self.reservoir_size)]  # slots are filled from the first on
            observation.refresh(members, self.count, self._levels, self.knots, self.centre, self.scale)

    def _refresh(self, features: Tensor | slice, most: int) -> None:
        """Refresh inner knots, centre and scale of these features from their samples, of at most `most` members."""
        filled = self.count[features].clamp(max=self.reservoir_size).unsqueeze(1)
        ordered = self.slots[features, : max(most, 1)]
        # All features are given as a slice: a view, of a device perhaps, which would be stalled by looking at `filled`.
        if isinstance(features, slice) or bool((filled < most).any()):
            ordered = torch.where(torch.arange(ordered.shape[1], device=filled.device) < filled, ordered, torch.inf)
        if ordered.device.type == "cpu":
            ordered.numpy().sort()  # several times as fast as torch's sort
        else:
            ordered = ordered.sort(1).values
        place = (rank_of(self._levels, filled).long() - 1).clamp(min=0)
        self._set_quantiles(features, torch.where(filled > 0, ordered.gather(1, place), torch.nan))

    def recorded(self) -> list[Tensor]:
        """Tensors beside the buffers that a recording of `observe_ahead` reads."""
        return [tensor for table, _, _ in self._acceptances or () for tensor in table.on_device]

    def _tables(self) -> list[tuple[AcceptanceTable, NDArray[np.int64], Tensor]]:
        """The acceptances ahead, with the features that follow them: those that were restarted at one position.

        Features are given by their numbers and by a mask (q,) on the device.
        """
        if self._acceptances is None:
            origins = [self._origin(feature) for feature in range(self.num_features)]
            counts = self.count.cpu().numpy()
            tables = []
            for origin in dict.fromkeys(origins):
                mask = np.array([other == origin for other in origins])
                schedule = make_schedule(self.skip, self.reservoir_size, self.seed, origin)
                table = AcceptanceTable(schedule, int(counts[mask].min()))
                on_device = torch.from_numpy(mask.astype(np.int8)).to(self.slots.device)
                tables.append((table, np.flatnonzero(mask), on_device))
            self._acceptances = tables
        return self._acceptances

    def _origin(self, feature: int) -> Origin:
        generation, position, filled = self.restarts[feature].tolist()
        return Origin(generation, position, filled, float(self.log_threshold[feature]))

    def _filled(self) -> NDArray[np.int64]:
        """Number of members of each sample, (q,)."""
        filled: NDArray[np.int64] = np.minimum(self.count.cpu().numpy(), self.reservoir_size)
        return filled

    def _reservoir(self, feature: int, members: NDArray[np.float64]) -> JumpReservoir:
        made = JumpReservoir(self.reservoir_size, self.skip, self.seed, tolerance=self.tolerance)
        made.skipped = int(self.skipped[feature])
        made.minimum, made.maximum = float(self.minimum[feature]), float(self.maximum[feature])
        return made.restore(members, self._origin(feature), int(self.count[feature]))

    def _merge_feature(self, feature: int, other: Self) -> None:
        # Which members stay does not depend on their values: merge reservoirs of slot numbers, then move the slots.
        sizes = int(self._filled()[feature]), int(other._filled()[feature])
        mine = self._reservoir(feature, np.arange(sizes[0], dtype=np.float64))
        theirs = other._reservoir(feature, np.arange(sizes[1], dtype=np.float64) + self.reservoir_size)
        mine.merge(theirs)
        chosen = torch.from_numpy(mine.sample.astype(np.int64)).to(self.slots.device)
        both = torch.cat([self.slots[feature, :-1], other.slots[feature, : sizes[1]].to(self.slots)])
        self.slots[feature, : len(chosen)] = both[chosen]
        self.count[feature], self.skipped[feature] = mine.count, mine.skipped
        for name, extreme in (("minimum", torch.fmin), ("maximum", torch.fmax)):
            values = getattr(self, name)
            values[feature] = extreme(values[feature], getattr(other, name)[feature].to(values))
        *restart, self.log_threshold[feature] = mine.schedule.origin
        self.restarts[feature] = torch.tensor(restart)

    def _forget_host(self) -> None:
        """Drop what the host knows beside the buffers; it is computed again when needed."""
        self._acceptances = None
        self._sorted = None
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
        stored = state_dict.get(f"{prefix}slots")
        if stored is not None and stored.shape[1:] in ((0,), (self.reservoir_size + 1,)):  # a frozen state freezes
            self.slots = self.slots.new_zeros(self.num_features, stored.shape[1])
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        self._forget_host()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reservoir_size={self.reservoir_size}"


class _SortedSamples:
    """The samples of q features in ascending order, updated with what is written into them."""

    def __init__(self, of: FeatureDistributions) -> None:
        statistics = of.count, of.skipped, of.pending, of.minimum, of.maximum
        self.reservoirs = native.Reservoirs(
            of.slots, statistics, of.knots, ends=of._bounds is None, tolerance=of.tolerance, part=of._part
        )
        self._members = np.empty((of.num_features + 1, of.reservoir_size + self.reservoirs.ROOM), np.float32)
        self._rows = np.arange(of.num_features + 1)  # the row of `_members` of each feature; the last one is free
        self._known = np.zeros(of.num_features, bool)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy makes its own

    def refresh(self, features: NDArray[np.int64], of: FeatureDistributions) -> None:
        """As `FeatureDistributions._refresh`, for features that have values."""
        pending, slots, filled = of.pending.numpy(), of.slots.numpy(), of._filled()
        few = np.minimum(filled[features] // 4, self.reservoirs.ROOM)  # with more writes, sorting is as fast
        for feature in features[~self._known[features] | (pending[features] > few)].tolist():
            members = self._members[self._rows[feature], : filled[feature]]
            np.add(slots[feature, : filled[feature]], np.float32(0), out=members)  # no negative zeros
            members.sort()
            pending[feature], self._known[feature] = 0, True
        self.reservoirs.refresh(features, self._members, self._rows, of.levels, of.centre, of.scale)


def _write_lag(module: FeatureDistributions, *_: Any) -> None:
    """Copy the host's counters to their buffer before it is saved or moved."""
    if module._rows is not None:
        module.lag.copy_(torch.tensor([module._expected, module._batches]))
