"""Checksums of the rows that a run has read, to check after an interruption that they are still the same."""

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
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

    apart = True
    """See `BatchCallback`."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._stamps = data.stamps()
        self.checksums: dict[str, int] = {}

    @property
    def comparable(self) -> bool:
        """Whether `place` compares the rows; the first ones of a live stream may be gone."""
        return not self._data.is_live

    def __call__(self, trainer: StreamTrainer, batch: Batch, logits: NDArray[np.float32]) -> None:
        self.add(batch)

    def add(self, batch: Batch) -> None:
        for part, array in batch.arrays().items():
            if array.size:
                self.checksums[part] = zlib.crc32(np.ascontiguousarray(array).data, self.checksums.get(part, 0))

    def read(self, rows: int, *, batch_size: int, skip_bad_batches: bool = False) -> None:
        """Add the first rows of the data, or all if there are fewer."""
        start = Dataset(self._data.source, self._data.schema, limit=rows)
        for batch in start.batches(batch_size, skip_bad_batches=skip_bad_batches):
            self.add(batch)

    def place(self, state: Mapping[str, Any], config: TrainConfig) -> Mapping[str, Any]:
        """The position at which a trainer with this state continues; an error if the rows before it have changed.

        If the path, size or time of a file has changed, or the data are not in files, the rows are read again up to the
        position and compared with the checksums. Rows and files may have been added after them.
        """
        position, before = state["position"], state["extra"]["consumed"]
        known = before["stamps"]
        if not self.comparable:
            return dict(position)
        if known is not None and self._stamps is not None and self._stamps[: len(known)] == known:
            return dict(position)
        again, rows = ConsumedRows(self._data), int(position["row"])
        if rows:
            again.read(rows, batch_size=config.batch_size, skip_bad_batches=config.bad_batch == "skip")
        if again.checksums == before["checksums"]:
            # The same row may be at another position within its file now.
            return {"row": rows} if "file" in position else dict(position)
        order, added = "", "at the end, and files after the existing ones"
        if self._data.sorted_by is not None:
            order, added = f", sorted by {self._data.sorted_by!r},", "if their times are not earlier than those"
        raise DataChangedError(
            f"{self._data.name}{order} does not begin with the {rows:,} rows that the run has read: they have changed, "
            f"or these are other data; rows may only be added {added}"
        )

    def state_dict(self) -> dict[str, Any]:
        """The checksums, and path, size and time of the files."""
        return {"checksums": dict(self.checksums), "stamps": self._stamps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the checksums of a state; sizes and times of the files stay the present ones."""
        self.checksums = dict(state["checksums"])
