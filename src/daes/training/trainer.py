"""One pass over a stream: every batch is scored before it is trained on."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.source import Source
from daes.training.checkpoint import CheckpointStore
from daes.training.metrics import StreamMetrics
from daes.training.optimizer import Optimizers, make_optimizers

_MOST_BAD_IN_A_ROW = 20


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Validated once, here.

    Args:
        batch_size: rows a step.
        optimizer: "adam", "adamw", "adagrad" or "sgd".
        learning_rate: the step size.
        clip_norm: largest norm of the gradient, None for no clipping.
        amp: compute in bfloat16 where that is safe.
        label_delay: batches that pass between scoring a row and learning its label.
        window: rows of the metrics' window.
        bad_batch: what to do where the loss or the gradient is not finite: "stop" or "skip".
        record_every: rows between two records of the history.
        checkpoint_every: rows between two checkpoints.
        seed: where torch's random numbers (dropout) start.
    """

    batch_size: int = 8192
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    clip_norm: float | None = None
    amp: bool = False
    label_delay: int = 0
    window: int = 100_000
    bad_batch: Literal["stop", "skip"] = "stop"
    record_every: int = 100_000
    checkpoint_every: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "window", "record_every", "checkpoint_every"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, however: {name}={getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, however: learning_rate={self.learning_rate}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be positive, however: clip_norm={self.clip_norm}")
        if self.label_delay < 0:
            raise ValueError(f"label_delay must not be negative, however: label_delay={self.label_delay}")
        if self.bad_batch not in ("stop", "skip"):
            raise ValueError(f"bad_batch must be 'stop' or 'skip', however: bad_batch={self.bad_batch!r}")


class TrainingError(RuntimeError):
    """Training cannot go on."""


@dataclass(frozen=True)
class BadBatch:
    """A batch that was not learned from."""

    row: int
    """The stream's row that the batch starts at."""
    reason: str


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

    >>> from daes.stream.adstream import AdStream
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
        self.optimizers: Optimizers = make_optimizers(model, self.config.optimizer, self.config.learning_rate)
        self.metrics = StreamMetrics(self.config.window)
        self.rows = 0
        self.batches = 0
        self.seconds = 0.0
        self.history: list[dict[str, float]] = []
        self.bad_batches: list[BadBatch] = []
        self._waiting: deque[Batch] = deque()
        self._bad_in_a_row = 0

    def run(self, source: Source, *, resume: bool = True, max_rows: int | None = None) -> TrainResult:
        """Go through the source from where it stands, or from where the newest checkpoint stands.

        Args:
            source: the rows; their columns are those of the model's schema.
            resume: go on from a checkpoint of the store, if there is one.
            max_rows: stop after so many rows of the stream, None for all.
        """
        if self.model.needs_fit:
            raise TrainingError(
                "the model's method is offline and not fitted: use CTRModel.from_sample or fit_embedding"
            )
        torch.manual_seed(self.config.seed)
        if not (resume and self._restore(source)):
            self._position = source.position()
        started = time.perf_counter() - self.seconds
        for batch in self._batches(source, max_rows):
            logits = self._score(batch)
            self._learn_when_due(batch)
            self.rows += len(batch)
            self.batches += 1
            self.seconds = time.perf_counter() - started
            self._position = source.position()
            for callback in self.callbacks:
                callback(self, batch, logits)
            self._keep_records(len(batch))
        while self._waiting:
            self._learn(self._waiting.popleft(), self.rows)
        self._record()
        if self.store is not None:
            self.store.save(self.batches, self.state_dict())
        return TrainResult(self.rows, self.seconds, self.metrics.compute(), self.history, self.bad_batches)

    def _batches(self, source: Source, max_rows: int | None) -> Iterator[Batch]:
        batches = source.iter_batches(self.model.schema, self.config.batch_size)
        if max_rows is None:
            return batches
        left = max_rows - self.rows
        return islice(batches, max(0, -(-left // self.config.batch_size)))

    @torch.no_grad()
    def _score(self, batch: Batch) -> NDArray[np.float32]:
        """Logits before training on the batch, in eval mode; the metrics take them in."""
        self.model.eval()
        with self._precision():
            logits: NDArray[np.float32] = self.model(batch).float().cpu().numpy()
        if not np.isfinite(logits).all():
            self._bad(self.rows, f"{int((~np.isfinite(logits)).sum())} scores are not finite")
        elif batch.label is not None:
            self.metrics.update(logits, batch.label, batch.weight)
        return logits

    def _learn_when_due(self, batch: Batch) -> None:
        self._waiting.append(batch)
        if len(self._waiting) > self.config.label_delay:
            self._learn(self._waiting.popleft(), self.rows)

    def _learn(self, batch: Batch, row: int) -> None:
        self.model.train()
        self.optimizers.zero_grad()
        with self._precision():
            logits = self.model(batch)
        # λ‖Θ‖² is in the optimiser's weight decay, which adds its gradient without the sum over all parameters.
        loss = self.model.cross_entropy(logits.float(), batch)
        if not torch.isfinite(loss):
            return self._bad(row, f"the loss is {loss.item()}")
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self._clip()
        if not torch.isfinite(norm):
            return self._bad(row, f"the gradient's norm is {norm.item()}")
        self.optimizers.step()
        self._bad_in_a_row = 0
        return None

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None and not p.grad.is_sparse]
        if self.config.clip_norm is None:
            return torch.nn.utils.get_total_norm(gradients)
        parameters = [p for p in self.model.parameters() if p.grad is not None and not p.grad.is_sparse]
        return torch.nn.utils.clip_grad_norm_(parameters, self.config.clip_norm)

    def _bad(self, row: int, reason: str) -> None:
        self.optimizers.zero_grad()
        self.bad_batches.append(BadBatch(row, reason))
        self._bad_in_a_row += 1
        if self.config.bad_batch == "stop":
            raise TrainingError(f"the batch at row {row} cannot be learned from: {reason}")
        if self._bad_in_a_row > _MOST_BAD_IN_A_ROW:
            raise TrainingError(f"{self._bad_in_a_row} bad batches in a row, the last at row {row}: {reason}")

    def _precision(self) -> AbstractContextManager[Any]:
        if not self.config.amp:
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16)

    def _keep_records(self, seen: int) -> None:
        before = self.rows - seen
        if self.rows // self.config.record_every > before // self.config.record_every:
            self._record()
        if (
            self.store is not None
            and self.rows // self.config.checkpoint_every > before // self.config.checkpoint_every
        ):
            self.store.save_async(self.batches, self.state_dict())

    def _record(self) -> None:
        if not self.history or self.history[-1]["rows"] != self.rows:
            self.history.append({**self.metrics.compute(), "rows": float(self.rows), "seconds": self.seconds})

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, as arrays and plain values."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizers": self.optimizers.state_dict(),
            "metrics": self.metrics.state_dict(),
            "random": _random_state(self.model.device),
            "position": self._position,
            "rows": self.rows,
            "batches": self.batches,
            "seconds": self.seconds,
            "history": self.history,
            "bad_batches": [[bad.row, bad.reason] for bad in self.bad_batches],
            "bad_in_a_row": self._bad_in_a_row,
            "waiting": [batch_arrays(batch) for batch in self._waiting],
            "extra": {name: thing.state_dict() for name, thing in self.extra.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that a trainer of the same model and configuration saved."""
        self.model.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        self.metrics.load_state_dict(state["metrics"])
        _set_random_state(state["random"])
        self._position = state["position"]
        self.rows, self.batches, self.seconds = state["rows"], state["batches"], state["seconds"]
        self.history = list(state["history"])
        self.bad_batches = [BadBatch(row, reason) for row, reason in state["bad_batches"]]
        self._bad_in_a_row = state["bad_in_a_row"]
        self._waiting = deque(Batch(**arrays) for arrays in state["waiting"])
        for name, thing in self.extra.items():
            thing.load_state_dict(state["extra"][name])

    def _restore(self, source: Source) -> bool:
        checkpoint = None if self.store is None else self.store.load()
        if checkpoint is None:
            return False
        self.load_state_dict(checkpoint.state)
        source.seek(self._position)
        return True


def batch_arrays(batch: Batch) -> dict[str, NDArray[Any]]:
    """The arrays of a batch by name, those that are there."""
    named = {name: getattr(batch, name) for name in ("numerical", "categorical", "label", "weight", "time")}
    return {name: array for name, array in named.items() if array is not None}


def _random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _set_random_state(state: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
