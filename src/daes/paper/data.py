"""The data sets of the experiments: their names, descriptions and columns."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.simulation import AdStream
from daes.stream.arrow import pa
from daes.stream.dataset import Dataset
from daes.stream.datasets import DATASETS, find_entry

Floats = NDArray[np.float64]

_CRITEO_DAYS = 7
_DAY = 86_400e9  # nanoseconds


def name_in(spec: str) -> str:
    """The name in `criteo:PATH`, `automl:PATH`, `adstream[:ROWS]` or `flights`."""
    return spec.partition(":")[0]


def open_dataset(spec: str) -> Dataset:
    """A named data set; other data are an error."""
    if find_entry(spec) is None:
        usages = ", ".join(entry.usage for entry in DATASETS.values())
        raise ValueError(f"data must be a dataset whose schema is known ({usages}), got {spec}")
    return Dataset.open(spec)


def without_folders(spec: str) -> str:
    """A data set as it was named, without the folders of this machine.

    >>> without_folders("criteo:/data/criteo/train.txt"), without_folders("adstream:5000")
    ('criteo:train.txt', 'adstream:5000')
    """
    name, colon, path = spec.partition(":")
    return f"{name}:{PurePath(path).name}" if colon else name


def describe(data: Dataset) -> dict[str, Any]:
    """The description of the data in a result."""
    entry = DATASETS[name_in(data.name)]
    return {
        "name": entry.name,
        "source": without_folders(data.what),
        "title": entry.title,
        "simulated": entry.simulated,
        "rows": data.count_rows(),
        "numerical": data.schema.num_numerical,
        "categorical": data.schema.num_categorical,
        "notes": list(data.notes),
        "fingerprint": data.fingerprint()[:16],
    }


def columns(data: Dataset, names: Sequence[str]) -> dict[str, Floats]:
    """Numerical columns, NaN where missing."""
    if isinstance(data.source, AdStream):  # ten times as fast as generating all columns
        return {name: data.source.numbers(name, 0, data.count_rows()).astype(np.float64) for name in names}
    tables = list(data.from_start().iter_tables(list(names), 1 << 16))
    return {
        name: np.concatenate(
            [np.empty(0), *(table[name].cast(pa.float64(), safe=False).to_numpy() for table in tables)]
        )
        for name in names
    }


def days(data: Dataset) -> float | None:
    """The number of days that the rows span; None if it is not known."""
    rows = data.count_rows()
    if data.name == "criteo":
        whole = data.source.num_rows
        return _CRITEO_DAYS * rows / whole if whole else None
    time = data.schema.time
    if time is None or not pa.types.is_timestamp(data.arrow_schema.field(time).type):
        return None
    schema = replace(data.schema, label=None, numerical=data.schema.numerical[:1], categorical=())
    source = data.from_start()
    ends = []
    for row in (0, rows - 1):
        source.seek({"row": row})
        times = next(source.iter_batches(schema, 1)).time
        assert times is not None
        ends.append(int(times[0]))
    return (ends[1] - ends[0]) / _DAY
