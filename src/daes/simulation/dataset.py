"""The simulated ad stream as a dataset."""

from typing import Any

from daes.simulation import AdStream
from daes.stream.dataset import Dataset


def open_adstream(num_rows: int = 1_000_000, *, shard: tuple[int, int] | None = None, **options: Any) -> Dataset:
    """Open the simulated ad stream.

    Args:
        num_rows: its length.
        shard: `(rank, world)` of a distributed reader.
        options: as of `AdStream` (seed, drift, base_rate, signal, ...).

    >>> open_adstream(1000, seed=3).num_rows
    1000
    """
    source = AdStream(num_rows, shard=shard, **options)
    return Dataset(source, source.schema, name="adstream", notes=["the rows are simulated"])
