"""One interface for rivals: score a batch with what was learned before it, then learn from it."""

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
    """A model without a backbone that learns from a stream, row by row or now and then from all of the past.

    It has no random numbers: one run stands for all seeds.

    Args:
        schema: the columns of the batches.
        total_rows: how long the stream is, for a rival that retrains after parts of it; None to train once, at the end
            of a training part (`finish`).
    """

    def __init__(self, schema: Schema, total_rows: int | None) -> None:
        self.schema = schema
        self.total_rows = total_rows

    @abstractmethod
    def score(self, batch: Batch) -> NDArray[np.float32]:
        """Logits (B,) of rows not learned from yet; their labels are not looked at."""

    @abstractmethod
    def learn(self, batch: Batch) -> None:
        """Take rows with labels into what is known."""

    def finish(self) -> None:
        """All rows of the training part are there."""
        return

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers were learned."""


@dataclass(frozen=True, kw_only=True)
class RivalEntry(Entry[Rival]):
    """What is known about a rival."""

    inputs: ClassVar[tuple[str, ...]] = ("schema", "total_rows")


RIVALS = Registry("rival", RivalEntry)
"""Name → entry."""
register_rival = RIVALS.register
