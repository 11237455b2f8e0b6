"""The rows that a run has read: a checksum of them, to know after an interruption whether they are still the same."""

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig

if TYPE_CHECKING:
    from daes.training.trainer import StreamTrainer


class DataChangedError(ValueError):
    """The data do not begin with the rows that a run has read."""


class ConsumedRows:
    """A callback of `StreamTrainer` that keeps CRC-32 checksums of the rows it was trained on.

    The checksums do not depend on where a batch ends. Give it to the trainer as a callback and as `extra`, so that it
    is in the checkpoints.

    >>> import pyarrow as pa
    >>> table = pa.table({"click": [0, 1, 1], "price": [0.5, 2.0, 1.0]})
    >>> one, other = ConsumedRows(Dataset.open(table)), ConsumedRows(Dataset.open(table.slice(0, 2)))
    >>> one.read(2, batch_size=1)
    >>> other.read(2, batch_size=2)
    >>> one.checksums == other.checksums
    True
    """

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._stamps = data.stamps()
        self.checksums: dict[str, int] = {}

    def __call__(self, trainer: "StreamTrainer", batch: Batch, logits: NDArray[np.float32]) -> None:
        self.add(batch)

    def add(self, batch: Batch) -> None:
        for part, array in batch.arrays().items():
            if array.size:
                self.checksums[part] = zlib.crc32(np.ascontiguousarray(array).data, self.checksums.get(part, 0))

    def read(self, rows: int, *, batch_size: int, skip_bad_batches: bool = False) -> None:
        """Take in the first rows of the data, or all if there are fewer."""
        start = Dataset(self._data.source, self._data.schema, limit=rows)
        for batch in start.batches(batch_size, skip_bad_batches=skip_bad_batches):
            self.add(batch)

    def place(self, state: Mapping[str, Any], config: TrainConfig) -> Mapping[str, Any]:
        """Where a trainer with this state goes on; an error if the rows before that place have changed.

        Files that were changed since, by their sizes and times, are read again up to the place and compared with the
        checksums; so are data that are not in files. Rows may have been added after them, and further files. A live
        source is not read again: what it had may be gone.
        """
        position, before = state["position"], state["extra"]["consumed"]
        known = before["stamps"]
        if self._data.is_live:
            return dict(position)
        if known is not None and self._stamps is not None and self._stamps[: len(known)] == known:
            return dict(position)
        again, rows = ConsumedRows(self._data), int(position["row"])
        if rows:
            again.read(rows, batch_size=config.batch_size, skip_bad_batches=config.bad_batch == "skip")
        if again.checksums == before["checksums"]:
            # The same row may be at another place within its file now.
            return {"row": rows} if "file" in position else dict(position)
        raise DataChangedError(
            f"{self._data.name} has changed: it does not begin with the {rows:,} rows that the run has read; rows may "
            "only be added at the end, and files after those that were there"
        )

    def state_dict(self) -> dict[str, Any]:
        """The checksums, and what the files were known by."""
        return {"checksums": dict(self.checksums), "stamps": self._stamps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; what the files are known by stays as it is now."""
        self.checksums = dict(state["checksums"])
