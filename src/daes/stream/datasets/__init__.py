"""The datasets that `daes.stream.open` knows by name, each with its schema.

>>> DATASETS["flights"].usage, DATASETS["criteo"].usage
('flights', 'criteo:PATH')
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from daes.stream.datasets.automl import open_automl
from daes.stream.datasets.criteo import open_criteo
from daes.stream.datasets.flights import open_flights
from daes.stream.source import Stream

__all__ = ["DATASETS", "DatasetInfo", "open_automl", "open_criteo", "open_flights"]


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset by name.

    Args:
        name: what `open` calls it.
        description: one sentence.
        open: makes the `Stream`; called with the path first where `needs_path`, then with options by keyword, of which
            every one takes `shard`.
        needs_path: whether the data are yours to bring, as in `criteo:PATH`.
        sized: whether the number of rows may be given, as in `adstream:200000`.
    """

    name: str
    description: str
    open: Callable[..., Stream]
    needs_path: bool = False
    sized: bool = False

    @property
    def usage(self) -> str:
        """How to write it: `flights`, `criteo:PATH`, `adstream[:ROWS]`."""
        return self.name + (":PATH" if self.needs_path else "[:ROWS]" if self.sized else "")


def _in_room(module: str, name: str) -> Callable[..., Stream]:
    """A function of a room that imports this one: loaded when it is first called."""

    def call(*arguments: Any, **options: Any) -> Stream:
        stream: Stream = getattr(import_module(module), name)(*arguments, **options)
        return stream

    return call


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo("criteo", "Criteo display advertising, TSV as published or Parquet", open_criteo, needs_path=True),
        DatasetInfo("automl", "a folder of the NeurIPS 2018 lifelong AutoML challenge", open_automl, needs_path=True),
        DatasetInfo("flights", "is a flight of 2013 from New York more than 15 minutes late", open_flights),
        DatasetInfo(
            "adstream",
            "a simulated ad stream whose true click probabilities are known",
            _in_room("daes.simulation.dataset", "open_adstream"),
            sized=True,
        ),
    )
}
