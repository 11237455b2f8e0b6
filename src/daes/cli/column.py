"""One column of numbers in batches: of a file, or generated."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.choices import did_you_mean
from daes.stream.arrow import pa
from daes.stream.batch import numbers_from_table
from daes.stream.csv import CsvSource
from daes.stream.dataset import Dataset
from daes.stream.files import COMPRESSIONS
from daes.stream.schema import Schema, column_kind

_LISTED = 20


@dataclass
class NumberColumn:
    """A column of numbers of anything that `daes.stream` opens, and how messages call it."""

    data: Dataset
    name: str
    description: str

    def expected_rows(self) -> int | None:
        """The number of rows, estimated from those read so far for a plain CSV file; None where unknown."""
        if self.data.num_rows is not None:
            return self.data.num_rows
        position = self.data.position()
        paths: tuple[str, ...] = getattr(self.data.source, "paths", ())
        read, rows = int(position.get("offset", 0)), int(position.get("offset_row", 0))
        if not (read and rows) or len(paths) != 1 or Path(paths[0]).suffix.lower() in COMPRESSIONS:
            return None
        try:
            return round(rows * Path(paths[0]).stat().st_size / read)
        except OSError:  # not a local file
            return None

    def batches(self, batch_size: int) -> Iterator[NDArray[np.float64]]:
        """The values as float64, NaN where missing; one pass."""
        for table in self.data.iter_tables([self.name], batch_size):
            yield numbers_from_table(table, [self.name])[:, 0]


def generated_column(num_rows: int = 2_000_000, seed: int = 0) -> NumberColumn:
    """A generated stream with the problems of real ones: skewed, drifting, many zeros, missing values.

    Value t of n is missing with probability 5 %, else zero with probability 30 %, else lognormal: exp(2t/n + N(0, 1)).
    """
    # Not the random numbers that the reservoirs draw with the same seed.
    rng = np.random.default_rng((num_rows, seed))
    values = np.exp(2 * np.arange(num_rows) / num_rows + rng.standard_normal(num_rows))
    values[rng.random(num_rows) < 0.30] = 0.0
    values[rng.random(num_rows) < 0.05] = np.nan
    description = (
        "a generated stream (no FILE was given): lognormal, its median growing from 1 to 7.4, 30 % zeros, 5 % missing"
    )
    return NumberColumn(_numbers_of(pa.table({"value": values}), "value"), "value", description)


def open_column(where: str, name: str | None) -> NumberColumn:
    """Find the column; an error lists the columns of numbers."""
    data = _numbers_of(where, name or "?")
    columns = data.arrow_schema
    numbers = _columns_of_numbers(columns)
    more = f", … ({len(numbers)} in all)" if len(numbers) > _LISTED else ""
    listed = f"its columns of numbers are: {', '.join(numbers[:_LISTED])}{more}"
    choice = listed if numbers else "it has no column of numbers"
    if name is None:
        if len(numbers) != 1:
            raise ValueError(f"--column must name one column of {where}: {choice}")
        (name,) = numbers
        data = data.with_schema(Schema(None, (name,), ()))
    if name not in columns.names:
        raise ValueError(
            f"--column must be a column of {where}, got {name!r}{did_you_mean(name, columns.names)}; {choice}"
        )
    if columns.names.count(name) > 1:
        raise ValueError(f"column names must be unique; {name!r} occurs twice")
    if name not in numbers:
        # One bad row makes a CSV column of numbers look like text: it is the wrong column only if it starts with text.
        text = _first_text(data, name) if isinstance(data.source, CsvSource) else None
        if text is None or not _is_number(text):
            holds = f"is of type {columns.field(name).type}" if text is None else f"starts with {text!r}"
            raise ValueError(f"--column must hold numbers; {name!r} of {where} {holds}; {choice}")
    return NumberColumn(data, name, f"column {name!r} of {where}")


def open_numbers(where: str, name: str | None) -> Dataset:
    """A dataset of all columns of numbers, or of the one that is named."""
    if name is not None:
        return open_column(where, name).data
    data = _numbers_of(where, "?")
    names = _columns_of_numbers(data.arrow_schema)
    if not names:
        raise ValueError(f"{where} must have a column of numbers; its columns are {', '.join(data.arrow_schema.names)}")
    return data.with_schema(Schema(None, tuple(names), ()))


def _numbers_of(what: Any, name: str) -> Dataset:
    """A dataset of one column, which a CSV source then reads as numbers, whatever its first rows look like.

    Any name will do to find out what columns there are.
    """
    return Dataset.open(what, schema=Schema(None, (name,), ()))


def _columns_of_numbers(columns: Any) -> list[str]:
    """The names of the columns of an Arrow schema that can be read as numbers."""

    def is_numeric(kind: Any) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.types.is_boolean(kind) or column_kind(kind) in ("numerical", "null")

    return [column.name for column in columns if is_numeric(column.type)]


def _first_text(data: Dataset, name: str) -> str | None:
    for table in data.with_schema(Schema(None, (), (name,))).iter_tables([name], 1000):
        for value in table.column(0).drop_null():
            return str(value)
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
