"""One trial of a comparison: a method on a backbone with a seed, trained and judged."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
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
from daes.storage.run_folder import strict
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.monitor import plain
from daes.training.offline import OfflineConfig, iter_part, read_part, split_rows, train_offline
from daes.training.optimizer import count_parameters
from daes.training.trainer import BatchCallback, StreamTrainer

Protocol = Literal["stream", "paper"]
MEASURES: dict[Protocol, tuple[str, ...]] = {
    "stream": ("auc", "logloss", "half_auc", "half_logloss"),
    "paper": ("auc", "logloss"),
}
"""What is measured by each protocol: over the stream and over its second half, or on the test part."""

_RECORDS = 100
_STREAM_COLUMNS = ("rows", "auc", "logloss", "window_auc", "window_logloss")


@dataclass(frozen=True)
class Trial:
    """What to train and how to judge it; everything that the result depends on but the data.

    Args:
        label: what the method is called in the table.
        method: a name of `daes.embedding.METHODS`, or of `daes.experiments.rivals.RIVALS`.
        backbone: a name of `daes.backbone.BACKBONES`; nothing to a rival.
        seed: of the model's start, of dropout, and of the method's own random numbers.
        protocol: "stream" (one pass, every batch scored before it is trained on) or "paper" (see `train_offline`).
        train: how to train; the seed is the trial's.
        offline: what the paper's protocol adds; its `train` is not used.
        model: further arguments of `CTRModel.from_sample`.
        sample_rows: rows at the start that sizes, context and offline methods are found on (stream). By the paper's
            protocol it is the training part, or `offline.fit_rows` of it.
        refit: whether offline methods whose rows stand for ranks are fitted again on all rows of the past after 1/16,
            1/8, 1/4 and 1/2 of the stream, from `sample_rows` on (stream).
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
        """All of it as plain values."""
        plain_values: dict[str, Any] = strict(asdict(self))
        plain_values["train"]["seed"] = self.seed
        del plain_values["offline"]["train"]
        if self.protocol == "stream":
            del plain_values["offline"]
        return plain_values

    def key(self, fingerprint: str) -> str:
        """Identifies its result, given the fingerprint of the data. The label is not in it."""
        settings = {name: value for name, value in self.settings().items() if name != "label"}
        return result_key(settings, fingerprint, code_fingerprint())

    def describe(self) -> dict[str, Any]:
        """What a result says of its trial."""
        names = ("label", "method", "backbone", "seed", "protocol")
        return {**{name: getattr(self, name) for name in names}, "settings": self.settings()}


@dataclass(frozen=True)
class TrialResult:
    """What a trial gave: a line of results.jsonl (docs/run-folder.md).

    `eighths` has a measure of each eighth of the rows it was judged on; `predictions` reads the scores of these rows.
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
    predictions: Callable[[], Predictions | None] | None = field(default=None, repr=False, compare=False)

    @property
    def rows_per_second(self) -> float:
        """Throughput of everything together."""
        return self.rows / self.seconds if self.seconds else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """All of it but the predictions, as strict JSON has it."""
        content = asdict(replace(self, predictions=None))
        del content["predictions"]
        plain_content: dict[str, Any] = strict({**content, "rows_per_second": self.rows_per_second})
        return plain_content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "TrialResult":
        """What `to_dict` gave; a metric that was not defined is NaN again."""
        fields = {name: value for name, value in content.items() if name != "rows_per_second"}
        metrics, eighths = fields.get("metrics", {}), fields.get("eighths", {})
        fields["metrics"] = {name: _number(value) for name, value in metrics.items()}
        fields["eighths"] = {name: [_number(value) for value in values] for name, values in eighths.items()}
        return cls(**fields)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


Progress = Callable[[int, int | None], None]
"""Called now and then with the rows that are done and all of them, if known."""


def run_trial(trial: Trial, data: Dataset, progress: Progress | None = None) -> TrialResult:
    """Train and judge one trial. One seed gives the same result, bit for bit, on one machine.

    Models of one seed and backbone start with the same categorical tables and the same network where these have the
    same shape, and see the same batches, whatever the method.

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
    total = source.num_rows
    scores = _Scores()

    def note(trainer: StreamTrainer, *_: Any) -> None:
        progress(trainer.rows, total)

    callbacks: list[BatchCallback] = [scores.after_batch, note]
    if trial.refit and model.numerical is not None and model.numerical.refits:
        callbacks.append(_Refit(trial, data.count_rows()))
    trainer = StreamTrainer(model, replace(trial.train, seed=trial.seed), callbacks=callbacks)
    result = trainer.run(source)
    history = _columns(result.history, _STREAM_COLUMNS)
    return _result(trial, count_parameters(model), result.rows, scores, history, len(result.bad_batches))


def _run_paper(trial: Trial, data: Dataset, source: Source, progress: Progress) -> TrialResult:
    config = replace(trial.offline, train=replace(trial.train, seed=trial.seed))
    part, *_ = split_rows(source, data.schema, config)
    model = _build(trial, data, read_part(source, data.schema, part, config.fit_rows))
    scores = _Scores()
    result = train_offline(model, source, config, progress=progress, on_test=scores.add)
    rows = result.rows[0] * len(result.history)
    history = _columns(result.history, ("epoch", "train_logloss", "valid_auc", "valid_logloss"))
    found = _result(trial, count_parameters(model), rows, scores, history, len(result.bad_batches))
    measured = {
        "auc": result.test["auc"],
        "logloss": result.test["logloss"],
        "valid_auc": result.valid["auc"],
        "valid_logloss": result.valid["logloss"],
        "epoch": result.epoch,
        "epochs": len(result.history),
    }
    return replace(found, metrics=measured)


def _run_rival(trial: Trial, data: Dataset, source: Source, progress: Progress) -> TrialResult:
    """A rival sees the same batches, scores each before it learns from it, and waits as long for labels."""
    stream = trial.protocol == "stream"
    options = trial.model.get("embedding_options") or {}
    rival = RIVALS[trial.method].build(data.schema, data.count_rows() if stream else None, **options)
    scores = _Scores()
    if not stream:
        train, _, test = split_rows(source, data.schema, trial.offline)
        for batch in iter_part(source, data.schema, train, trial.train.batch_size):
            rival.learn(batch)
        rival.finish()
        for batch in iter_part(source, data.schema, test, trial.train.batch_size):
            scores.add(batch, rival.score(batch))
        return _result(trial, rival.size, len(train), scores, {}, 0)
    metrics, waiting = StreamMetrics(trial.train.window), deque[Batch]()
    history: list[dict[str, float]] = []
    rows, total = 0, source.num_rows
    skip = trial.train.bad_batch == "skip"
    for number, batch in enumerate(data.batches(trial.train.batch_size, skip_bad_batches=skip)):
        logits = rival.score(batch)
        scores.add(batch, logits)
        assert batch.label is not None
        metrics.update(logits, batch.label, batch.weight)
        waiting.append(batch)
        if len(waiting) > trial.train.label_delay:
            rival.learn(waiting.popleft())
        rows += len(batch)
        if rows >= trial.train.window * (len(history) + 1) / 8 or number == 0:
            history.append({**metrics.compute(), "rows": float(rows)})
        progress(rows, total)
    history.append({**metrics.compute(), "rows": float(rows)})
    return _result(trial, rival.size, rows, scores, _columns(history, _STREAM_COLUMNS), 0)


def _build(trial: Trial, data: Dataset, sample: Batch) -> CTRModel:
    torch.manual_seed(trial.seed)
    options = dict(trial.model.get("embedding_options") or {})
    if "seed" in METHODS[trial.method].options:  # a method with random numbers of its own draws them by the seed
        options.setdefault("seed", trial.seed)
    arguments = {**trial.model, "embedding": trial.method, "backbone": trial.backbone, "embedding_options": options}
    return CTRModel.from_sample(data.schema, sample, **arguments).to(trial.device)


def _result(
    trial: Trial, parameters: int, rows: int, scores: "_Scores", history: dict[str, list[float]], bad_batches: int
) -> TrialResult:
    predictions = scores.predictions
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
    """One list per name, of at most 100 records, the last included."""
    picked = np.unique(np.linspace(0, len(history) - 1, min(len(history), _RECORDS)).round().astype(int))
    return {name: plain([history[place][name] for place in picked]) for name in names}


def _throttled(progress: Progress | None, seconds: float = 0.5) -> Progress:
    """No more calls than one in so many seconds."""
    last = 0.0

    def call(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if progress is not None and now - last >= seconds:
            last = now
            progress(done, total)

    return call


class _Refit:
    """Fits an offline method again, on all rows of the past whose labels are known, when the past has doubled."""

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


class _Scores:
    """Collects the predictions of a trial, 5 bytes per row (9 with weights)."""

    def __init__(self) -> None:
        self._pieces: list[Predictions] = []

    def after_batch(self, trainer: StreamTrainer, batch: Batch, logits: NDArray[np.float32]) -> None:
        """Of a batch that was skipped because some of its scores are not finite, none is kept."""
        self.add(batch, logits if np.isfinite(logits).all() else np.full_like(logits, np.nan))

    def add(self, batch: Batch, logits: NDArray[np.float32]) -> None:
        if batch.label is not None:
            self._pieces.append(Predictions(logits, batch.label > 0, batch.weight))

    @cached_property
    def predictions(self) -> Predictions:
        found = Predictions.concat(self._pieces)
        if not found.scored.any():
            raise ValueError("no batch of the stream could be scored")
        return found
