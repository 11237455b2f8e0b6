"""One pass over a stream: every batch is scored before the model learns from it."""

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.metrics import StreamMetrics
from daes.model import CTRModel
from daes.native.threads import submit, wait
from daes.storage.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from daes.stream.batch import Batch
from daes.stream.cursor import BatchError
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.labels import LabelDelay, Scored
from daes.training.step import BadBatch, TrainingError, TrainingStep, random_state, set_random_state
from daes.training.stopping import TrainingStopped

if TYPE_CHECKING:
    from daes.training.label_join import LabelJoin

_log = logging.getLogger("daes.training")
_ROWS_MEASURED = 4096
"""Rows with which metrics are updated at once: after every small batch that would cost more than its step."""
_MAX_RECORDS = 400
"""A history without a given interval is thinned to half of this many records whenever it is full."""


@dataclass
class TrainResult:
    """The result of one pass over a stream.

    Args:
        rows: number of rows read.
        batches: number of batches they came in; each is a step, or a bad batch.
        seconds: time spent reading, scoring and learning.
        metrics: `StreamMetrics.compute()` at the end; every row was scored before it was learned from.
        history: the same at intervals, with `rows` and `seconds`.
        bad_batches: batches that were not learned from.
    """

    rows: int
    batches: int
    seconds: float
    metrics: dict[str, float]
    history: list[dict[str, float]] = field(default_factory=list)
    bad_batches: list[BadBatch] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """Throughput of reading, scoring and learning."""
        return self.rows / self.seconds if self.seconds else float("nan")


BatchCallback = Callable[["StreamTrainer", Batch, NDArray[np.float32]], None]
"""Called after every batch with the trainer, the batch, and its logits before the model learned from it.

One with the attribute `apart` set is called before the others, maybe by another thread while the metrics are computed.
"""

RecordCallback = Callable[["StreamTrainer", dict[str, float]], None]
"""Called with the trainer and each new record of the history; `daes.training.callbacks` has some."""

WaitCallback = Callable[["StreamTrainer"], None]
"""Called with the trainer while a live source has no rows, about every second."""


class StreamTrainer:
    """Trains a model in one pass over a stream, scoring every batch before the model learns from it.

    With a `CheckpointStore` the process may be killed at any time: another `run` continues from the newest valid
    checkpoint and, on the same machine, ends with the same bits as a run without interruption. On a CUDA device that
    requires deterministic kernels (`torch.use_deterministic_algorithms`).

    Args:
        model: the model to train; an offline method must be fitted (`CTRModel.from_sample` does that).
        config: how to train.
        store: the checkpoints; None for none.
        callbacks: called after every batch.
        on_record: called with every record of the metrics.
        on_wait: called while a live source has no rows.
        extra: further objects with `state_dict` and `load_state_dict` to include in the checkpoints, by name.
        waiting: the queue in which scored rows wait for labels from another topic; by default labels come with their
            rows, and batches wait for `label_delay` others.

    >>> from daes.simulation import AdStream
    >>> stream = AdStream(num_rows=4000, seed=0)
    >>> _ = torch.manual_seed(0)
    >>> model = CTRModel(stream.schema, "daes", "fnn", sizes=1000)
    >>> result = StreamTrainer(model, TrainConfig(batch_size=500)).run(stream)
    >>> result.rows, 0.4 < result.metrics["auc"] < 0.9
    (4000, True)
    """

    def __init__(
        self,
        model: CTRModel,
        config: TrainConfig | None = None,
        *,
        store: CheckpointStore | None = None,
        callbacks: Sequence[BatchCallback] = (),
        on_record: Sequence[RecordCallback] = (),
        on_wait: Sequence[WaitCallback] = (),
        extra: Mapping[str, Any] | None = None,
        waiting: "LabelJoin | None" = None,
    ) -> None:
        self.model = model
        self.config = config or TrainConfig()
        self.store = store
        self.callbacks = tuple(callbacks)
        self.on_record = tuple(on_record)
        self.on_wait = tuple(on_wait)
        self.extra = dict(extra or {})
        self.seed = self.config.seed
        self.step = self._make_step()
        self.metrics = StreamMetrics(self.config.window)
        """Metrics of the rows scored so far, up to a few thousand rows behind except when a record is made."""
        self._unmeasured: list[tuple[NDArray[np.float32], ...]] = []
        self._rows_unmeasured = 0
        self.rows = 0
        self.batches = 0
        self.seconds = 0.0
        self.history: list[dict[str, float]] = []
        self._spacing = 1
        self.waiting: LabelDelay | LabelJoin = waiting or LabelDelay(self.config.label_delay)
        self._at_once = waiting is None and not self.config.label_delay
        self.step.correcting = self._at_once
        self._position: Mapping[str, int | str] = {"row": 0}
        self._before: Mapping[str, int | str] = self._position
        """The position before the present batch."""
        self._saved_at = 0.0
        self._saved: Mapping[str, int | str] | None = None
        self._started = 0.0
        self._stop_signal: int | None = None

    def _make_step(self) -> TrainingStep:
        return TrainingStep(self.model, self.config)

    @property
    def bad_batches(self) -> list[BadBatch]:
        """The batches that were not learned from."""
        return self.step.bad_batches

    def run(self, source: Source, *, resume: bool = True, save_first: bool = False, wait: bool = True) -> TrainResult:
        """Train on the source from its position, or from that of the newest checkpoint.

        A checkpoint that cannot be written during training (a full disk) gives a `CheckpointWarning`, and the next one
        is written when it is due; at the end of the stream it is an error.

        Args:
            source: the rows; their columns are those of the model's schema.
            resume: continue from a checkpoint of the store, if there is one.
            save_first: write a checkpoint before the first batch, to record where in a live stream the run began.
            wait: wait for the last checkpoint. Otherwise it may still be being written in the background: nothing may
                change the model before `store.wait` or `store.close`, which raise its error.

        Raises:
            TrainingStopped: after `stop`.
        """
        if self.model.needs_fit:
            raise TrainingError(
                "the model's method is offline and not fitted: use CTRModel.from_sample or fit_embedding"
            )
        if not self.rows:
            torch.manual_seed(self.seed)
        if resume and not self.rows:
            self.restore(source)
        self._position = source.position()
        self._saved_at = time.monotonic()
        if save_first:
            self.save()
        self._started = time.perf_counter() - self.seconds
        with _core_to_read(self.step):
            for row, batch in self._batches(source):
                self._advance(row, batch)
        self._finish()
        self._record()
        self.save(wait=wait)
        return self.result()

    def _advance(self, row: int, batch: Batch) -> None:
        """Score a batch and learn from it, or from batches before it; a live stream without rows gives an empty one."""
        before = self.rows
        if self.waiting.late:
            self._learn_due(batch)
            if self._stop_signal is not None:  # some labels were not waited for, and this batch comes after them
                self._position = self._before
                self._stop_if_asked()
        if not len(batch):
            for on_wait in self.on_wait:
                on_wait(self)
        elif self._at_once:
            self._evaluate(batch, self.step.score_and_learn(batch, row))
        else:
            prepared = self.step.prepare(batch)
            logits = self.step.score(prepared)
            if self.step.accept(logits, row):
                self.waiting.put(Scored(row, batch, logits, None if self.waiting.late else prepared))
            if not self.waiting.late:
                self._learn_due(batch)
                self._evaluate(batch, logits)
        self._save_if_due(self.rows - before)
        self._stop_if_asked()

    def _learn_due(self, batch: Batch | None) -> None:
        """Learn from the batches that have waited long enough; those whose labels came later are evaluated now."""
        for scored in self.waiting.due(batch, lambda: self._stop_signal is None):
            if self.waiting.late:
                self._evaluate(scored.batch, scored.logits)
            self.step.learn(scored.prepared or scored.batch, scored.row)

    def _evaluate(self, batch: Batch, logits: NDArray[np.float32]) -> None:
        """Add a scored batch with labels to the metrics, unless a score is not finite, and `_count` it."""
        if batch.label is not None and np.isfinite(logits).all():
            self._unmeasured.append((logits, batch.label, *(() if batch.weight is None else (batch.weight,))))
            self._rows_unmeasured += len(batch)
        self._count(batch, logits)

    def _count(self, batch: Batch, logits: NDArray[np.float32], metrics: dict[str, float] | None = None) -> None:
        """Count evaluated rows, call the callbacks, and record the metrics, as given or if a record is due."""
        due = metrics is None and self._record_is_due(len(batch))
        self.rows += len(batch)
        self.batches += 1
        self.seconds = time.perf_counter() - self._started
        apart = [submit(len(batch), self._call, batch, logits, apart=True)]
        try:
            if due or self._rows_unmeasured >= _ROWS_MEASURED:
                self._measure()
            if due:
                metrics = self.metrics.compute()
        finally:
            wait(apart)
        self._call(batch, logits, apart=False)
        if metrics is not None:
            self._record(metrics)
        if self.config.record_every is None and len(self.history) >= _MAX_RECORDS:
            self.history = self.history[1::2]
            self._spacing *= 2

    def _call(self, batch: Batch, logits: NDArray[np.float32], *, apart: bool) -> None:
        """Call the callbacks that may be called beside the metrics, or the others."""
        for callback in self.callbacks:
            if getattr(callback, "apart", False) == apart:
                callback(self, batch, logits)

    def _stop_if_asked(self) -> None:
        if self._stop_signal is not None:
            self.save()
            raise TrainingStopped(self._stop_signal, self.rows, saved=self.store is not None)

    def _finish(self) -> None:
        """At the end of the stream, learn from the batches that still wait."""
        self._learn_due(None)
        self._stop_if_asked()

    def result(self) -> TrainResult:
        """The result so far."""
        self._measure()
        metrics = self.metrics.compute()
        return TrainResult(self.rows, self.batches, self.seconds, metrics, self.history, self.bad_batches)

    def stop(self, number: int) -> None:
        """End `run` after the current batch, with a checkpoint; `number` is the signal's."""
        self._stop_signal = number

    def _batches(self, source: Source) -> Iterator[tuple[int, Batch]]:
        """Each batch and the row it starts at; batches that cannot be read are left out if the policy is "skip"."""
        while True:
            try:
                for batch in source.iter_batches(self.model.schema, self.config.batch_size):
                    self._before, self._position = self._position, source.position()
                    yield int(self._before["row"]), batch
                return
            except BatchError as error:
                if self.config.bad_batch == "stop":
                    raise
                source.seek(error.next_position)
                self._position = error.next_position
                self.step.skip(int(error.position["row"]), str(error))

    def _measure(self) -> None:
        """Update the metrics with the rows since the last update."""
        if self._unmeasured:
            self.metrics.update(*(np.concatenate(column) for column in zip(*self._unmeasured, strict=True)))
            self._unmeasured, self._rows_unmeasured = [], 0

    def _save_if_due(self, new: int) -> None:
        if self.store is not None and self._save_is_due(new):
            with as_warning():
                self.store.wait()
            with as_warning():
                self.store.save_async(self.batches, self.state_dict())

    def _save_is_due(self, new: int) -> bool:
        late = time.monotonic() - self._saved_at >= 60 * self.config.checkpoint_minutes
        crossed = _crossed(self.config.checkpoint_every, self.rows - new, self.rows)
        due = crossed or (late and self._position != self._saved)
        if due:
            self._saved_at, self._saved = time.monotonic(), self._position
        return due

    def save(self, *, wait: bool = True) -> None:
        """Write a checkpoint, whether or not the last one failed; without `wait`, nothing may change meanwhile."""
        if self.store is not None:
            with suppress(CheckpointError):
                self.store.wait()
            if wait:
                self.store.save(self.batches, self.state_dict())
            else:
                self.store.save_async(self.batches, self.state_dict(), copy=False)

    def _record_is_due(self, new: int) -> bool:
        """Whether the metrics are recorded after so many more rows."""
        rows = self.rows + new
        if self.config.record_every is not None:
            return _crossed(self.config.record_every, self.rows, rows)
        # A record sorts the window, which is cheap once per eighth of the window; closer records hardly differ.
        last = self.history[-1]["rows"] if self.history else 0
        return rows - last >= self._spacing * min(rows, self.config.window) / 8

    def _record(self, metrics: dict[str, float] | None = None) -> None:
        """Record the metrics, which are computed unless they are given."""
        if self.rows and (not self.history or self.history[-1]["rows"] != self.rows):
            self._measure()
            metrics = self.metrics.compute() if metrics is None else metrics
            record = {**metrics, "rows": float(self.rows), "seconds": self.seconds}
            self.history.append(record)
            _log.info("%d rows: AUC %.4f, LogLoss %.4f", self.rows, record["window_auc"], record["window_logloss"])
            for callback in self.on_record:
                callback(self, record)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue bit for bit, as arrays and plain values."""
        return {
            "step": self.step.state_dict(),
            "metrics": self.metrics.state_dict(),
            "unmeasured": [list(rows) for rows in self._unmeasured],
            "random": random_state(self.model.device),
            "position": dict(self._position),
            "rows": self.rows,
            "batches": self.batches,
            "seconds": self.seconds,
            "history": self.history,
            "spacing": self._spacing,
            "waiting": self.waiting.state_dict(),
            "extra": {name: part.state_dict() for name, part in self.extra.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that a trainer of the same model and configuration saved."""
        self.step.load_state_dict(state["step"])
        self.metrics.load_state_dict(state["metrics"])
        self._unmeasured = [tuple(rows) for rows in state["unmeasured"]]
        self._rows_unmeasured = sum(len(rows[0]) for rows in self._unmeasured)
        set_random_state(state["random"], self.model.device)
        self._position = state["position"]
        self.rows, self.batches, self.seconds = state["rows"], state["batches"], state["seconds"]
        self.history = list(state["history"])
        self._spacing = state["spacing"]
        self.waiting.load_state_dict(state["waiting"])
        for name, part in self.extra.items():
            part.load_state_dict(state["extra"][name])

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Take model and optimisers from the state of another run's trainer; the configuration stays."""
        self.step.start_from(state["step"])

    def restore(self, source: Source) -> None:
        """Load the newest valid checkpoint, if there is one, and seek the source to it."""
        checkpoint = None if self.store is None else self.store.load()
        if checkpoint is not None:
            self.load_state_dict(checkpoint.state)
            source.seek(self._position)


@contextmanager
def as_warning() -> Iterator[None]:
    """Within it, a checkpoint that cannot be written is a warning: training continues."""
    try:
        yield
    except CheckpointError as error:
        warnings.warn(f"{error}; training continues", CheckpointWarning, stacklevel=4)


@contextmanager
def _core_to_read(step: TrainingStep) -> Iterator[None]:
    """Within it, torch leaves one core to the reading thread, where that costs training little."""
    threads = torch.get_num_threads()
    if step.uses_loops or (threads == 2 and step.halves_batches):
        torch.set_num_threads(max(1, threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _crossed(interval: int, before: int, now: int) -> bool:
    """Whether a multiple of `interval` is in (before, now]."""
    return now // interval > before // interval
