"""Labels that come in messages of their own: joined to their rows by a key, within a time window.

A row is scored when its impression arrives. It is evaluated and learned from when its window is over, with the label
that has arrived by then: a message means a click, no message means no click. Rows are learned from in the order in
which they arrived, clicked or not, so that the rows learned from have the click rate of the stream.

Times are those of the messages. A row sent at t gets the labels sent up to t + window, whenever they are read; it is
learned from before the first row sent after t + window is scored. So the result is the same if the stream is read late,
or again after a crash.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from daes.choices import check_choice
from daes.stream.batch import Batch, KeyedBatch
from daes.stream.messages import LabelReader
from daes.training.config import OVERFLOW
from daes.training.labels import Scored
from daes.training.pending_rows import PendingRows

_log = logging.getLogger("daes.training")

_LABELS_AT_ONCE = 4096
_ONE_WAIT = 0.25
_BETWEEN_READS = 0.5
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class LateLabels:
    """The source of labels, and how long to wait for them.

    Args:
        topic: the address of the topic with the labels, as `nats://localhost/CLICKS`.
        key: the field that joins labels to rows, in the messages of both topics.
        window: seconds after its impression within which a row's label may arrive.
        max_pending: largest number of rows that wait in memory.
        overflow: what to do with more rows: "no-click" learns from the oldest ones before their windows are over, with
            the labels they have; "drop" neither evaluates nor learns from the oldest ones; "spill" writes the features
            of the newest ones to disk (`PendingRows`).

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
        check_choice("overflow", self.overflow, OVERFLOW)


@dataclass
class LabelCounts:
    """Numbers of rows and labels by what happened to them."""

    matched: int = 0
    """Labels that were joined to a row."""
    unmatched: int = 0
    """Labels without a row, or whose row's window was over."""
    early: int = 0
    """Rows that were learned from before their window was over, because too many waited."""
    dropped: int = 0
    """Rows that were neither evaluated nor learned from, because too many waited."""
    repeated: int = 0
    """Rows with the key of a row that waited; a label belongs to the later one."""


class LabelJoin:
    """Like `LabelDelay`, a queue of scored rows, which wait for labels from another topic; see the module.

    Args:
        labels: the messages with the labels.
        config: how long to wait for labels, and what to do if too many rows wait.
        batch_size: rows per step.
    """

    late = True

    def __init__(self, labels: LabelReader, config: LateLabels, batch_size: int) -> None:
        self.labels = labels
        self.counts = LabelCounts()
        self._batch_size, self._window = batch_size, round(config.window * _SECOND)
        self._max_pending, self._overflow = config.max_pending, config.overflow
        self.rows = PendingRows(config.max_pending)
        self._last_read = 0.0
        self._unassigned: dict[int, tuple[int, float]] = {}
        """Labels whose rows have not arrived, by key: when they were sent, and the label."""

    @property
    def pending(self) -> int:
        return self.rows.count

    @property
    def status(self) -> str:
        return f"{self.pending:,} rows wait for labels"

    def describe(self) -> dict[str, int]:
        """Numbers of rows and labels by what happened to them, and how many rows wait."""
        return {**vars(self.counts), "pending": self.pending, "spilled": self.rows.spilled}

    def put(self, scored: Scored) -> None:
        batch = scored.batch
        if not isinstance(batch, KeyedBatch) or batch.key is None or batch.sent is None:
            raise TypeError(f"rows whose labels come later must have keys, got a {type(batch).__name__}")
        self.counts.repeated += self.rows.add(batch, scored.logits)
        if self._unassigned:
            for key in batch.key.tolist():
                if key in self._unassigned:
                    self._assign(key, *self._unassigned.pop(key))

    def due(self, batch: Batch | None, keep_waiting: Callable[[], bool]) -> Iterator[Scored]:
        """Rows whose windows were over when `batch` was sent, `batch_size` at a time; fewer while no rows arrive.

        At the end of the stream it waits for the end of all windows, while `keep_waiting()` is true.
        """
        moment = self._moment(batch)
        least = self._batch_size if batch is not None and len(batch) else 1
        excess = 0 if self._overflow == "spill" else self.pending - self._max_pending
        if excess > 0 or time.monotonic() - self._last_read > _BETWEEN_READS:
            self._read_labels(moment)
        while excess > 0:
            yield from self._release(min(excess, self._batch_size))
            excess -= self._batch_size
        while self.pending and (over := self.rows.sent_by(moment - self._window)) >= least:
            rows = min(over, self._batch_size)
            if not self._labels_until(self.rows.last_sent(rows) + self._window, keep_waiting):
                return
            yield self.rows.take(rows)

    def _moment(self, batch: Batch | None) -> int:
        """The time that the stream has reached: that of the batch, now if it has no rows, or the end of all windows."""
        if batch is None:
            return self.rows.last_sent(self.pending) + self._window
        if isinstance(batch, KeyedBatch) and batch.sent is not None and len(batch):
            return int(batch.sent.min())
        return time.time_ns()

    def _labels_until(self, moment: int, keep_waiting: Callable[[], bool]) -> bool:
        """Read all labels that were sent by then; False if `keep_waiting` ended that."""
        started = warned = time.monotonic()
        while self.labels.complete_until() < moment:
            if not keep_waiting():
                return False
            if not self._read_labels(moment):
                self.labels.wait(_ONE_WAIT)
            if time.monotonic() - warned > 30:
                warned = time.monotonic()
                _log.warning("waiting for labels of %s for %.0f seconds", self.labels.name, warned - started)
        self._read_labels(moment)
        return True

    def _read_labels(self, moment: int) -> bool:
        """Read the labels sent by then that are available; whether there were any."""
        found = False
        self._last_read = time.monotonic()
        while len((labels := self.labels.read(_LABELS_AT_ONCE, moment)).key):
            found = True
            for key, sent, label in zip(*(column.tolist() for column in labels), strict=True):
                self._assign(key, sent, label)
        self._drop_expired(moment)
        return found

    def _assign(self, key: int, sent: int, label: float) -> None:
        """Assign a label to its row; keep it for a while if that row has not arrived."""
        found = self.rows.assign(key, sent, label, self._window)
        if found is None:
            self._unassigned[key] = (sent, label)
        elif found:
            self.counts.matched += 1
        else:
            self.counts.unmatched += 1

    def _drop_expired(self, moment: int) -> None:
        """Drop labels whose rows should have arrived by then, and the oldest ones if there are too many."""
        while self._unassigned:
            key, (sent, _) = next(iter(self._unassigned.items()))
            if sent + self._window > moment and len(self._unassigned) <= self._max_pending:
                return
            del self._unassigned[key]
            self.counts.unmatched += 1

    def _release(self, rows: int) -> Iterator[Scored]:
        """Release the oldest rows before their windows are over, because too many wait."""
        taken = self.rows.take(rows)
        if self._overflow == "drop":
            self.counts.dropped += rows
            return
        self.counts.early += rows
        yield taken

    def state_dict(self) -> dict[str, Any]:
        """The rows that wait with their scores and labels, and the position among the labels."""
        return {
            "rows": self.rows.state_dict(),
            "strays": [[key, sent, label] for key, (sent, label) in self._unassigned.items()],
            "counts": dict(vars(self.counts)),
            "labels": self.labels.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rows.load_state_dict(state["rows"])
        self._unassigned = {key: (sent, label) for key, sent, label in state["strays"]}
        self.counts = LabelCounts(**state["counts"])
        self.labels.load_state_dict(state["labels"])
