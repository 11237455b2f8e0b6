"""The simulated ad stream: rows by number, and a source of batches."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.simulation.draws import Array, Draws
from daes.simulation.drift import Clock, LawDrift
from daes.simulation.features import FeatureGenerator, Features
from daes.simulation.fields import Vocabulary
from daes.simulation.truth import BayesMetrics, Signal, Truth, bayes_metrics
from daes.stream.arrow import pa
from daes.stream.batch import Batch, batch_from_table
from daes.stream.cursor import Cursor, NumberedCursor, Position, check_columns
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.stream.source import NumberedSource

LABEL, TIME = "click", "time"
_BLOCK = 16_384


class AdStream(NumberedSource):
    """A simulated ad stream of 20 categorical and 10 numerical fields whose true click probabilities are known.

    Heavy tails, zero-inflated counts, integers with ties, missing values, daily cycles, slow and abrupt drift,
    numerical laws that depend on a category, Zipf-distributed ids with new ones appearing: `catalogue` lists the
    fields, `drift` says how laws drift, `truth` what determines a click. A row depends on `world`, `seed`, its number
    and the arguments that shape the stream, but not on how it is read: not on `num_rows`, batch size, shard or where
    reading began.

    Args:
        num_rows: length of the stream; None for an endless one.
        seed: of the rows.
        world: of the laws' parameters, curves and effects; two streams of one world follow one truth.
        drift: how the laws drift; by default `LawDrift()`, in every way.
        signal: what determines a click, and how strongly; by default `Signal()`.
        users: number of users at any time.
        rows_per_day: rows in a simulated day.

    >>> stream = AdStream(1000, seed=1)
    >>> batch = next(stream.iter_batches(stream.schema, 256))
    >>> batch.numerical.shape, batch.categorical.shape, stream.position()
    ((256, 10), (256, 20), {'row': 256, 'batch': 1})
    >>> stream.table(0, 3).column("category").to_pylist() == stream.table(1, 3, ["category"])["category"].to_pylist()
    False
    >>> bool((stream.click_probability(10, 20) == AdStream(seed=1).click_probability(0, 30)[10:20]).all())
    True
    """

    _rows_at_once = _BLOCK

    def __init__(
        self,
        num_rows: int | None = 1_000_000,
        seed: int = 0,
        *,
        world: int = 0,
        drift: LawDrift | None = None,
        signal: Signal | None = None,
        users: int = 100_000,
        rows_per_day: int = 100_000,
    ) -> None:
        super().__init__()
        self._num_rows = None if num_rows is None else _integer("num_rows", num_rows, 0)
        self.seed = _integer("seed", seed, 0)
        self.world = _integer("world", world, 0)
        self.drift = LawDrift() if drift is None else drift
        self.signal = Signal() if signal is None else signal
        if not isinstance(self.drift, LawDrift):
            raise TypeError(f"drift must be a LawDrift, got {drift!r}")
        if not isinstance(self.signal, Signal):
            raise TypeError(f"signal must be a Signal, got {signal!r}")
        self._clock = Clock(_integer("rows_per_day", rows_per_day, 1), self.drift.daily > 0)
        self._generator, self.truth = _make_world(self.world, self.drift, _integer("users", users, 1), self.signal)
        self.laws = self._generator.laws
        self._draws = Draws(self.seed)
        self._last_block: _Block | None = None
        self._vocabularies = {name: Vocabulary(field) for name, field in self._generator.fields.items()}

    @property
    def num_rows(self) -> int | None:
        """Length of the stream; None for an endless one."""
        return self._num_rows

    @property
    def schema(self) -> Schema:
        """All fields."""
        return Schema(LABEL, tuple(self.laws), tuple(self._vocabularies), time=TIME)

    @property
    def arrow_schema(self) -> Any:
        """Column names and types of `table` as a pyarrow Schema."""
        return self.table(0, 0).schema

    def features(self, start: int, stop: int) -> Features:
        """Rows start … stop − 1 without their clicks, as codes and numbers (read-only)."""
        return _features(self._blocks(start, stop))

    def click_probability(self, start: int, stop: int) -> Array:
        """The true P(click) of rows start … stop − 1. **Shape**: (stop − start,)."""
        return _probability(self._blocks(start, stop))

    def bayes_metrics(self, start: int = 0, stop: int | None = None) -> BayesMetrics:
        """What the true probabilities score on rows start … stop − 1 (None: to the end); no model can do better.

        Sorts the rows' probabilities, which takes about 100 bytes per row while it runs.
        """
        stop = self.num_rows if stop is None else stop
        if stop is None:
            raise ValueError("stop must be given if the stream is endless, got None")
        probability = self.click_probability(start, stop)
        return bayes_metrics(probability, self._clicks(start, probability))

    def numbers(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """One numerical column, made without the others, hence faster. **Shape**: (stop − start,)."""
        check_columns([name], list(self.laws))
        spans = self._spans(start, stop)
        return np.concatenate([self._draw(number, [name]).numerical[name][rows] for number, rows in spans])

    def candidates(self, start: int, stop: int, count: int) -> list[Features]:
        """For the request of each row, `count` ads that might be shown, the row's own ad first.

        `truth.probability` of each is the true probability that this request leads to a click on that ad. Candidate k
        of a row is the same whatever `count` is.

        **Shape**: a list of `count` Features of stop − start rows.

        >>> stream = AdStream(1000)
        >>> shown, other = stream.candidates(0, 5, 2)
        >>> bool((shown.codes["user"] == other.codes["user"]).all()), len(stream.truth.probability(other))
        (True, 5)
        """
        _integer("count", count, 1)
        shown = self.features(start, stop)
        others = (
            self._generator.draw(self._draws, start, shown.time, request=shown, prefix=f"candidate{k}/")
            for k in range(1, count)
        )
        return [shown, *others]

    def table(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Any:
        """Rows start … stop − 1 as a pyarrow Table: text, numbers (counts as integers), null where missing.

        Args:
            start, stop: rows.
            columns: names, in order; all if None.
        """
        names = self.schema.columns if columns is None else columns
        check_columns(names, self.schema.columns)
        blocks = list(self._blocks(start, stop))
        features = _features(blocks)

        def column(name: str) -> Any:
            if name == LABEL:
                return pa.array(self._clicks(start, _probability(blocks)).astype(np.int8))
            if name == TIME:
                return pa.array(features.time, type=pa.timestamp("ns"))
            if name in features.codes:
                return self._vocabularies[name].field.texts(features.codes[name])
            values = features.numerical[name]
            missing = np.isnan(values)
            if self.laws[name].spec.is_integer:
                return pa.array(np.where(missing, 0, values).astype(np.int32), mask=missing)
            return pa.array(values, mask=missing)

        return pa.table({name: column(name) for name in names})

    def batch(self, start: int, stop: int, schema: Schema | None = None) -> Batch:
        """Rows start … stop − 1 as a Batch; equal to `batch_from_table(table(start, stop), schema)`, and faster."""
        schema = schema or self.schema
        if not self._is_native(schema):
            return batch_from_table(self.table(start, stop, schema.columns), schema)
        blocks = list(self._blocks(start, stop))
        label = None if schema.label is None else self._clicks(start, _probability(blocks))
        return self.to_batch(_features(blocks), schema, label)

    def to_batch(
        self, features: Features, schema: Schema | None = None, label: NDArray[np.float32] | None = None
    ) -> Batch:
        """Features, such as those of `candidates`, as a Batch of the columns of a schema of this stream."""
        schema = schema or self.schema
        numerical = np.empty((len(features), schema.num_numerical), dtype=np.float32)
        for column, name in enumerate(schema.numerical):
            numerical[:, column] = features.numerical[name]
        categorical = np.empty((len(features), schema.num_categorical), dtype=np.int64)
        for column, name in enumerate(schema.categorical):
            categorical[:, column] = self._vocabularies[name].hashes(features.codes[name])
        return Batch(numerical, categorical, label, time=None if schema.time is None else features.time.copy())

    def _check_columns(self, columns: Sequence[str]) -> None:
        check_columns(columns, self.schema.columns)

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        def make(start: int, stop: int) -> Any:
            return self.table(start, stop, columns) if schema is None else self.batch(start, stop, schema)

        return NumberedCursor(make, self.num_rows)

    def _clicks(self, start: int, probability: Array) -> NDArray[np.float32]:
        """0 or 1 for each of the rows from `start` on, given their P(click)."""
        return (self._draws.uniform("click", start, len(probability)) < probability).astype(np.float32)

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, slice]]:
        """The number of every block that contains some of rows start … stop − 1, and where in it; at least one block.

        Rows are computed in whole blocks that start at fixed rows: the arrays of the computation have the same length
        for every range, so that even the rounding is the same.
        """
        ordered = 0 <= _integer("start", start) <= _integer("stop", stop)
        if not ordered or (self.num_rows is not None and stop > self.num_rows):
            end = "" if self.num_rows is None else f" ≤ {self.num_rows}"
            raise ValueError(f"rows must be 0 ≤ start ≤ stop{end}, got start={start!r}, stop={stop!r}")
        for number in range(start // _BLOCK, max(start, stop - 1) // _BLOCK + 1):
            first = number * _BLOCK
            yield number, slice(max(start - first, 0), min(stop - first, _BLOCK))

    def _blocks(self, start: int, stop: int) -> Iterator[tuple["_Block", slice]]:
        for number, rows in self._spans(start, stop):
            if self._last_block is None or self._last_block.number != number:
                self._last_block = _Block(number, self._draw(number).freeze(), self.truth)
            yield self._last_block, rows

    def _draw(self, number: int, names: list[str] | None = None) -> Features:
        first = number * _BLOCK
        time = self._clock.time(np.arange(first, first + _BLOCK))
        return self._generator.draw(self._draws, first, time, names=names)

    def _is_native(self, schema: Schema) -> bool:
        """Whether every field has the same role in the schema as here, so that no table is needed."""
        return (
            schema.label in (LABEL, None)
            and schema.time in (TIME, None)
            and schema.weight is None
            and set(schema.numerical) <= self.laws.keys()
            and set(schema.categorical) <= self._vocabularies.keys()
        )


class _Block:
    """A block of rows; their probabilities are computed on first use."""

    def __init__(self, number: int, features: Features, truth: Truth) -> None:
        self.number, self.features, self._truth = number, features, truth

    @cached_property
    def probability(self) -> Array:
        return self._truth.probability(self.features)


def _features(blocks: Iterable[tuple[_Block, slice]]) -> Features:
    return Features.concat([block.features[rows] for block, rows in blocks])


def _probability(blocks: Iterable[tuple[_Block, slice]]) -> Array:
    return np.concatenate([block.probability[rows] for block, rows in blocks])


def open_adstream(num_rows: int = 1_000_000, **options: Any) -> Dataset:
    """The simulated ad stream as a dataset; options are those of `AdStream`."""
    source = AdStream(num_rows, **options)
    return Dataset(source, source.schema, name="adstream", notes=["the rows are simulated"])


@lru_cache(maxsize=4)
def _make_world(world: int, drift: LawDrift, users: int, signal: Signal) -> tuple[FeatureGenerator, Truth]:
    """What streams that differ only in seed, length and shard share; neither ever changes."""
    generator = FeatureGenerator(world, drift, users)
    return generator, Truth(generator, signal, world)


def _integer(name: str, value: Any, least: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {value!r}") from error
    if least is not None and number < least:
        expected = "positive" if least == 1 else "non-negative"
        raise ValueError(f"{name} must be {expected}, got {number}")
    return number
