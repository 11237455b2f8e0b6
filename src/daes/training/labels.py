"""Scored batches that wait until the model may learn their labels."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daes.model import DeviceBatch
from daes.stream.batch import Batch


class Scored(NamedTuple):
    """A batch that was scored."""

    row: int
    """The row of the stream at which it starts."""
    batch: Batch
    logits: NDArray[np.float32]
    prepared: DeviceBatch | None = None
    """The batch on the model's device, if it is still there."""


class LabelDelay:
    """A queue between scoring and learning for labels that come with their rows.

    Args:
        batches: how many batches are scored between scoring a batch and learning from it.
    """

    late = False
    """Whether labels come later than their rows; otherwise a batch is evaluated when it is scored."""
    status = ""
    """A description of what waits, for people."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._waiting: deque[Scored] = deque()

    def put(self, scored: Scored) -> None:
        """Add a batch that was scored."""
        self._waiting.append(scored)

    def due(self, batch: Batch | None, keep_waiting: Callable[[], bool]) -> Iterator[Scored]:
        """The batches to learn from now, before `batch` is scored; None, the end of the stream, gives all of them."""
        while len(self._waiting) > (0 if batch is None else self._batches):
            yield self._waiting.popleft()

    def state_dict(self) -> list[Any]:
        """The batches that wait; their logits are not needed any more."""
        return [[scored.row, scored.batch.arrays()] for scored in self._waiting]

    def load_state_dict(self, state: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self._waiting = deque(Scored(row, Batch(**arrays), np.empty(0, np.float32)) for row, arrays in state)
