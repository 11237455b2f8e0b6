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

Floats = NDArray[np.float64]
_LISTED = 20


@dataclass
class FileColumn:
    """A column of a Parquet or CSV file, or of any other source that `daes.stream` opens."""

    data: Dataset
    name: str
    where: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data before they were read."""
        return self.data.notes

    @property
    def description(self) -> str:
        """The column, as the user named it."""
        return f"column {self.name!r} of {self.where}"

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

    def batches(self, batch_size: int) -> Iterator[Floats]:
        """The values as float64, NaN where missing; one pass."""
        for table in self.data.iter_tables([self.name], batch_size):
            yield numbers_from_table(table, [self.name])[:, 0]


@dataclass
class GeneratedColumn:
    """A generated stream with the problems of real ones: skewed, drifting, many zeros, missing values.

    Value t of n is missing with probability 5 %, else zero with probability 30 %, else lognormal: exp(2t/n + N(0, 1)).
    The values do not depend on the batch size.
    """

    num_rows: int = 2_000_000
    seed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        return (
            "a generated stream (no FILE was given): lognormal, its median growing from 1 to 7.4, "
            "30 % zeros, 5 % missing"
        )

    def expected_rows(self) -> int | None:
        return self.num_rows

    def batches(self, batch_size: int) -> Iterator[Floats]:
        """The values, NaN where missing."""
        # Not the random numbers that the reservoirs draw with the same seed.
        rng = np.random.default_rng((self.num_rows, self.seed))
        values = np.exp(2 * np.arange(self.num_rows) / self.num_rows + rng.standard_normal(self.num_rows))
        values[rng.random(self.num_rows) < 0.30] = 0.0
        values[rng.random(self.num_rows) < 0.05] = np.nan
        for start in range(0, self.num_rows, batch_size):
            yield values[start : start + batch_size]


def open_column(where: str, name: str | None) -> FileColumn:
    """Find the column; an error lists the columns of numbers."""
    # The schema makes a CSV source read the column as numbers, whatever its first rows look like. To find the only
    # column of numbers, where none is named, any schema will do.
    data = Dataset.open(where, schema=Schema(None, (name or "?",), ()))
    columns = data.arrow_schema
    choice = _columns_of_numbers(columns)
    if name is None:
        names = _names_of_numbers(columns)
        if len(names) != 1:
            raise ValueError(f"--column must name one column of {where}: {choice}")
        name = names[0]
        data = data.with_schema(Schema(None, (name,), ()))
    if name not in columns.names:
        raise ValueError(
            f"--column must be a column of {where}, got {name!r}{did_you_mean(name, columns.names)}; {choice}"
        )
    if columns.names.count(name) > 1:
        raise ValueError(f"column names must be unique; {name!r} occurs twice")
    found = columns.field(name).type
    if not is_numeric(found):
        # One bad row makes a CSV column of numbers look like text: it is the wrong column only if it starts with text.
        text = _first_text(data, name) if isinstance(data.source, CsvSource) else None
        if text is None or not _is_number(text):
            holds = f"is of type {found}" if text is None else f"starts with {text!r}"
            raise ValueError(f"--column must hold numbers; {name!r} of {where} {holds}; {choice}")
    return FileColumn(data, name, where)


def open_numbers(where: str, name: str | None) -> Dataset:
    """A dataset of all columns of numbers, or of the one that is named."""
    if name is not None:
        return open_column(where, name).data
    data = Dataset.open(where, schema=Schema(None, ("?",), ()))
    names = _names_of_numbers(data.arrow_schema)
    if not names:
        raise ValueError(f"{where} must have a column of numbers; its columns are {', '.join(data.arrow_schema.names)}")
    return data.with_schema(Schema(None, tuple(names), ()))


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


def is_numeric(arrow_type: Any) -> bool:
    """Whether a column of this type can be read as numbers."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return pa.types.is_boolean(arrow_type) or column_kind(arrow_type) in ("numerical", "null")


def _names_of_numbers(columns: Any) -> list[str]:
    return [column.name for column in columns if is_numeric(column.type)]


def _columns_of_numbers(columns: Any) -> str:
    names = _names_of_numbers(columns)
    if not names:
        return "it has no column of numbers"
    more = f", … ({len(names)} in all)" if len(names) > _LISTED else ""
    return f"its columns of numbers are: {', '.join(names[:_LISTED])}{more}"
