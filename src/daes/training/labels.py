"""Where scored batches wait until their labels may be learned from."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from daes.model import DeviceBatch
from daes.stream.batch import Batch


class Scored(NamedTuple):
    """A batch, the stream's row it starts at, and its logits from when it was scored."""

    row: int
    batch: Batch
    logits: NDArray[np.float32]
    prepared: DeviceBatch | None = None
    """The batch on the model's device, if it is still there."""


class WaitingLabels(Protocol):
    """A queue between scoring and learning."""

    late: bool
    """Whether labels come later than their rows; otherwise a batch is judged when it is scored."""

    @property
    def status(self) -> str:
        """What waits, as text for people; empty if there is nothing to say."""

    def put(self, scored: Scored) -> None:
        """Take in a batch that was scored."""

    def due(self, batch: Batch | None, going_on: Callable[[], bool]) -> Iterator[Scored]:
        """The batches to learn from now, with labels, before `batch` is scored; None at the end of the stream.

        It may wait for labels as long as `going_on()`.
        """

    def state_dict(self) -> Any:
        """Everything needed to go on."""

    def load_state_dict(self, state: Any) -> None:
        """Go on from a state."""


class LabelDelay:
    """Labels that come with their rows and are held back for a number of batches.

    Args:
        batches: how many batches are scored between scoring a batch and learning from it.
        prepare: moves a batch to the model's device.
    """

    late = False
    status = ""

    def __init__(self, batches: int, prepare: Callable[[Batch], DeviceBatch]) -> None:
        self._batches = batches
        self._prepare = prepare
        self._waiting: deque[Scored] = deque()

    def put(self, scored: Scored) -> None:
        self._waiting.append(scored)

    def due(self, batch: Batch | None, going_on: Callable[[], bool]) -> Iterator[Scored]:
        """Those that have waited for so many batches; all of them at the end of the stream."""
        while len(self._waiting) > (0 if batch is None else self._batches):
            yield self._waiting.popleft()

    def state_dict(self) -> list[Any]:
        """The batches that wait; their logits were judged."""
        return [[scored.row, scored.batch.arrays()] for scored in self._waiting]

    def load_state_dict(self, state: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self._waiting = deque()
        for row, arrays in state:
            batch = Batch(**arrays)
            self._waiting.append(Scored(row, batch, np.zeros(0, np.float32), self._prepare(batch)))
