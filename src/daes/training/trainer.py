"""One pass over a stream: every batch is scored before it is trained on."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.metrics.stream import StreamMetrics
from daes.model import CTRModel, DeviceBatch
from daes.storage.checkpoint import CheckpointStore
from daes.stream.batch import Batch
from daes.stream.source import BatchError, Source
from daes.training.config import TrainConfig
from daes.training.step import BadBatch, TrainingError, TrainingStep, random_state, set_random_state

__all__ = ["BadBatch", "Callback", "StreamTrainer", "TrainConfig", "TrainResult", "TrainingError"]

_MOST_RECORDS = 400


@dataclass
class TrainResult:
    """What a pass over the stream gave."""

    rows: int
    seconds: float
    metrics: dict[str, float]
    history: list[dict[str, float]] = field(default_factory=list)
    bad_batches: list[BadBatch] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """Throughput of reading, scoring and training together."""
        return self.rows / self.seconds if self.seconds else float("nan")


Callback = Callable[["StreamTrainer", Batch, NDArray[np.float32]], None]
"""Called after every batch with the trainer, the batch and its logits, as they were before training on it."""


class StreamTrainer:
    """Trains a model in one pass over a stream, scoring every batch before it is trained on.

    With a `CheckpointStore` the run can be killed at any instant: `run` then goes on from the newest sound checkpoint,
    and ends with the same bits as a run that was never interrupted, on the same machine.

    Args:
        model: what to train; an offline method must be fitted (`CTRModel.from_sample` does).
        config: how to train.
        store: where checkpoints go, None for none.
        callbacks: called after every batch.
        extra: further objects with `state_dict` and `load_state_dict` that belong to the run, by name.

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
        callbacks: Sequence[Callback] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.config = config or TrainConfig()
        self.store = store
        self.callbacks = tuple(callbacks)
        self.extra = dict(extra or {})
        self.step = TrainingStep(model, self.config)
        self.metrics = StreamMetrics(self.config.window)
        self.rows = 0
        self.batches = 0
        self.seconds = 0.0
        self.history: list[dict[str, float]] = []
        self._coarseness = 1
        self._waiting: deque[tuple[int, Batch, DeviceBatch]] = deque()
        self._position: Mapping[str, int | str] = {"row": 0}

    @property
    def bad_batches(self) -> list[BadBatch]:
        """The batches that were not learned from."""
        return self.step.bad_batches

    def run(self, source: Source, *, resume: bool = True, max_rows: int | None = None) -> TrainResult:
        """Go through the source from where it stands, or from where the newest checkpoint stands.

        Args:
            source: the rows; their columns are those of the model's schema.
            resume: go on from a checkpoint of the store, if there is one.
            max_rows: stop after so many rows, those before a checkpoint included; None for all.
        """
        if self.model.needs_fit:
            raise TrainingError(
                "the model's method is offline and not fitted: use CTRModel.from_sample or fit_embedding"
            )
        if not self.rows:
            torch.manual_seed(self.config.seed)
        if resume and not self.rows:
            self.restore(source)
        self._position = source.position()
        started = time.perf_counter() - self.seconds
        for row, batch in self._batches(source, max_rows):
            logits = self._score(batch, row)
            self.rows += len(batch)
            self.batches += 1
            self.seconds = time.perf_counter() - started
            for callback in self.callbacks:
                callback(self, batch, logits)
            self._keep_records(len(batch))
        while self._waiting:
            self._learn_next()
        self._record()
        if self.store is not None:
            self.store.save(self.batches, self.state_dict())
        return TrainResult(self.rows, self.seconds, self.metrics.compute(), self.history, self.bad_batches)

    def _batches(self, source: Source, max_rows: int | None) -> Iterator[tuple[int, Batch]]:
        """The batches with the rows they start at; one whose values are refused is left out where the policy is so."""
        while True:
            try:
                for batch in self._until(source, max_rows):
                    yield int(self._position["row"]) - len(batch), batch
                return
            except BatchError as error:
                if self.config.bad_batch == "stop":
                    raise
                self.step.skip(int(error.position["row"]), str(error))
                source.seek(error.next_position)
                self._position = error.next_position

    def _until(self, source: Source, max_rows: int | None) -> Iterator[Batch]:
        if max_rows is not None and self.rows >= max_rows:
            return
        for batch in source.iter_batches(self.model.schema, self.config.batch_size):
            self._position = source.position()
            surplus = 0 if max_rows is None else self.rows + len(batch) - max_rows
            if surplus > 0:
                self._position = {"row": int(self._position["row"]) - surplus}
                batch = batch[: len(batch) - surplus]
            yield batch
            if surplus >= 0 and max_rows is not None:
                return

    def _score(self, batch: Batch, row: int) -> NDArray[np.float32]:
        """Logits before training on the batch; the metrics take them in, and the batch waits for its turn."""
        prepared = self.step.prepare(batch)
        logits = self.step.score(prepared)
        unusable = int((~np.isfinite(logits)).sum())
        if unusable:
            self.step.skip(row, f"{unusable} of {len(batch)} scores are not finite")
            return logits
        if batch.label is not None:
            self.metrics.update(logits, batch.label, batch.weight)
        self._waiting.append((row, batch, prepared))
        if len(self._waiting) > self.config.label_delay:
            self._learn_next()
        return logits

    def _learn_next(self) -> None:
        row, _, prepared = self._waiting.popleft()
        self.step.learn(prepared, row)

    def _keep_records(self, seen: int) -> None:
        if self._record_is_due(seen):
            self._record()
        if self.config.record_every is None and len(self.history) >= _MOST_RECORDS:
            self.history = self.history[1::2]
            self._coarseness *= 2
        if self.store is not None and _passed(self.config.checkpoint_every, self.rows - seen, self.rows):
            self.store.save_async(self.batches, self.state_dict())

    def _record_is_due(self, seen: int) -> bool:
        if self.config.record_every is not None:
            return _passed(self.config.record_every, self.rows - seen, self.rows)
        # A record costs a sort of the window: one after every eighth of it stays cheap, and windows closer than that
        # would hardly differ.
        last = self.history[-1]["rows"] if self.history else 0
        return self.rows - last >= self._coarseness * min(self.rows, self.config.window) / 8

    def _record(self) -> None:
        if self.rows and (not self.history or self.history[-1]["rows"] != self.rows):
            self.history.append({**self.metrics.compute(), "rows": float(self.rows), "seconds": self.seconds})

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, as arrays and plain values."""
        return {
            "step": self.step.state_dict(),
            "metrics": self.metrics.state_dict(),
            "random": random_state(self.model.device),
            "position": dict(self._position),
            "rows": self.rows,
            "batches": self.batches,
            "seconds": self.seconds,
            "history": self.history,
            "coarseness": self._coarseness,
            "waiting": [[row, _arrays(batch)] for row, batch, _ in self._waiting],
            "extra": {name: thing.state_dict() for name, thing in self.extra.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that a trainer of the same model and configuration saved."""
        self.step.load_state_dict(state["step"])
        self.metrics.load_state_dict(state["metrics"])
        set_random_state(state["random"], self.model.device)
        self._position = state["position"]
        self.rows, self.batches, self.seconds = state["rows"], state["batches"], state["seconds"]
        self.history = list(state["history"])
        self._coarseness = state["coarseness"]
        waiting = ((row, Batch(**arrays)) for row, arrays in state["waiting"])
        self._waiting = deque((row, batch, self.step.prepare(batch)) for row, batch in waiting)
        for name, thing in self.extra.items():
            thing.load_state_dict(state["extra"][name])

    def restore(self, source: Source) -> int | None:
        """Take up the newest sound checkpoint and seek the source to it; the rows done, None if there is none."""
        checkpoint = None if self.store is None else self.store.load()
        if checkpoint is None:
            return None
        self.load_state_dict(checkpoint.state)
        source.seek(self._position)
        return self.rows


def _passed(step: int, before: int, now: int) -> bool:
    """Whether a multiple of `step` lies between, the later end included."""
    return now // step > before // step


def _arrays(batch: Batch) -> dict[str, NDArray[Any]]:
    """The arrays of a batch by name, those that are there."""
    named = {name: getattr(batch, name) for name in ("numerical", "categorical", "label", "weight", "time")}
    return {name: array for name, array in named.items() if array is not None}
