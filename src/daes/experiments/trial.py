"""One trial of a comparison: a method on a backbone with a seed, trained and evaluated."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import nan
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from daes.embedding import METHODS
from daes.experiments.fingerprint import code_fingerprint
from daes.experiments.log import result_key
from daes.experiments.predictions import Predictions
from daes.experiments.rivals import RIVALS
from daes.metrics import StreamMetrics
from daes.model import CTRModel
from daes.storage.run_folder import plain, strict
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.offline import OfflineConfig, iter_part, read_part, split_rows, train_offline
from daes.training.optimizer import count_parameters
from daes.training.trainer import BatchCallback, StreamTrainer

Protocol = Literal["stream", "paper"]
MEASURES: dict[Protocol, tuple[str, ...]] = {
    "stream": ("auc", "logloss", "half_auc", "half_logloss"),
    "paper": ("auc", "logloss"),
}
"""The metrics of each protocol: over the stream and over its second half, or on the test part."""

_RECORDS = 100
_STREAM_COLUMNS = ("rows", "auc", "logloss", "window_auc", "window_logloss")


@dataclass(frozen=True)
class Trial:
    """What to train and how to evaluate it: everything that determines the result, except the data.

    Args:
        label: name of the method in the table.
        method: a name of `daes.embedding.METHODS`, or of `daes.experiments.rivals.RIVALS`.
        backbone: a name of `daes.backbone.BACKBONES`; ignored by a rival.
        seed: of the model's initial weights, of dropout, and of the method's own random numbers.
        protocol: "stream" (one pass, every batch scored before it is trained on) or "paper" (see `train_offline`).
        train: training configuration; its seed is replaced by the trial's.
        offline: further configuration of the paper's protocol; its `train` is not used.
        model: further arguments of `CTRModel.from_sample`.
        sample_rows: number of first rows that table sizes, context and offline methods are fitted on (stream). The
            paper's protocol fits on the training part.
        refit: whether offline methods whose rows stand for ranks are fitted again on all past rows after 1/16, 1/8,
            1/4 and 1/2 of the stream, as far as that is beyond `sample_rows` (stream).
        device: where to compute.
        numerical: the numerical columns the model sees; None for all.
    """

    label: str
    method: str
    backbone: str
    seed: int
    protocol: Protocol = "stream"
    train: TrainConfig = field(default_factory=TrainConfig)
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    model: Mapping[str, Any] = field(default_factory=dict)
    sample_rows: int = 10_000
    refit: bool = False
    device: str = "cpu"
    numerical: tuple[str, ...] | None = None

    def settings(self) -> dict[str, Any]:
        """All fields as plain values."""
        values: dict[str, Any] = strict(asdict(self))
        values["train"]["seed"] = self.seed
        del values["offline"]["train"]
        if self.protocol == "stream":
            del values["offline"]
        return values

    def key(self, fingerprint: str) -> str:
        """The key of its result, given the fingerprint of the data. It does not depend on the label."""
        settings = {name: value for name, value in self.settings().items() if name != "label"}
        return result_key(settings, fingerprint, code_fingerprint())

    def describe(self) -> dict[str, Any]:
        """The fields of a result that describe its trial."""
        names = ("label", "method", "backbone", "seed", "protocol")
        return {**{name: getattr(self, name) for name in names}, "settings": self.settings()}


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial: a line of results.jsonl (docs/run-folder.md).

    `eighths` has each metric on each eighth of the evaluated rows; `predictions` loads the scores of these rows, or
    returns None where they were not kept.
    """

    label: str
    method: str
    backbone: str
    seed: int
    protocol: Protocol
    metrics: dict[str, float] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0
    parameters: int = 0
    bad_batches: int = 0
    history: dict[str, list[float]] = field(default_factory=dict)
    eighths: dict[str, list[float]] = field(default_factory=dict)
    error: str | None = None
    traceback: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    predictions: Callable[[], Predictions | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def rows_per_second(self) -> float:
        """Throughput of the whole trial: reading, training and evaluation."""
        return self.rows / self.seconds if self.seconds else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """All fields except the predictions, as plain values for strict JSON."""
        content = {name: value for name, value in vars(self).items() if name != "predictions"}
        values: dict[str, Any] = strict({**content, "rows_per_second": self.rows_per_second})
        return values

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "TrialResult":
        """The inverse of `to_dict`; an undefined metric is NaN again."""

        def number(value: float | None) -> float:
            return nan if value is None else value

        fields = {name: value for name, value in content.items() if name != "rows_per_second"}
        metrics, eighths = fields.get("metrics", {}), fields.get("eighths", {})
        fields["metrics"] = {name: number(value) for name, value in metrics.items()}
        fields["eighths"] = {name: [number(value) for value in values] for name, values in eighths.items()}
        return cls(**fields)


Progress = Callable[[int, int | None], None]
"""Called now and then with the number of finished rows and the total, None where it is not known."""


def run_trial(trial: Trial, data: Dataset, progress: Progress | None = None) -> TrialResult:
    """Train and evaluate one trial. One seed gives the same result, bit for bit, on one machine.

    Whatever the method, models with the same seed and backbone see the same batches and start with the same
    categorical tables and the same network, where these have the same shape.

    >>> data = Dataset.open("adstream:4000")
    >>> result = run_trial(Trial("ple", "ple", "fnn", seed=0, train=TrainConfig(batch_size=500)), data)
    >>> result.rows, sorted(result.metrics)
    (4000, ['auc', 'half_auc', 'half_logloss', 'logloss'])
    """
    started = time.perf_counter()
    if trial.numerical is not None:
        data = data.with_schema(replace(data.schema, numerical=trial.numerical))
    if trial.method in RIVALS:
        run = _run_rival
    else:
        run = _run_stream if trial.protocol == "stream" else _run_paper
    result = run(trial, data, data.from_start(prefetch=2), _throttled(progress))
    return replace(result, seconds=time.perf_counter() - started)


def _run_stream(trial: Trial, data: Dataset, source: Source, progress: Progress) -> TrialResult:
    train = trial.train
    sample = data.sample(trial.sample_rows, batch_size=train.batch_size, skip_bad_batches=train.bad_batch == "skip")
    model = _build(trial, data, sample)
    scored: list[Predictions] = []

    def record(trainer: StreamTrainer, batch: Batch, logits: NDArray[np.float32]) -> None:
        # A batch with a score that is not finite was skipped as a whole.
        _keep(scored, batch, logits if np.isfinite(logits).all() else np.full_like(logits, np.nan))
        progress(trainer.rows, source.num_rows)

    callbacks: list[BatchCallback] = [record]
    if trial.refit and model.numerical is not None and model.numerical.refits:
        callbacks.append(_Refit(trial, data.count_rows()))
    trainer = StreamTrainer(model, replace(train, seed=trial.seed), callbacks=callbacks)
    result = trainer.run(source)
    history = _columns(result.history, _STREAM_COLUMNS)
    return _result(trial, count_parameters(model), result.rows, scored, history, len(result.bad_batches))


def _run_paper(trial: Trial, data: Dataset, source: Source, progress: Progress) -> TrialResult:
    config = replace(trial.offline, train=replace(trial.train, seed=trial.seed))
    part, *_ = split_rows(source, data.schema, config)
    model = _build(trial, data, read_part(source, data.schema, part))
    scored: list[Predictions] = []
    result = train_offline(model, source, config, progress=progress, on_test=partial(_keep, scored))
    rows = result.rows[0] * len(result.history)
    history = _columns(result.history, ("epoch", "train_logloss", "valid_auc", "valid_logloss"))
    metrics = {
        "auc": result.test["auc"],
        "logloss": result.test["logloss"],
        "valid_auc": result.valid["auc"],
        "valid_logloss": result.valid["logloss"],
        "epoch": result.epoch,
        "epochs": len(result.history),
    }
    found = _result(trial, count_parameters(model), rows, scored, history, len(result.bad_batches))
    return replace(found, metrics=metrics)


def _run_rival(trial: Trial, data: Dataset, source: Source, progress: Progress) -> TrialResult:
    """A rival sees the same batches as a model, scores each before it learns from it, and waits as long for labels."""
    stream, train = trial.protocol == "stream", trial.train
    options = trial.model.get("embedding_options") or {}
    rival = RIVALS[trial.method].build(data.schema, data.count_rows() if stream else None, **options)
    scored: list[Predictions] = []
    if not stream:
        part, _, test = split_rows(source, data.schema, trial.offline)
        for batch in iter_part(source, data.schema, part, train.batch_size):
            rival.learn(batch)
        rival.finish()
        for batch in iter_part(source, data.schema, test, train.batch_size):
            _keep(scored, batch, rival.score(batch))
        return _result(trial, rival.size, len(part), scored, {}, 0)
    metrics, waiting = StreamMetrics(train.window), deque[Batch]()
    history: list[dict[str, float]] = []
    rows = 0
    for number, batch in enumerate(data.batches(train.batch_size, skip_bad_batches=train.bad_batch == "skip")):
        logits = rival.score(batch)
        _keep(scored, batch, logits)
        assert batch.label is not None
        metrics.update(logits, batch.label, batch.weight)
        waiting.append(batch)
        if len(waiting) > train.label_delay:
            rival.learn(waiting.popleft())
        rows += len(batch)
        if rows >= train.window * (len(history) + 1) / 8 or number == 0:
            history.append({**metrics.compute(), "rows": float(rows)})
        progress(rows, source.num_rows)
    history.append({**metrics.compute(), "rows": float(rows)})
    return _result(trial, rival.size, rows, scored, _columns(history, _STREAM_COLUMNS), 0)


def _build(trial: Trial, data: Dataset, sample: Batch) -> CTRModel:
    torch.manual_seed(trial.seed)
    options = dict(trial.model.get("embedding_options") or {})
    if "seed" in METHODS[trial.method].options:  # the method draws random numbers of its own
        options.setdefault("seed", trial.seed)
    arguments = {**trial.model, "embedding": trial.method, "backbone": trial.backbone, "embedding_options": options}
    return CTRModel.from_sample(data.schema, sample, **arguments).to(trial.device)


def _keep(scored: list[Predictions], batch: Batch, logits: NDArray[np.float32]) -> None:
    if batch.label is not None:
        scored.append(Predictions(logits, batch.label > 0, batch.weight))


def _result(
    trial: Trial,
    parameters: int,
    rows: int,
    scored: list[Predictions],
    history: dict[str, list[float]],
    bad_batches: int,
) -> TrialResult:
    predictions = Predictions.concat(scored)
    if not predictions.scored.any():
        raise ValueError("no batch of the stream could be scored")
    metrics = predictions.measure()
    if trial.protocol == "stream":
        metrics |= {f"half_{name}": value for name, value in predictions.second_half.measure().items()}
    return TrialResult(
        **trial.describe(),
        metrics=metrics,
        rows=rows,
        parameters=parameters,
        bad_batches=bad_batches,
        history=history,
        eighths=predictions.curve(),
        predictions=lambda: predictions,
    )


def _columns(history: list[dict[str, float]], names: tuple[str, ...]) -> dict[str, list[float]]:
    """One list per name, of at most 100 evenly spaced records; the last one is included."""
    picked = np.unique(np.linspace(0, len(history) - 1, min(len(history), _RECORDS)).round().astype(int))
    return {name: plain([history[index][name] for index in picked]) for name in names}


def _throttled(progress: Progress | None) -> Progress:
    """A callback that passes on at most two calls per second."""
    last = 0.0

    def call(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if progress is not None and now - last >= 0.5:
            last = now
            progress(done, total)

    return call


class _Refit:
    """Callback that fits an offline method again whenever the past has doubled, on all past rows with known labels."""

    def __init__(self, trial: Trial, total_rows: int) -> None:
        marks = (total_rows // 2**power for power in (4, 3, 2, 1))
        self._due = deque(mark for mark in marks if mark > trial.sample_rows)
        self._delay = trial.train.label_delay
        self._past: list[Batch] = []

    def __call__(self, trainer: StreamTrainer, batch: Batch, logits: NDArray[np.float32]) -> None:
        if not self._due:
            return
        self._past.append(Batch(batch.numerical, batch.categorical[:, :0], batch.label))
        if trainer.rows >= self._due[0]:
            self._due.popleft()
            known = self._past[: len(self._past) - self._delay]
            if known:
                trainer.model.fit_embedding(Batch.concat(known))
            if not self._due:
                self._past.clear()
