"""The interface of rivals: score a batch, then learn from it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from daes.registry import Configurable, Entry, Registry
from daes.stream.batch import Batch
from daes.stream.schema import Schema

Floats = NDArray[np.float64]


class Rival(Configurable, ABC):
    """A model without a backbone that learns from a stream, row by row or by retraining on the past.

    It draws no random numbers: one run stands for all seeds.

    Args:
        schema: the columns of the batches.
        total_rows: length of the stream, for a rival that is retrained after parts of it; None to train once, at the
            end of the training part (`finish`).
    """

    def __init__(self, schema: Schema, total_rows: int | None) -> None:
        self.schema = schema
        self.total_rows = total_rows

    @abstractmethod
    def score(self, batch: Batch) -> NDArray[np.float32]:
        """Logits (B,) of rows not learned from yet; their labels are not used."""

    @abstractmethod
    def learn(self, batch: Batch) -> None:
        """Learn from rows with labels."""

    def finish(self) -> None:
        """Called after the last batch of the training part."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of learned parameters."""


@dataclass(frozen=True, kw_only=True)
class RivalEntry(Entry[Rival]):
    """A rival and its description."""

    inputs: ClassVar[tuple[str, ...]] = ("schema", "total_rows")


RIVALS = Registry("rival", RivalEntry)
"""Name → entry."""
register_rival = RIVALS.register
