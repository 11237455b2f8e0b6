"""Rows as arrays: what a source passes to a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daes.stream.arrow import pa, pc
from daes.stream.category_text import category_text
from daes.stream.hashing import hash_column
from daes.stream.schema import Schema, is_text, no_such_column

_DTYPES = {
    "numerical": np.dtype(np.float32),
    "categorical": np.dtype(np.int64),
    "label": np.dtype(np.float32),
    "weight": np.dtype(np.float32),
    "time": np.dtype(np.int64),
    "key": np.dtype(np.int64),
    "sent": np.dtype(np.int64),
}


class BadValues(ValueError):
    """Values outside the domain of their column: a label of 2, a missing weight, …

    `reasons` says what is wrong with each bad row of the table, by its index; `advice`, which may be empty, what a user
    can do.
    """

    def __init__(self, message: str, reasons: Mapping[int, str], advice: str = "") -> None:
        super().__init__(message + advice)
        self.reasons, self.advice = dict(reasons), advice


@dataclass(frozen=True, eq=False)
class Batch:
    """B rows of a stream, columns in the schema's order.

    Args:
        numerical: (B, q) float32; NaN means missing, ±inf may occur.
        categorical: (B, p) int64, the hash of each category (`daes.stream.hashing`); 0 means missing.
        label: (B,) float32 of 0 and 1, or None.
        weight: (B,) float32, finite and non-negative, or None.
        time: (B,) int64 as stored, epoch nanoseconds if the column is a timestamp, or None.

    Slices, masks and index arrays select rows; a slice is a view.

    >>> batch = Batch(np.zeros((4, 2), np.float32), np.ones((4, 1), np.int64), np.ones(4, np.float32))
    >>> len(batch), len(batch[1:3]), len(Batch.concat([batch, batch]))
    (4, 2, 8)
    >>> Batch.concat([batch[:1], batch[1:]]).equals(batch)
    True
    """

    numerical: NDArray[np.float32]
    categorical: NDArray[np.int64]
    label: NDArray[np.float32] | None = None
    weight: NDArray[np.float32] | None = None
    time: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for name, array in self.arrays().items():
            matrix = name in ("numerical", "categorical")
            if not isinstance(array, np.ndarray) or array.dtype != _DTYPES[name] or array.ndim != (2 if matrix else 1):
                shape = "(B, columns)" if matrix else "(B,)"
                given = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise TypeError(f"{name} must be a {_DTYPES[name]} array of shape {shape}, got {given}")
            if len(array) != len(self.numerical):
                raise ValueError(f"{name} must have {len(self.numerical)} rows, as numerical has, got {len(array)}")

    def __len__(self) -> int:
        return len(self.numerical)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Self:
        if not isinstance(rows, slice | np.ndarray):
            raise TypeError(f"rows must be a slice or an array, got {rows!r}; for a single row use batch[i : i + 1]")
        picked = {name: array[rows] for name, array in self.arrays().items()}
        if not isinstance(rows, slice):
            return type(self)(**picked)
        made = object.__new__(type(self))  # a slice of rows that were checked is not checked again
        vars(made).update(vars(self), **picked)
        return made

    @classmethod
    def empty(cls, schema: Schema) -> Self:
        """No rows, of the schema's columns."""
        return cls(
            np.empty((0, schema.num_numerical), np.float32),
            np.empty((0, schema.num_categorical), np.int64),
            None if schema.label is None else np.empty(0, np.float32),
            None if schema.weight is None else np.empty(0, np.float32),
            None if schema.time is None else np.empty(0, np.int64),
        )

    @classmethod
    def concat(cls, batches: Sequence[Self]) -> Self:
        """The rows of all batches, in order, as one; the batches must have the same columns."""
        if not batches:
            raise ValueError("batches must not be empty")
        parts = [batch.arrays() for batch in batches]
        columns = [{name: array.shape[1:] for name, array in part.items()} for part in parts]
        for number, these in enumerate(columns):
            if these != columns[0]:
                raise ValueError(
                    f"batches must have the same columns; batch 0 has {columns[0]}, batch {number} has {these}"
                )
        return type(batches[0])(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def equals(self, other: Self) -> bool:
        """Whether both hold the same values; NaN equals NaN."""
        mine, theirs = self.arrays(), other.arrays()
        return mine.keys() == theirs.keys() and all(
            np.array_equal(mine[name], theirs[name], equal_nan=mine[name].dtype.kind == "f") for name in mine
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, except those that are None: `Batch(**batch.arrays())` is the same batch."""
        found = vars(self)
        return {
            name: array
            for name in self.__dataclass_fields__
            if (array := found[name]) is not None or name in ("numerical", "categorical")
        }


@dataclass(frozen=True, eq=False)
class KeyedBatch(Batch):
    """Rows whose labels arrive later, in other messages.

    Args:
        key: (B,) int64, the hash of the key by which the label is found.
        sent: (B,) int64, when the message was sent, epoch nanoseconds.
    """

    key: NDArray[np.int64] | None = None
    sent: NDArray[np.int64] | None = None


def batch_from_table(
    table: Any, schema: Schema, *, require_label: bool = True, label_map: Mapping[str, int] | None = None
) -> Batch:
    """Read the schema's columns from a pyarrow Table or RecordBatch.

    - numerical: integers, floats, decimals and booleans become float32; null becomes NaN, and a float64 beyond the
      range of float32 becomes ±inf.
    - categorical: the hash (`hash_column`) of the text that a value has in every format (`category_text`).
    - label: booleans or numbers, each 0 or 1 and none null; or with `label_map`, which maps the text of a value
      (`category_text`) to 0 or 1, the values that it lists. None if the schema names no label, or if the table has no
      such column and `require_label` is False.
    - weight: numbers, finite and non-negative, none null.
    - time: timestamps and dates become epoch nanoseconds, integers stay as they are; none null.

    A column that is missing or of another type, and a value outside its domain (`BadValues`), is an error that names
    the column and the row within the table. A table without rows gives an empty batch.

    >>> import pyarrow as pa
    >>> table = pa.table({"click": [0, 1], "price": [0.5, None], "city": ["Bern", None]})
    >>> batch = batch_from_table(table, Schema("click", ("price",), ("city",)))
    >>> batch.numerical.tolist(), batch.label.tolist()
    ([[0.5], [nan]], [0.0, 1.0])
    """
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise TypeError(f"table must be a pyarrow Table or RecordBatch, got {type(table).__name__}")
    rows = table.num_rows
    numerical = np.empty((rows, schema.num_numerical), dtype=np.float32)
    for position, name in enumerate(schema.numerical):
        _read_numbers(named_column(table, name), name, numerical[:, position])
    categorical = np.empty((rows, schema.num_categorical), dtype=np.int64)
    for position, name in enumerate(schema.categorical):
        try:
            categorical[:, position] = hash_column(category_text(named_column(table, name)))
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from error
    label = schema.label
    if label is not None and not require_label and label not in table.schema.names:
        label = None
    return Batch(
        numerical=numerical,
        categorical=categorical,
        label=None if label is None else _read_label(named_column(table, label), label, label_map),
        weight=None if schema.weight is None else _read_weight(named_column(table, schema.weight), schema.weight),
        time=None if schema.time is None else _read_time(named_column(table, schema.time), schema.time),
    )


def numbers_from_table(table: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """Numerical columns of a pyarrow Table or RecordBatch in double precision, (B, len(names)); NaN where null.

    >>> import pyarrow as pa
    >>> numbers_from_table(pa.table({"price": [0.5, None], "age": [30, 40]}), ["age", "price"])
    array([[30. ,  0.5],
           [40. ,  nan]])
    """
    values = np.empty((table.num_rows, len(names)), dtype=np.float64)
    for position, name in enumerate(names):
        _read_numbers(named_column(table, name), name, values[:, position])
    return values


def named_column(table: Any, name: str) -> Any:
    """The column of that name; raises unless there is exactly one."""
    found = table.schema.get_all_field_indices(name)
    if not found:
        raise ValueError(no_such_column([name], table.schema.names))
    if len(found) > 1:
        raise ValueError(f"column names must be unique; {name!r} occurs {len(found)} times")
    return table.column(found[0])


def _read_numbers(column: Any, name: str, out: NDArray[Any]) -> None:
    """Write a column of numbers into `out`, NaN where null."""
    types = pa.types
    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind) or types.is_boolean(kind) or types.is_null(kind):
        column, kind = column.cast(pa.float64()), pa.float64()
    if not (types.is_floating(kind) or types.is_integer(kind)):
        advice = "parse it, or list it as categorical" if is_text(kind) else "convert it"
        raise TypeError(f"column {name!r} must hold numbers; it is of type {kind}; {advice}")
    start = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        # Integers with nulls come as float64 with NaN, floats with nulls as floats with NaN.
        with np.errstate(over="ignore"):
            out[start : start + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
        start += len(chunk)


def _read_label(column: Any, name: str, label_map: Mapping[str, int] | None) -> NDArray[np.float32]:
    if label_map:
        known = category_text(pa.array(list(label_map), pa.string()))
        text = pc.cast(category_text(column), pa.string())
        found = np.asarray(pc.fill_null(pc.index_in(text, value_set=known, skip_nulls=True), -1))
        _refuse(found < 0, column, f"label column {name!r} must hold {' or '.join(map(repr, label_map))}")
        return np.take(np.array(list(label_map.values()), dtype=np.float32), found)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_text(kind):
        raise TypeError(
            f"label column {name!r} must hold numbers; it is of type {kind}; --label-map TEXT=1, in Python "
            "label_map, says what its texts mean"
        )
    values = _read_complete_numbers(column, name)
    advice = "; --label-map VALUE=1 or VALUE=0 for each value, in Python label_map, says what they mean"
    _refuse((values != 0) & (values != 1), column, f"label column {name!r} must hold 0 and 1 only", advice)
    return values.astype(np.float32)


def _read_weight(column: Any, name: str) -> NDArray[np.float32]:
    values = _read_complete_numbers(column, name)
    bad = ~((values >= 0) & (values <= np.finfo(np.float32).max))
    _refuse(bad, column, f"weight column {name!r} must hold finite numbers ≥ 0")
    return values.astype(np.float32)


def _refuse(bad: NDArray[np.bool_], column: Any, rule: str, advice: str = "") -> None:
    """Raise an error if there are bad values."""
    rows = np.flatnonzero(bad).tolist()
    if rows:
        values = {row: _shown(column[row]) for row in rows}
        reasons = {row: f"{rule}, got {value}" for row, value in values.items()}
        raise BadValues(f"{rule}; row {rows[0]} is {values[rows[0]]}", reasons, advice)


def _read_complete_numbers(column: Any, name: str) -> NDArray[np.float64]:
    """A column of numbers without nulls, in double precision: its domain is checked before it is rounded."""
    _refuse_nulls(column, name)
    values = np.empty(len(column), dtype=np.float64)
    _read_numbers(column, name, values)
    return values


def _read_time(column: Any, name: str) -> NDArray[np.int64]:
    types = pa.types
    _refuse_nulls(column, name)
    kind = column.type
    try:
        if types.is_date(kind) or (types.is_timestamp(kind) and kind.unit != "ns"):
            column = column.cast(pa.timestamp("ns"))
        elif types.is_integer(kind):
            column = column.cast(pa.int64())
        elif not types.is_timestamp(kind) and not types.is_null(kind):
            example = f", as {str(column[0].as_py())[:40]!r}; write all as 2024-01-31 10:00:00" if len(column) else ""
            raise TypeError(
                f"time column {name!r} must hold timestamps, dates or integers; it is of type {kind}{example}"
            )
    except pa.ArrowInvalid:
        _refuse(_beyond_64_bits(column), column, f"time column {name!r} must fit 64 bits, in nanoseconds if timestamps")
        raise
    values: NDArray[np.int64] = np.asarray(column.to_numpy()).astype(np.int64, copy=False)
    return values


def _beyond_64_bits(column: Any) -> NDArray[np.bool_]:
    """Which unsigned integers are too large as integers with a sign, or timestamps and dates in nanoseconds."""
    if pa.types.is_integer(column.type):
        return np.asarray(column) > np.iinfo(np.int64).max
    seconds = np.asarray(column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()))
    most = np.iinfo(np.int64).max // 10**9
    return (seconds < -most) | (seconds >= most)


def _shown(value: Any) -> str:
    """An Arrow scalar in messages."""
    try:
        found = value.as_py()
    except (OverflowError, ValueError):  # a time that Python has not
        return f"{value.value} ({value.type})"
    return "null" if found is None else repr(found)


def _refuse_nulls(column: Any, name: str) -> None:
    if column.null_count:
        advice = "; --bad-rows skip, in Python bad_rows='skip', leaves such rows out"
        _refuse(np.asarray(column.is_null()), column, f"column {name!r} must have a value in every row", advice)
