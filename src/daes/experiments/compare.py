"""Methods × backbones × seeds on one stream: the paper's table, on your data."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
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
from daes.experiments.log import ARRAYS, ResultLog
from daes.experiments.predictions import Predictions
from daes.experiments.rivals import RIVALS
from daes.experiments.trial import MEASURES, Protocol, Trial, TrialResult, run_trial
from daes.experiments.workers import RunTasks
from daes.storage.run_folder import write_json
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.environment import environment
from daes.training.offline import OfflineConfig

TABLE = "comparison.json"


@dataclass(frozen=True)
class TrialProgress:
    """Progress of a comparison: the finished rows of a trial, or its result."""

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
    refit: bool = True,
    authors_inputs: bool = True,
    device: str = "cpu",
    jobs: int = 1,
    run: RunTasks | None = None,
    out: str | Path | None = None,
    subject: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train every method on every backbone with every seed, and tabulate the results.

    Trials are independent; a process keeps the rows in memory if they take no more than 1 GB. With `out`, each result
    is appended to `results.jsonl` as soon as it is there (and its scores, row by row, written to a file of
    `predictions/`), and a later call skips every trial with the same settings, data and code; more methods or seeds can
    be added that way. A trial that fails is reported and does not stop the others; the next call tries it again.

    The subject is tested against every baseline on the rows (`method_tests`); seeds only give the spread.

    To be fair, all methods with the same seed start from the same categorical tables and the same network (where the
    shapes are the same) and see the same batches. Numbers are scaled as each method's authors do it
    (`MethodEntry.authors`). Offline methods are fitted on the first `sample_rows` rows, which are also scored: that
    favours them, as in the paper; with `refit` those whose rows stand for ranks are fitted again along the stream.

    Args:
        data: a `Dataset`, or anything that `Dataset.open` takes.
        methods: names of `daes.embedding.METHODS` and of `daes.experiments.rivals.RIVALS`, or labels with a method and
            its options, as in `{"daes, M=20": {"method": "daes", "num_meta": 20}}`.
        backbones: names of `daes.backbone.BACKBONES`.
        seeds: the number of seeds (0, 1, …), or a list of them.
        protocol: "stream": one pass, scored before trained on; measured over the stream and over its second half.
            "paper": `train_offline`; measured on the test part.
        model: further arguments of `CTRModel.from_sample`; `embedding_options` go to the methods that have them.
        train: configuration of the training; its seed is replaced by each trial's.
        offline: further configuration of the paper's protocol; its `train` is not used.
        sample_rows: number of first rows that table sizes, context and offline methods are fitted on (stream).
        refit: fit offline methods whose rows stand for ranks again on the past after 1/16, 1/8, 1/4 and 1/2 of the
            stream.
        device: where to compute.
        authors_inputs: scale numbers as each method's authors do; otherwise by the method's preset.
        jobs: number of processes. With more than one, a script needs the usual `if __name__ == "__main__":`, and
            torch's threads are divided among them.
        run: what runs the trials instead of processes on this machine, such as `daes.engines.ray.RayTasks`.
        out: a folder for the results.
        subject: the label that is tested against the baselines; `daes` if it is among them.
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
    variants = _variants(methods, model.pop("embedding_options", None) or {}, authors_inputs)
    check_choices("backbones", backbones, BACKBONES)
    if subject is not None:
        check_choices("subject", [subject], variants)
    chosen = {label: method for label, (method, _) in variants.items()}
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
            refit=refit and protocol == "stream",
            device=device,
        )
        for label, backbone, seed in trial_cells(chosen, backbones, numbers)
        for method, options in [variants[label]]
    ]
    results = run_trials(trials, data, jobs=jobs, run=run, out=out, progress=progress)
    results = repeat_rivals(results, backbones)
    about = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": data.describe(),
        "schema": json.loads(data.schema.to_json()),
        "environment": environment(device),
    }
    comparison = Comparison(
        protocol, tuple(variants), tuple(backbones), numbers, tuple(results), subject, about=about
    ).tested()
    if out is not None:
        write_json(Path(out) / TABLE, comparison.to_dict(), indent=None)
    return comparison


def trial_cells(
    methods: Mapping[str, str], backbones: Sequence[str], seeds: Sequence[int]
) -> list[tuple[str, str, int]]:
    """Label, backbone and seed of every trial; `methods` has the method of each label.

    A rival has neither seeds nor a backbone: the result of one trial stands in every column (`repeat_rivals`).

    >>> trial_cells({"PLE": "ple", "trees": "lightgbm"}, ["fnn"], [0, 1])
    [('PLE', 'fnn', 0), ('trees', 'fnn', 0), ('PLE', 'fnn', 1)]
    """
    return [
        (label, backbone, seed)
        for seed, backbone, (label, method) in product(seeds, backbones, methods.items())
        if method not in RIVALS or (seed, backbone) == (seeds[0], backbones[0])
    ]


def repeat_rivals(results: Sequence[TrialResult], backbones: Sequence[str]) -> list[TrialResult]:
    """The results, and those of rivals on the first backbone once more for each other one: a rival has no backbone."""
    rivals = [result for result in results if result.method in RIVALS and result.error is None]
    return [*results, *(replace(rival, backbone=name) for rival in rivals for name in backbones[1:])]


def run_trials(
    trials: Sequence[Trial],
    data: Dataset,
    *,
    jobs: int = 1,
    run: RunTasks | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> list[TrialResult]:
    """Results of trials, in their order; see `compare`.

    Past `deadline`, a value of `time.monotonic`, no further trial is started, and those without a result are left out.
    """
    # Unpickling a class in another process imports its module, which registers the class there.
    methods = {trial.method for trial in trials}
    classes: set[type] = {registry[name].cls for registry in (METHODS, RIVALS) for name in methods if name in registry}
    classes |= {BACKBONES[trial.backbone].cls for trial in trials}
    fingerprint = data.fingerprint()
    keys = [trial.key(fingerprint) for trial in trials]
    with ResultLog(None if out is None else Path(out)) as log:
        done = sum(key in log for key in keys)

        def note(trial: Trial, rows: tuple[int, int | None]) -> None:
            if progress is not None:
                progress(TrialProgress(trial, *rows, trials_done=done, trials=len(trials)))

        for trial, content in log.run_missing(
            partial(_run_trial, classes),
            dict(zip(keys, trials, strict=True)),
            shared=data,
            describe=Trial.describe,
            jobs=jobs,
            threads=max(1, torch.get_num_threads() // jobs),
            on_note=note,
            deadline=deadline,
            run=run,
        ):
            done += 1
            if progress is not None:
                result = TrialResult.from_dict(content)
                progress(TrialProgress(trial, result.rows, result.rows, result, done, len(trials)))
        return [
            replace(
                TrialResult.from_dict(log.results[key]),
                label=trial.label,
                predictions=partial(_read_predictions, log, key),
            )
            for trial, key in zip(trials, keys, strict=True)
            if key in log.results
        ]


def _read_predictions(log: ResultLog, key: str) -> Predictions | None:
    arrays = log.arrays(key)
    return None if arrays is None else Predictions.from_arrays(arrays)


def _run_trial(classes: Collection[type], data: Dataset, trial: Trial, note: Callable[[Any], None]) -> dict[str, Any]:
    result = run_trial(trial, data.in_memory(), lambda rows, total: note((rows, total)))
    predictions = result.predictions()
    return {**result.to_dict(), **({} if predictions is None else {ARRAYS: predictions.to_arrays()})}


def _variants(
    methods: Methods, common: Mapping[str, Any], authors_inputs: bool
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Label → method and its options: those of its authors, the common ones that it has, and those given for it."""
    if not isinstance(methods, Mapping):
        names = [methods] if isinstance(methods, str) else list(methods)
        check_choices("methods", names, [*METHODS, *RIVALS])
        methods = {name: {} for name in names}
    if not methods:
        raise ValueError("methods must name at least one, got none")
    variants: dict[str, tuple[str, dict[str, Any]]] = {}
    for label, described in methods.items():
        method = str(described.get("method", label))
        check_choices("methods", [method], [*METHODS, *RIVALS])
        known = METHODS[method].options if method in METHODS else RIVALS[method].options
        authors = dict(METHODS[method].authors) if authors_inputs and method in METHODS else {}
        own = {name: value for name, value in described.items() if name != "method"}
        variants[label] = (method, authors | {name: value for name, value in common.items() if name in known} | own)
    for name in common:
        if not any(name in options for _, options in variants.values()):
            raise ValueError(f"no method of {', '.join(variants)} has an option {name!r}")
    return variants
