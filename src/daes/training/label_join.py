"""Labels that come in messages of their own: joined to their rows by a key, within a window of time.

A row is scored when its impression comes. It is judged and learned from when its window is over, with the label that
has come by then: a click by a message, no click by the absence of one. Rows are learned from in the order in which they
came, clicked or not, so that what is learned from at any time is not richer in clicks than the stream.

Time is that of the messages. A row that was sent at t has the labels sent up to t + window, whenever they are read; it
is learned from before the first row sent after t + window is scored. So a stream that is read late, or again after a
crash, is learned from as one that is read at once.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from daes.storage.segments import Segments
from daes.stream.batch import Batch, KeyedBatch
from daes.stream.messages import LabelReader
from daes.training.config import OVERFLOW
from daes.training.labels import Scored
from daes.training.pending_rows import PendingRows

_log = logging.getLogger("daes.training")

_LABELS_AT_ONCE = 4096
_ONE_WAIT = 0.25
_BETWEEN_LOOKS = 0.5
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class LateLabels:
    """Where labels come from, and how long they are waited for. Validated once, here.

    Args:
        topic: the address of the topic with the labels, as `nats://localhost/CLICKS`.
        key: the field by which a label is found, in the messages of both topics.
        window: seconds after its impression in which a row's label may come.
        max_pending: rows that wait in memory at most.
        overflow: what is done when there are more: "no-click" learns from the oldest before its window is over, with
            the label it has; "drop" neither judges nor learns from it; "spill" writes the features of the newest to
            disk (`PendingRows`).

    >>> LateLabels("nats://localhost/CLICKS", key="id", window=0)
    Traceback (most recent call last):
    ValueError: window must be positive, got 0
    """

    topic: str
    key: str
    window: float
    max_pending: int = 1_000_000
    overflow: str = "no-click"

    def __post_init__(self) -> None:
        for name in ("window", "max_pending"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.overflow not in OVERFLOW:
            raise ValueError(f"overflow must be one of {', '.join(OVERFLOW)}, got {self.overflow!r}")


@dataclass
class LabelCounts:
    """What became of rows and labels."""

    matched: int = 0
    """Labels that found their row."""
    unmatched: int = 0
    """Labels without a row: there was none, or its window was over."""
    early: int = 0
    """Rows that were learned from before their window was over, because too many waited."""
    dropped: int = 0
    """Rows that were neither judged nor learned from, because too many waited."""
    repeated: int = 0
    """Rows with the key of a row that waited; a label is that of the later one."""


class LabelJoin:
    """A queue of scored rows that wait for labels from another topic; see the module.

    Args:
        labels: the messages with the labels.
        config: how long labels are waited for, and what is done when too many rows wait.
        batch_size: rows that are learned from at once.
        segments: where features are spilled to.
    """

    late = True

    def __init__(
        self, labels: LabelReader, config: LateLabels, batch_size: int, segments: Segments | None = None
    ) -> None:
        self.labels = labels
        self.counts = LabelCounts()
        self._batch_size, self._window = batch_size, round(config.window * _SECOND)
        self._max_pending, self._overflow = config.max_pending, config.overflow
        self.rows = PendingRows(segments if config.overflow == "spill" else None, config.max_pending)
        self._looked = 0.0
        self._strays: dict[int, tuple[int, float]] = {}
        """Labels whose rows have not come: when they were sent, and the label."""

    @property
    def pending(self) -> int:
        return self.rows.count

    @property
    def status(self) -> str:
        return f"{self.pending:,} rows wait for labels"

    def describe(self) -> dict[str, int]:
        """What became of rows and labels, and how many rows wait."""
        return {**vars(self.counts), "pending": self.pending, "spilled": self.rows.spilled}

    def put(self, scored: Scored) -> None:
        batch = scored.batch
        if not isinstance(batch, KeyedBatch) or batch.key is None or batch.sent is None:
            raise TypeError(f"rows whose labels come later must have keys, got a {type(batch).__name__}")
        self.counts.repeated += self.rows.add(batch, scored.logits)
        if self._strays:
            for key in batch.key.tolist():
                if key in self._strays:
                    self._give(key, *self._strays.pop(key))

    def due(self, batch: Batch | None, going_on: Callable[[], bool]) -> Iterator[Scored]:
        """Rows whose windows are over when `batch` was sent, `batch_size` at a time; fewer while nothing comes.

        At the end of the stream all windows are waited for.
        """
        moment = self._moment(batch)
        least = self._batch_size if batch is not None and len(batch) else 1
        excess = 0 if self._overflow == "spill" else self.pending - self._max_pending
        if excess > 0 or time.monotonic() - self._looked > _BETWEEN_LOOKS:
            self._read_labels(moment)
        while excess > 0:
            yield from self._make_room(min(excess, self._batch_size))
            excess -= self._batch_size
        while self.pending and (over := self.rows.sent_by(moment - self._window)) >= least:
            rows = min(over, self._batch_size)
            if not self._labels_until(self.rows.last_sent(rows) + self._window, going_on):
                return
            yield self.rows.take(rows)

    def _moment(self, batch: Batch | None) -> int:
        """The time that the stream has come to: that of the batch, now if it has no rows, the end of all windows."""
        if batch is None:
            return self.rows.last_sent(self.pending) + self._window
        if isinstance(batch, KeyedBatch) and batch.sent is not None and len(batch):
            return int(batch.sent.min())
        return time.time_ns()

    def _labels_until(self, moment: int, going_on: Callable[[], bool]) -> bool:
        """Read all labels that were sent by then; False if that was given up."""
        started = said = time.monotonic()
        while self.labels.complete_until() < moment:
            if not going_on():
                return False
            if not self._read_labels(moment):
                self.labels.wait(_ONE_WAIT)
            if time.monotonic() - said > 30:
                said = time.monotonic()
                _log.warning("waiting for labels of %s since %.0f seconds", self.labels.name, said - started)
        self._read_labels(moment)
        return True

    def _read_labels(self, moment: int) -> bool:
        """Read the labels sent by then, as far as they are there; whether there were some."""
        found = False
        self._looked = time.monotonic()
        while True:
            labels = self.labels.read(_LABELS_AT_ONCE, moment)
            if not len(labels.key):
                break
            found = True
            for key, sent, label in zip(*(column.tolist() for column in labels), strict=True):
                self._give(key, sent, label)
        self._forget_strays(moment)
        return found

    def _give(self, key: int, sent: int, label: float) -> None:
        """Give a label to its row; keep it for a while if that row has not come."""
        found = self.rows.give(key, sent, label, self._window)
        if found is None:
            self._strays[key] = (sent, label)
        elif found:
            self.counts.matched += 1
        else:
            self.counts.unmatched += 1

    def _forget_strays(self, moment: int) -> None:
        """Give up labels whose rows would have come by then, and the oldest ones if there are too many."""
        while self._strays:
            key, (sent, _) = next(iter(self._strays.items()))
            if sent + self._window > moment and len(self._strays) <= self._max_pending:
                return
            del self._strays[key]
            self.counts.unmatched += 1

    def _make_room(self, rows: int) -> Iterator[Scored]:
        """Release the oldest rows before their windows are over."""
        taken = self.rows.take(rows)
        if self._overflow == "drop":
            self.counts.dropped += rows
            return
        self.counts.early += rows
        yield taken

    def state_dict(self) -> dict[str, Any]:
        """The rows that wait with their scores and labels, and the place among the labels."""
        return {
            "rows": self.rows.state_dict(),
            "strays": [[key, sent, label] for key, (sent, label) in self._strays.items()],
            "counts": dict(vars(self.counts)),
            "labels": self.labels.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rows.load_state_dict(state["rows"])
        self._strays = {key: (sent, label) for key, sent, label in state["strays"]}
        self.counts = LabelCounts(**state["counts"])
        self.labels.load_state_dict(state["labels"])
