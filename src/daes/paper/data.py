"""The data sets of the experiments, by the names that `daes.stream.open` knows."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.extras import require
from daes.simulation import AdStream
from daes.stream.opening import open as open_stream
from daes.stream.source import Stream

Floats = NDArray[np.float64]

_TITLES = {
    "criteo": "Criteo",
    "automl": "AutoML",
    "adstream": "Simulated ad stream",
    "flights": "Flights",
}


_CRITEO_DAYS = 7
_DAY = 86_400e9  # nanoseconds


@dataclass(frozen=True)
class DataSet:
    """A data set by its name, as `criteo:PATH`, `automl:PATH`, `adstream[:ROWS]` or `flights`.

    >>> data = DataSet("criteo:/data/criteo/train.txt")
    >>> data.name, data.title, data.simulated, data.shown
    ('criteo', 'Criteo', False, 'criteo:train.txt')
    >>> DataSet("adstream:5000").length(None), DataSet("adstream:5000").length(300)
    (5000, 300)
    """

    spec: str

    @property
    def name(self) -> str:
        """Short, for file names."""
        kind, _, path = self.spec.partition(":")
        return kind if kind in _TITLES else PurePath(path or kind).stem

    @property
    def title(self) -> str:
        """What readers see; a simulated stream says so."""
        return _TITLES.get(self.name, self.name)

    @property
    def simulated(self) -> bool:
        return self.name == "adstream"

    @property
    def shown(self) -> str:
        """As given, without the folders of this machine."""
        kind, colon, path = self.spec.partition(":")
        return f"{kind}:{PurePath(path).name}" if colon else PurePath(kind).name

    def open(self, **options: Any) -> Stream:
        """The stream from its start; its schema is known."""
        stream = open_stream(self.spec, **options)
        if stream.schema is None:
            raise ValueError(
                f"data must be a data set whose schema is known (criteo:PATH, automl:PATH, adstream[:ROWS], flights), "
                f"got {self.spec}"
            )
        return stream

    def length(self, rows: int | None) -> int:
        """How many rows there are, at most `rows`; where only reading them tells, they are read once a process."""
        known = self.open().source.num_rows
        if known is None:
            return _count(self.spec, rows)
        return known if rows is None else min(known, rows)

    def fingerprint(self, rows: int | None) -> str:
        """A hash of the columns, of the first rows and of how many there are: other data give another one."""
        from daes.experiments.trial import CellData
        from daes.training.data import Data

        schema = self.open().schema
        assert schema is not None
        known = f"{CellData(Data(self.spec, schema, max_rows=rows)).fingerprint()} {self.length(rows)}"
        return hashlib.sha256(known.encode()).hexdigest()[:16]

    def describe(self, rows: int | None = None) -> dict[str, Any]:
        """What a result says about its data."""
        stream = self.open()
        assert stream.schema is not None
        return {
            "name": self.name,
            "source": self.shown,
            "title": self.title,
            "simulated": self.simulated,
            "rows": self.length(rows),
            "numerical": stream.schema.num_numerical,
            "categorical": stream.schema.num_categorical,
            "notes": list(stream.notes),
            "fingerprint": self.fingerprint(rows),
        }


@cache
def _count(spec: str, limit: int | None) -> int:
    """How many rows there are, at most `limit`, found by reading one column."""
    stream = DataSet(spec).open()
    assert stream.schema is not None
    column = (*stream.schema.categorical, *stream.schema.columns)[0]  # as text, which any row has
    rows = 0
    for table in stream.source.iter_tables([column], 1 << 16):
        rows += table.num_rows
        if limit is not None and rows >= limit:
            return limit
    return rows


def columns(data: DataSet, names: Sequence[str], rows: int | None) -> dict[str, Floats]:
    """Numerical columns, NaN where missing; the first `rows` rows, or all."""
    stream = data.open()
    source = stream.source
    if isinstance(source, AdStream):  # a column by itself is made ten times as fast
        length = data.length(rows)
        return {name: source.numbers(name, 0, length).astype(np.float64) for name in names}
    pieces = list(_pieces(stream, names, rows, 1 << 16))
    return {name: np.concatenate([np.empty(0), *(piece[name] for piece in pieces)]) for name in names}


def column_batches(data: DataSet, name: str, rows: int | None, batch_size: int) -> Iterator[Floats]:
    """One numerical column in batches."""
    for piece in _pieces(data.open(), [name], rows, batch_size):
        yield piece[name]


def _pieces(stream: Stream, names: Sequence[str], rows: int | None, size: int) -> Iterator[dict[str, Floats]]:
    float64 = require("pyarrow").float64()
    left = rows
    for table in stream.source.iter_tables(list(names), size):
        piece = table if left is None else table.slice(0, left)
        yield {name: piece[name].cast(float64, safe=False).to_numpy() for name in names}
        left = None if left is None else left - piece.num_rows
        if left == 0:
            return


def days(data: DataSet, rows: int) -> float | None:
    """How many days the first rows span; None where that is not known."""
    stream = data.open()
    if data.name == "criteo":
        whole = stream.source.num_rows
        return _CRITEO_DAYS * rows / whole if whole else None
    assert stream.schema is not None
    time = stream.schema.time
    if time is None or not require("pyarrow").types.is_timestamp(stream.source.arrow_schema.field(time).type):
        return None
    schema = replace(stream.schema, label=None, numerical=stream.schema.numerical[:1], categorical=())
    ends = []
    for row in (0, rows - 1):
        stream.source.seek({"row": row})
        times = next(stream.source.iter_batches(schema, 1)).time
        assert times is not None
        ends.append(int(times[0]))
    return (ends[1] - ends[0]) / _DAY
