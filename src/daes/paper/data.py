"""The data sets of the experiments, by the names that `daes.stream.open` knows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.extras import require
from daes.stream.adstream import AdStream
from daes.stream.opening import open as open_stream
from daes.stream.source import Stream

Floats = NDArray[np.float64]

_TITLES = {
    "criteo": "Criteo",
    "automl": "AutoML",
    "adstream": "Simulated ad stream",
    "flights": "Flights",
}


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
        kind, colon, path = self.spec.partition(":")
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
                f"however: {self.spec}"
            )
        return stream

    def length(self, rows: int | None) -> int | None:
        """How many rows there are, at most `rows`; None where that means reading them."""
        known = self.open().source.num_rows
        return known if rows is None else rows if known is None else min(known, rows)

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
        }


def column(data: DataSet, name: str, rows: int | None, **options: Any) -> Floats:
    """One numerical column, NaN where missing."""
    return np.concatenate([np.empty(0), *column_batches(data, name, rows, 1 << 16, **options)])


def column_batches(data: DataSet, name: str, rows: int | None, batch_size: int, **options: Any) -> Iterator[Floats]:
    """The same in batches."""
    stream = data.open(**options)
    assert stream.schema is not None
    if name not in stream.schema.numerical:
        raise ValueError(f"{data.name} must have the numerical column, however: {name!r} is not among its columns")
    left = rows
    for batch in _batches(stream, name, batch_size):
        if left is not None:
            batch = batch[:left]
            left -= batch.size
        yield batch
        if left == 0:
            return


def _batches(stream: Stream, name: str, batch_size: int) -> Iterator[Floats]:
    source = stream.source
    if isinstance(source, AdStream) and source.num_rows is not None:
        for start in range(0, source.num_rows, batch_size):  # a column by itself is made ten times as fast
            yield source.numbers(name, start, min(start + batch_size, source.num_rows)).astype(np.float64)
        return
    float64 = require("pyarrow").float64()
    for table in source.iter_tables([name], batch_size):
        yield table.column(0).cast(float64, safe=False).to_numpy()
