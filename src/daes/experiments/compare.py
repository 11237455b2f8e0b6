"""Methods × backbones × seeds on one stream: the paper's table, on your data."""

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from daes.backbone import BACKBONES
from daes.choices import check_choices
from daes.embedding import METHODS
from daes.experiments.comparison import Comparison
from daes.experiments.results import Results
from daes.experiments.trial import MEASURES, Protocol, Trial, TrialResult, run_trial
from daes.experiments.workers import Death, run_tasks
from daes.storage.run_folder import write_json
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.environment import environment
from daes.training.offline import OfflineConfig

TABLE = "comparison.json"


@dataclass(frozen=True)
class TrialProgress:
    """How far a comparison is: rows of one trial that are done, or its result."""

    trial: Trial
    rows: int = 0
    total_rows: int | None = None
    result: TrialResult | None = None
    trials_done: int = 0
    trials: int = 0


Progress = Callable[[TrialProgress], None]
Methods = Sequence[str] | Mapping[str, Mapping[str, Any]]


def compare(
    data: Any,
    *,
    methods: Methods,
    backbones: Sequence[str] = ("deepfm",),
    seeds: int | Sequence[int] = 5,
    protocol: Protocol = "stream",
    train: TrainConfig | None = None,
    offline: OfflineConfig | None = None,
    model: Mapping[str, Any] | None = None,
    sample_rows: int = 10_000,
    device: str = "cpu",
    jobs: int = 1,
    out: str | Path | None = None,
    subject: str | None = None,
    max_bytes: int = 1 << 30,
    progress: Progress | None = None,
) -> Comparison:
    """Train every method on every backbone with every seed, and make a table of it.

    Trials are independent. With `out`, each result is a line of `results.jsonl` as soon as it is there, and a later
    call skips every trial whose settings, data and code are the same; more methods or seeds can be added that way. A
    trial that fails is reported and does not stop the others; it is tried again by the next call.

    Fair play: with one seed, all methods start from the same categorical tables and the same network (where the shapes
    are the same) and see the same batches. Offline methods are fitted on the first `sample_rows` rows, which are also
    scored: that favours them, as in the paper.

    Args:
        data: a `Dataset`, or anything that `Dataset.open` takes.
        methods: names of `daes.embedding.METHODS`, or labels with what they stand for, as
            `{"daes, M=20": {"method": "daes", "num_meta": 20}}`.
        backbones: names of `daes.backbone.BACKBONES`.
        seeds: how many, from 0, or which.
        protocol: "stream": one pass, scored before trained on; measured over the stream and over its second half.
            "paper": `train_offline`; measured on the test part.
        train: how to train; its seed is not used.
        offline: what the paper's protocol adds.
        model: further arguments of `CTRModel.from_sample`; `embedding_options` go to the methods that have them.
        sample_rows: rows that models are set up on (stream).
        device: where to compute.
        jobs: processes. With more than one, a script needs the usual `if __name__ == "__main__":`, and torch's threads
            are divided among them.
        out: a folder for the results.
        subject: the label that is tested against the best baseline; `daes` if it is among them.
        max_bytes: a process keeps the rows in memory if they take no more than this, else each trial reads them anew.
        progress: called as trials advance and end.

    >>> comparison = compare(
    ...     "adstream:3000", methods=["fe", "ple"], backbones=["fnn"], seeds=2, train=TrainConfig(batch_size=500)
    ... )
    >>> [row["label"] for row in comparison.rows()], comparison.failures
    (['fe', 'ple'], [])
    """
    data = Dataset.open(data)
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ValueError(f"seeds must be a positive number or distinct seeds, got {seeds}")
    if jobs < 1:
        raise ValueError(f"jobs must be positive, got {jobs}")
    model = dict(model or {})
    check_choices("protocol", [protocol], MEASURES)
    variants = _variants(methods, model.pop("embedding_options", None) or {})
    check_choices("backbones", backbones, BACKBONES)
    if subject is not None:
        check_choices("subject", [subject], variants)
    trials = [
        Trial(
            label=label,
            method=method,
            backbone=backbone,
            seed=seed,
            protocol=protocol,
            train=train or TrainConfig(),
            offline=offline or OfflineConfig(),
            model={**model, "embedding_options": options},
            sample_rows=sample_rows,
            device=device,
        )
        for seed, backbone, (label, (method, options)) in product(numbers, backbones, variants.items())
    ]
    results = run_trials(trials, data, jobs=jobs, out=out, max_bytes=max_bytes, progress=progress)
    comparison = Comparison(
        protocol, tuple(variants), tuple(backbones), numbers, tuple(results), subject, _about(data, device)
    )
    if out is not None:
        write_json(Path(out) / TABLE, comparison.to_dict(), indent=None)
    return comparison


def run_trials(
    trials: Sequence[Trial],
    data: Dataset,
    *,
    jobs: int = 1,
    out: str | Path | None = None,
    max_bytes: int = 1 << 30,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> list[TrialResult]:
    """Results of trials, in their order; see `compare`.

    Past `deadline`, a `time.monotonic`, no further trial is begun, and those without a result are left out.
    """
    fingerprint = data.fingerprint()
    keys = [trial.key(fingerprint) for trial in trials]
    with Results(None if out is None else Path(out)) as done:
        missing = [trial for trial, key in zip(trials, keys, strict=True) if key not in done]
        noted = _Noted(progress, len(trials), len(trials) - len(missing))
        for trial, result in _run(missing, data, max_bytes, jobs, noted.rows, lambda: _is_past(deadline)):
            done.add(replace(result, key=trial.key(fingerprint)))
            noted.result(trial, result)
        known = done.results
        return [replace(known[key], label=trial.label) for trial, key in zip(trials, keys, strict=True) if key in known]


def _run(
    trials: Sequence[Trial],
    data: Dataset,
    max_bytes: int,
    jobs: int,
    note: Callable[[Trial, tuple[int, int | None]], None],
    enough: Callable[[], bool],
) -> Iterator[tuple[Trial, TrialResult]]:
    attempt = partial(_attempt, max_bytes)
    if jobs == 1 or len(trials) < 2:
        for trial in trials:
            if enough():
                return
            yield trial, attempt(data, trial, partial(note, trial))
        return
    threads = max(1, torch.get_num_threads() // jobs)
    for trial, result in run_tasks(attempt, data, trials, jobs=jobs, threads=threads, on_note=note, enough=enough):
        yield trial, _failure(trial, str(result)) if isinstance(result, Death) else result


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _attempt(max_bytes: int, data: Dataset, trial: Trial, note: Callable[[Any], None]) -> TrialResult:
    """The result of a trial, also where that is an error."""
    try:
        return run_trial(trial, data.in_memory(max_bytes), lambda rows, total: note((rows, total)))
    except Exception as error:
        sentence = " ".join(str(error).split()) or "no message"
        return replace(_failure(trial, f"{type(error).__name__}: {sentence}"), traceback=traceback.format_exc())


def _failure(trial: Trial, error: str) -> TrialResult:
    return TrialResult(
        trial.label, trial.method, trial.backbone, trial.seed, trial.protocol, error=error, settings=trial.settings()
    )


class _Noted:
    """Tells the caller how far things are."""

    def __init__(self, progress: Progress | None, trials: int, done: int) -> None:
        self._progress = progress
        self._cells, self._done = trials, done

    def rows(self, trial: Trial, rows: tuple[int, int | None]) -> None:
        if self._progress is not None:
            self._progress(TrialProgress(trial, *rows, trials_done=self._done, trials=self._cells))

    def result(self, trial: Trial, result: TrialResult) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(TrialProgress(trial, result.rows, result.rows, result, self._done, self._cells))


def _variants(methods: Methods, common: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each label with its method and that method's options: its own, and of the common ones those that it has."""
    if not isinstance(methods, Mapping):
        names = [methods] if isinstance(methods, str) else list(methods)
        check_choices("methods", names, METHODS)
        methods = {name: {} for name in names}
    if not methods:
        raise ValueError("methods must name at least one, got none")
    variants: dict[str, tuple[str, dict[str, Any]]] = {}
    for label, described in methods.items():
        method = str(described.get("method", label))
        check_choices("methods", [method], METHODS)
        known = METHODS[method].options
        own = {name: value for name, value in described.items() if name != "method"}
        variants[label] = (method, {name: value for name, value in common.items() if name in known} | own)
    for name in common:
        if not any(name in options for _, options in variants.values()):
            raise ValueError(f"no method of {', '.join(variants)} has an option {name!r}")
    return variants


def _about(data: Dataset, device: str) -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": data.describe(),
        "schema": json.loads(data.schema.to_json()),
        "environment": environment(device),
    }
