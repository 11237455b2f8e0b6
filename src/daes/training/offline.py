"""The paper's protocol: a chronological split and several epochs, of which the best on validation rows is kept."""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.metrics import StreamMetrics, WindowAUC
from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.step import BadBatch, TrainingError, TrainingStep


@dataclass(frozen=True)
class OfflineConfig:
    """The configuration of the paper's protocol.

    Args:
        train: batch size, optimiser and so on; options for a single pass (label delay, window, records, checkpoints)
            are not used.
        split: shares of the rows for training, validation and test, in the order of the stream.
        epochs: maximum number of passes over the training part.
        patience: training ends after this many consecutive epochs without a lower validation LogLoss.
        shuffle: whether each epoch reads the training part in another random order, by the seed; the part is then kept
            in memory.
    """

    # NOTE[DIFF]: the paper does not say whether rows are shuffled. Here they are not by default, because its estimators
    # read the stream in one pass, and a shuffled stream has no drift.

    train: TrainConfig = field(default_factory=TrainConfig)
    split: tuple[float, float, float] = (0.8, 0.1, 0.1)
    epochs: int = 50
    patience: int = 5
    shuffle: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if len(self.split) != 3 or min(self.split) <= 0 or abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(f"split must be three positive parts that add up to 1, got {self.split}")


@dataclass(frozen=True)
class OfflineResult:
    """The result of the protocol.

    Args:
        test: metrics on the test part, of the model of the best epoch.
        valid: metrics on the validation part, of the same model.
        epoch: the best epoch, counted from 1.
        history: one record per epoch: `epoch`, `train_logloss` (of each batch before its step), `valid_auc`,
            `valid_logloss`, `seconds`.
        rows: number of rows of the three parts.
        bad_batches: batches that were not learned from.
    """

    test: dict[str, float]
    valid: dict[str, float]
    epoch: int
    history: list[dict[str, float]]
    rows: tuple[int, int, int]
    bad_batches: list[BadBatch] = field(default_factory=list)


OfflineProgress = Callable[[int, int], None]
"""Called with the number of rows learned from so far and that of all epochs together."""

OnScored = Callable[[Batch, NDArray[np.float32]], None]
"""Called with a batch and its logits."""


def train_offline(
    model: CTRModel,
    source: Source,
    config: OfflineConfig | None = None,
    *,
    progress: OfflineProgress | None = None,
    on_test: OnScored | None = None,
) -> OfflineResult:
    """Train on the first part of the rows, choose the best epoch on the second, test on the third.

    An offline method that is not fitted yet is fitted on the training part. Distributions and vocabularies are updated
    in the first epoch only, so that they see each row once. Afterwards the model is that of the best epoch.

    Args:
        model: the model to train.
        source: the rows; read several times from row 0.
        config: how to train.
        progress: called after every batch of training.
        on_test: called with every batch of the test part and its logits from the model of the best epoch.

    >>> from daes.simulation import AdStream
    >>> stream = AdStream(num_rows=5000, seed=0)
    >>> _ = torch.manual_seed(0)
    >>> model = CTRModel(stream.schema, "ple", "fnn", sizes=100)
    >>> result = train_offline(model, stream, OfflineConfig(TrainConfig(batch_size=500), epochs=2))
    >>> result.rows, len(result.history), 0.3 < result.test["logloss"] < 0.8
    ((4000, 500, 500), 2, True)
    """
    config = config or OfflineConfig()
    started = time.perf_counter()
    train, valid, test = split_rows(source, model.schema, config)
    if model.needs_fit:
        model.fit_embedding(read_part(source, model.schema, train))
    torch.manual_seed(config.train.seed)
    step = TrainingStep(model, config.train)
    in_memory = read_part(source, model.schema, train) if config.shuffle else None
    history: list[dict[str, float]] = []
    best: dict[str, Any] = {}
    for epoch in range(1, config.epochs + 1):
        step.observing = epoch == 1
        model.evidence.reset()  # else rows would be learned with their own labels, counted in the epoch before
        if in_memory is None:
            batches = iter_part(source, model.schema, train, config.train.batch_size)
        else:
            batches = _shuffled(in_memory, config.train.batch_size, [config.train.seed, epoch])
        loss, rows, learned = 0.0, 0, 0
        for batch in batches:
            if step.learn(batch, train.start + rows):
                loss += step.loss * len(batch)
                learned += len(batch)
            rows += len(batch)
            if progress is not None:
                progress((epoch - 1) * len(train) + rows, config.epochs * len(train))
        scores = evaluate_part(step, source, valid)
        seconds = time.perf_counter() - started
        record = {"valid_auc": scores["auc"], "valid_logloss": scores["logloss"], "seconds": seconds}
        history.append({"epoch": float(epoch), "train_logloss": loss / learned if learned else float("nan"), **record})
        if np.isfinite(scores["logloss"]) and (not best or scores["logloss"] < best["valid"]["logloss"]):
            best = {"epoch": epoch, "valid": scores, "state": deepcopy(model.state_dict())}
        elif epoch - best.get("epoch", 0) >= config.patience:
            break
    if not best:
        raise TrainingError(f"none of {len(history)} epochs had a finite LogLoss on the validation part")
    model.load_state_dict(best["state"])
    scores = evaluate_part(step, source, test, on_test)
    parts = (len(train), len(valid), len(test))
    return OfflineResult(scores, best["valid"], best["epoch"], history, parts, step.bad_batches)


def split_rows(source: Source, schema: Schema, config: OfflineConfig) -> tuple[range, range, range]:
    """The rows of the three parts, in the order of the stream."""
    total = source.num_rows
    if total is None:
        source.seek({"row": 0})
        total = sum(len(batch) for batch in source.iter_batches(schema, config.train.batch_size))
    marks = [0, *(round(total * share) for share in np.cumsum(config.split[:2])), total]
    train, valid, test = (range(start, stop) for start, stop in pairwise(marks))
    if not (train and valid and test):
        raise ValueError(
            "each part must have at least one row, got "
            f"{total} rows split into {len(train)}, {len(valid)} and {len(test)}"
        )
    return train, valid, test


def iter_part(source: Source, schema: Schema, rows: range, batch_size: int) -> Iterator[Batch]:
    """Batches of these rows of the source, in order."""
    source.seek({"row": rows.start})
    left = len(rows)
    for batch in source.iter_batches(schema, batch_size):
        yield batch[:left]
        left -= len(batch)
        if left <= 0:
            return


def read_part(source: Source, schema: Schema, rows: range) -> Batch:
    """These rows of the source in memory."""
    return Batch.concat(list(iter_part(source, schema, rows, 65_536)))


def evaluate_part(
    step: TrainingStep, source: Source, rows: range, on_batch: OnScored | None = None
) -> dict[str, float]:
    """Metrics on these rows, with the exact AUC; nothing is learned. All are NaN if any score is."""
    metrics, exact = StreamMetrics(window=None), WindowAUC(len(rows))
    for batch in iter_part(source, step.model.schema, rows, step.config.batch_size):
        assert batch.label is not None
        logits = step.score(batch)
        if on_batch is not None:
            on_batch(batch, logits)
        if np.isnan(logits).any():
            return dict.fromkeys(metrics.compute(), float("nan"))
        metrics.update(logits, batch.label, batch.weight)
        exact.update(logits, batch.label, batch.weight)
    return {**metrics.compute(), "auc": exact.compute()}


def _shuffled(rows: Batch, batch_size: int, seed: Sequence[int]) -> Iterator[Batch]:
    order = np.random.default_rng(seed).permutation(len(rows))
    for start in range(0, len(order), batch_size):
        yield rows[order[start : start + batch_size]]
