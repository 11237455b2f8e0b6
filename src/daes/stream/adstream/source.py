"""The simulated ad stream as a source of batches."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.extras import require
from daes.stream.adstream.bayes import BayesMetrics, bayes_metrics
from daes.stream.adstream.draws import Draws
from daes.stream.adstream.drift import Clock, Drift
from daes.stream.adstream.features import FeatureGenerator, Features
from daes.stream.adstream.fields import Vocabulary
from daes.stream.adstream.truth import PROPORTIONS, Signal, Truth
from daes.stream.batch import Batch, batch_from_table
from daes.stream.schema import Schema, no_such_column

LABEL, TIME = "click", "time"


class AdStream:
    """A simulated ad stream of 20 categorical and 10 numerical fields whose true click probabilities are known.

    Heavy tails, zero-inflated counts, integers with ties, missing values, daily cycles, slow and abrupt drift,
    numerical laws that depend on a category, Zipf-distributed ids with new ones appearing: `catalogue` lists the
    fields, `drift` says how laws move, `truth` what decides on a click. A row depends on `world`, `seed`, its own
    number and the arguments that shape the stream, not on how it is read: not on `num_rows`, batch size, shard or where
    reading began.

    Args:
        num_rows: length of the stream; None for an endless one.
        seed: of the rows.
        world: of the laws' parameters, curves and effects; two streams of one world follow one truth.
        drift: kinds joined by "+" out of daily, slow, abrupt, churn; "none"; or a `Drift` with sizes and periods.
        base_rate: long-run click rate.
        signal: proportions of the numerical signal that come from "value", "rank" and "context_rank".
        numerical, categorical, interactions, missing: standard deviation of the parts of the logit.
        rank_law: whether ranks are those in the law of the moment ("current") or without drift ("reference").
        context_strength: factor of the differences between categories in the numerical laws; 0 for none.
        users: number of users at any time.
        rows_per_day: rows in a simulated day.
        shard: (rank, world size) of a distributed reader; batch i belongs to rank i mod world size.
        block: rows made at once.

    >>> stream = AdStream(1000, seed=1)
    >>> batch = next(stream.iter_batches(stream.schema, 256))
    >>> batch.numerical.shape, batch.categorical.shape, stream.position()
    ((256, 10), (256, 20), {'row': 256, 'batch': 1})
    >>> stream.table(0, 3).column("category").to_pylist() == stream.table(1, 3, ["category"])["category"].to_pylist()
    False
    >>> bool((stream.click_probability(10, 20) == AdStream(seed=1).click_probability(0, 30)[10:20]).all())
    True
    """

    def __init__(
        self,
        num_rows: int | None = 1_000_000,
        seed: int = 0,
        *,
        world: int = 0,
        drift: str | Drift = "daily+slow+abrupt+churn",
        base_rate: float = 0.1,
        signal: Mapping[str, float] | None = None,
        numerical: float = 1.0,
        categorical: float = 0.7,
        interactions: float = 0.4,
        missing: float = 0.15,
        rank_law: str = "current",
        context_strength: float = 1.0,
        users: int = 100_000,
        rows_per_day: int = 100_000,
        shard: tuple[int, int] = (0, 1),
        block: int = 16_384,
    ) -> None:
        self.num_rows = None if num_rows is None else _integer("num_rows", num_rows, 0)
        self.seed = _integer("seed", seed, 0)
        self.world = _integer("world", world, 0)
        self.drift = Drift.parse(drift) if isinstance(drift, str) else drift
        if not 0 <= context_strength < np.inf:
            raise ValueError(f"context_strength must be finite and not negative, however: {context_strength=}")
        self.shard = _check_shard(shard)
        self._block_rows = _integer("block", block, 1)
        self.signal = Signal(
            proportions=PROPORTIONS if signal is None else signal,
            numerical=numerical,
            categorical=categorical,
            interactions=interactions,
            missing=missing,
            base_rate=base_rate,
            rank_law=rank_law,
        )
        self._clock = Clock(_integer("rows_per_day", rows_per_day, 1), self.drift.daily > 0)
        self._generator = FeatureGenerator(self.world, self.drift, _integer("users", users, 1), context_strength)
        self.truth = Truth(self._generator, self.signal, self.world)
        self.laws = self._generator.laws
        self._draws = Draws(self.seed)
        self._vocabularies = {name: Vocabulary(field) for name, field in self._generator.fields.items()}
        self._cache: _Block | None = None
        self._row = self._batch = 0

    @property
    def schema(self) -> Schema:
        """All fields."""
        return Schema(LABEL, tuple(self.laws), tuple(self._generator.fields), time=TIME)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns of `table`."""
        return self.schema.columns

    def features(self, start: int, stop: int) -> Features:
        """Rows start … stop − 1 before they are clicked, as codes and numbers (read-only)."""
        return Features.concat([block.features[rows] for block, rows in self._blocks(start, stop)])

    def click_probability(self, start: int, stop: int) -> NDArray[np.float64]:
        """The true P(click) of rows start … stop − 1. **Shape**: (stop − start,)."""
        return np.concatenate([block.probability[rows] for block, rows in self._blocks(start, stop)])

    def labels(self, start: int, stop: int) -> NDArray[np.float32]:
        """Clicks of rows start … stop − 1, 0 or 1. **Shape**: (stop − start,)."""
        uniform = self._draws.uniform("click", start, stop - start)
        return (uniform < self.click_probability(start, stop)).astype(np.float32)

    def candidates(self, start: int, stop: int, count: int) -> list[Features]:
        """For each row's request, `count` ads that might be shown: the one of the row itself first.

        `truth.probability` of each gives the true probability that this request clicks on that ad. Candidate k of a row
        is the same whatever `count` is.

        **Shape**: a list of `count` Features of stop − start rows.

        >>> stream = AdStream(1000)
        >>> shown, other = stream.candidates(0, 5, 2)
        >>> bool((shown.codes["user"] == other.codes["user"]).all()), len(stream.truth.probability(other))
        (True, 5)
        """
        _integer("count", count, 1)
        shown = self.features(start, stop)
        others = [
            self._generator.draw(self._draws, start, shown.time, request=shown, prefix=f"candidate{k}/")
            for k in range(1, count)
        ]
        return [shown, *others]

    def numbers(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """One numerical column alone, made without the others. **Shape**: (stop − start,)."""
        if name not in self.laws:
            raise ValueError(no_such_column(name, self.laws))
        spans = self._spans(start, stop)
        return np.concatenate([self._draw(number, [name]).numerical[name][rows] for number, rows in spans])

    def table(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Rows start … stop − 1 as a pyarrow Table: text, numbers (counts as integers), null where missing.

        Args:
            start, stop: rows.
            columns: names, in order; all if None.
        """
        pa = require("pyarrow")
        features = self.features(start, stop)
        arrays = {name: self._arrow(name, features, start) for name in (self.columns if columns is None else columns)}
        return pa.table(arrays)

    def batch(self, start: int, stop: int, schema: Schema | None = None) -> Batch:
        """Rows start … stop − 1 as a Batch; the same as `batch_from_table(table(start, stop), schema)`, and faster."""
        schema = schema or self.schema
        if not self._is_native(schema):
            return batch_from_table(self.table(start, stop, schema.columns), schema)
        features = self.features(start, stop)
        numerical = np.empty((stop - start, schema.num_numerical), dtype=np.float32)
        for column, name in enumerate(schema.numerical):
            numerical[:, column] = features.numerical[name]
        categorical = np.empty((stop - start, schema.num_categorical), dtype=np.int64)
        for column, name in enumerate(schema.categorical):
            categorical[:, column] = self._vocabularies[name].hashes(features.codes[name])
        return Batch(
            numerical,
            categorical,
            label=None if schema.label is None else self.labels(start, stop),
            time=None if schema.time is None else features.time.copy(),
        )

    def bayes_metrics(self, start: int = 0, stop: int | None = None) -> BayesMetrics:
        """What the true probabilities score on rows start … stop − 1 (to the end if None): no model can do better.

        Holds 12 bytes a row in memory.
        """
        stop = self._end(stop)
        return bayes_metrics(self.click_probability(start, stop), self.labels(start, stop))

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """This shard's batches from `position()` on; the last may be shorter."""
        for start, stop in self._spans_of_shard(batch_size):
            yield self.batch(start, stop, schema)

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        """The same rows as pyarrow Tables of the columns named, all if None."""
        for start, stop in self._spans_of_shard(batch_size):
            yield self.table(start, stop, columns)

    def position(self) -> dict[str, int | str]:
        """The next row not yet handed out, and the number of the batch that begins there."""
        return {"row": self._row, "batch": self._batch}

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go on where `position()` was taken; costs nothing, however far it is."""
        if set(position) != {"row", "batch"}:
            raise ValueError(f'position must have the keys "row" and "batch", however: {position=}')
        row, batch = (_integer(f"position[{key!r}]", position[key], 0) for key in ("row", "batch"))
        if self.num_rows is not None and row > self.num_rows:
            raise ValueError(f"position must lie within the stream's {self.num_rows} rows, however: {position=}")
        self._row, self._batch = row, batch

    def _spans_of_shard(self, batch_size: int) -> Iterator[tuple[int, int]]:
        """Row ranges of this shard's batches; the position moves on before a batch is handed out."""
        _integer("batch_size", batch_size, 1)
        rank, size = self.shard
        while self.num_rows is None or self._row < self.num_rows:
            start, number = self._row, self._batch
            stop = start + batch_size if self.num_rows is None else min(start + batch_size, self.num_rows)
            self._row, self._batch = stop, number + 1
            if number % size == rank:
                yield start, stop

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, slice]]:
        """Number of every block that rows start … stop − 1 lie in, and where in it they lie."""
        self._check_range(start, stop)
        first_block, last_block = start // self._block_rows, max(start, stop - 1) // self._block_rows
        for number in range(first_block, last_block + 1):  # one block at least, so that no rows have columns too
            first = number * self._block_rows
            yield number, slice(max(start - first, 0), min(stop - first, self._block_rows))

    def _blocks(self, start: int, stop: int) -> Iterator[tuple["_Block", slice]]:
        for number, rows in self._spans(start, stop):
            # Always whole blocks: their arrays have the same length however they are read, hence the same rounding.
            if self._cache is None or self._cache.number != number:
                self._cache = _Block(number, self._draw(number).freeze(), self.truth)
            yield self._cache, rows

    def _draw(self, number: int, names: Sequence[str] | None = None) -> Features:
        first = number * self._block_rows
        time = self._clock.time(np.arange(first, first + self._block_rows))
        return self._generator.draw(self._draws, first, time, names=names)

    def _arrow(self, name: str, features: Features, start: int) -> Any:
        """One column of a table."""
        pa = require("pyarrow")
        if name in features.codes:
            return self._vocabularies[name].texts(features.codes[name])
        if name in features.numerical:
            values = features.numerical[name]
            missing = np.isnan(values)
            if self.laws[name].is_integer:
                values = np.where(missing, 0, values).astype(np.int32)
            return pa.array(values, mask=missing)
        if name == LABEL:
            return pa.array(self.labels(start, start + len(features)).astype(np.int8))
        if name == TIME:
            return pa.array(features.time, type=pa.timestamp("ns"))
        raise ValueError(no_such_column(name, self.columns))

    def _is_native(self, schema: Schema) -> bool:
        """Whether the schema gives every field the part it has here, so that no table is needed."""
        return (
            schema.label in (LABEL, None)
            and schema.time in (TIME, None)
            and schema.weight is None
            and set(schema.numerical) <= set(self.laws)
            and set(schema.categorical) <= set(self._vocabularies)
        )

    def _end(self, stop: int | None) -> int:
        if stop is not None:
            return stop
        if self.num_rows is None:
            raise ValueError("stop must be given, because the stream is endless, however: stop=None")
        return self.num_rows

    def _check_range(self, start: int, stop: int) -> None:
        ordered = 0 <= _integer("start", start) <= _integer("stop", stop)
        if not ordered or (self.num_rows is not None and stop > self.num_rows):
            end = "" if self.num_rows is None else f" ≤ {self.num_rows}"
            raise ValueError(f"rows must be 0 ≤ start ≤ stop{end}, however: {start=}, {stop=}")


class _Block:
    """A block of rows; their probabilities are computed when first asked for."""

    def __init__(self, number: int, features: Features, truth: Truth) -> None:
        self.number, self.features, self._truth = number, features, truth

    @cached_property
    def probability(self) -> NDArray[np.float64]:
        probability = self._truth.probability(self.features)
        probability.flags.writeable = False
        return probability


def _integer(name: str, value: Any, least: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, however: {name}={value!r}") from error
    if least is not None and number < least:
        expected = "positive" if least == 1 else "not negative"
        raise ValueError(f"{name} must be {expected}, however: {name}={number}")
    return number


def _check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    try:
        rank, size = (_integer("shard", number) for number in shard)
    except (TypeError, ValueError) as error:
        raise ValueError(f"shard must be a pair (rank, world size), however: {shard=}") from error
    if not 0 <= rank < size:
        raise ValueError(f"shard must have 0 ≤ rank < world size, however: {shard=}")
    return rank, size
