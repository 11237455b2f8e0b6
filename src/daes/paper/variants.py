"""Training experiments: variants × backbones × seeds as resumable trials, and their scores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, product
from math import log2
from statistics import fmean
from typing import Any

import torch

from daes.embedding import METHODS
from daes.experiments.compare import TrialProgress, repeat_rivals, run_trials, trial_cells
from daes.experiments.method_tests import method_tests
from daes.experiments.rivals import RIVALS
from daes.experiments.scores import collect_scores, defined
from daes.experiments.trial import Trial, TrialResult
from daes.formatting import fixed
from daes.model import CTRModel
from daes.paper.experiment import Execution, ExperimentSettings, Findings, OutOfTimeError
from daes.paper.published import BATCH_SIZE, L2_WEIGHTS, LEARNING_RATES, as_published
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.config import TrainConfig, suggest_batch_size

LEARNING_RATE, L2 = 1e-3, 1e-6
"""Without tuning: the largest learning rate and the smallest L2 weight of the paper's grid."""
HEADLINE = {"stream": {"auc": "half_auc", "logloss": "half_logloss"}, "paper": {"auc": "auc", "logloss": "logloss"}}
"""The measures in the tables: over the second half of the stream, or on the test part."""
WHOLE = {"stream": {"whole_auc": "auc", "whole_logloss": "logloss"}, "paper": {}}
"""Further measures that are stored: over the whole stream."""
SCOPE = {"stream": "second half of one pass, scored before trained on", "paper": "test part, chronological 80/10/10"}

_STEPS = 1000
_SMALLEST_BATCH = 256
_TUNING_SHARE = 4  # the stream protocol tunes on the first 1/4 of the stream
_SAMPLE_ROWS = 10_000
_VOCABULARY = {"mode": "vocabulary"}


@dataclass(frozen=True)
class Variant:
    """A model to train.

    Args:
        method: a name of `daes.embedding.METHODS`.
        options: options of the method.
        model: further arguments of `CTRModel.from_sample`, such as `context`.
        numerical: the numerical columns it sees; None for all.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    numerical: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Tuned:
    """The tuned hyperparameters."""

    learning_rate: float = LEARNING_RATE
    l2: float = L2


def train_variants(
    settings: ExperimentSettings,
    data: Dataset,
    execution: Execution,
    variants: Mapping[str, Variant],
    backbones: Sequence[str],
) -> Findings:
    """Train every variant on every backbone with every seed.

    Args:
        settings, data, execution: as passed to the experiment.
        variants: by label.
        backbones: used if the settings name none.

    Returns:
        `training` (the training configuration), `scores` (label → backbone → measure → one value per seed, None where
        undefined), `row_tests` (each pair of labels on each backbone, tested on the rows), `tuned` (label → backbone →
        tuned hyperparameters), `seconds` (label → mean time of a trial), `failures` (a line for each trial without a
        result) and `notes` (a line for each trial that skipped batches).
    """
    data = data.head(settings.rows)
    rows = data.count_rows()
    names = settings.backbones or tuple(backbones)
    suitable = suggest_batch_size if settings.recipe == "default" else suitable_batch_size
    batch_size = settings.batch_size or suitable(rows)
    grid = _Grid(settings, data, execution, variants, names, rows, batch_size)
    tuned = grid.tune() if settings.tune else dict.fromkeys(product(variants, names), Tuned())
    methods = {label: variant.method for label, variant in variants.items()}
    cells = trial_cells(methods, names, range(settings.seeds))
    trained = grid.train([(label, backbone, seed, tuned[label, backbone]) for label, backbone, seed in cells], rows)
    results = repeat_rivals(trained, names)
    chosen = {label: {backbone: asdict(tuned[label, backbone]) for backbone in names} for label in variants}
    seconds = {label: [result.seconds for result in results if result.label == label] for label in variants}
    return {
        "training": {
            "protocol": settings.protocol,
            "recipe": settings.recipe,
            "scope": SCOPE[settings.protocol],
            "batch_size": batch_size,
            "learning_rate": None if settings.tune else LEARNING_RATE,
            "l2": None if settings.tune else L2,
            "backbones": list(names),
        },
        "scores": collect_scores(results, {**HEADLINE[settings.protocol], **WHOLE[settings.protocol]}),
        "row_tests": _row_tests(results, variants, names, settings.protocol),
        "tuned": chosen if settings.tune else {},
        "seconds": {label: fmean(several) for label, several in seconds.items()},
        "failures": grid.failures,
        "notes": grid.notes,
    }


def suitable_batch_size(rows: int) -> int:
    """The paper's 8192, or on fewer rows a power of two that makes about a thousand steps, at least 256.

    >>> [suitable_batch_size(rows) for rows in (20_000, 137_139, 1_000_000, 45_840_617)]
    [256, 256, 1024, 8192]
    """
    return min(max(int(2.0 ** round(log2(max(rows, 1) / _STEPS))), _SMALLEST_BATCH), BATCH_SIZE)


def published_model(
    schema: Schema, sample: Batch, method: str, backbone: str, *, seed: int, device: str, **options: Any
) -> CTRModel:
    """A model with a network of the paper, outside of a trial; further options are arguments of `CTRModel`."""
    torch.manual_seed(seed)
    options = {"categorical_options": _VOCABULARY, **as_published(backbone), **options}
    return CTRModel.from_sample(schema, sample, embedding=method, backbone=backbone, **options).to(device)


def sample_rows(rows: int) -> int:
    """The number of first rows that models are fitted on; none of the second half, which is evaluated."""
    return max(min(_SAMPLE_ROWS, rows // 2), 1)


def run_all(trials: Sequence[Trial], data: Dataset, execution: Execution) -> list[TrialResult]:
    """The results of all trials, in their order; an `OutOfTimeError` if the deadline comes first."""

    def note(state: TrialProgress) -> None:
        if state.result is not None:
            trial, result = state.trial, state.result
            outcome = result.error or f"AUC {fixed(result.metrics.get('auc'))}, {result.seconds:.0f} s"
            done = f"{state.trials_done}/{state.trials}"
            execution.note(f"{done} {trial.label} {trial.backbone} seed {trial.seed}: {outcome}")

    results = run_trials(
        trials, data, jobs=execution.jobs, out=execution.folder, progress=note, deadline=execution.deadline
    )
    if len(results) < len(trials):
        raise OutOfTimeError(f"{len(results)} of {len(trials)} trials are done")
    return results


@dataclass
class _Grid:
    """The trials of one experiment, with their failures."""

    settings: ExperimentSettings
    data: Dataset
    execution: Execution
    variants: Mapping[str, Variant]
    backbones: Sequence[str]
    rows: int
    batch_size: int
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tune(self) -> dict[tuple[str, str], Tuned]:
        """The learning rate and L2 weight with the lowest LogLoss on validation data, for each label and backbone.

        One seed is used. A rival has neither of them. Validation data are the validation part of the paper's protocol,
        or the first quarter of the stream. A trial that skipped more batches than another is worse, whatever its
        LogLoss over the other batches.
        """
        stream = self.settings.protocol == "stream"
        measure = HEADLINE["stream"]["logloss"] if stream else "valid_logloss"
        rows = max(self.rows // _TUNING_SHARE, 1) if stream else self.rows
        grid = [Tuned(*pair) for pair in product(LEARNING_RATES, L2_WEIGHTS)]
        columns = list(product(self.variants, self.backbones))
        tunable = [column for column in columns if self.variants[column[0]].method not in RIVALS]
        cells = [(*column, 0, tuned) for column in tunable for tuned in grid]
        found: dict[tuple[str, str], list[tuple[int, float, Tuned]]] = {column: [] for column in columns}
        for (label, name, _, tuned), result in zip(cells, self.train(cells, rows, "tuning "), strict=True):
            loss = defined(result.metrics.get(measure))
            if loss is not None:
                found[label, name].append((result.bad_batches, loss, tuned))
        return {
            column: min(tried, key=lambda one: one[:2])[-1] if tried else Tuned() for column, tried in found.items()
        }

    def train(self, cells: Sequence[tuple[str, str, int, Tuned]], rows: int, kind: str = "") -> list[TrialResult]:
        """Results of (label, backbone, seed, tuned), in their order, on the first `rows` rows."""
        results = run_all([self._trial(*cell, rows) for cell in cells], self.data.head(rows), self.execution)
        for result in results:
            where = f"{kind}{result.label} on {result.backbone}, seed {result.seed}"
            if result.error is not None:
                self.failures.append(f"{where}: {result.error}")
            elif result.bad_batches:
                many = "es were" if result.bad_batches > 1 else " was"
                self.notes.append(f"{where}: {result.bad_batches} batch{many} skipped, the scores are of the others")
        return results

    def _trial(self, label: str, backbone: str, seed: int, tuned: Tuned, rows: int) -> Trial:
        variant = self.variants[label]
        default = self.settings.recipe == "default"
        training: dict[str, Any] = {} if default else {"optimizer": "adam", "learning_rate": tuned.learning_rate}
        network = {"evidence": False} if default else {**as_published(backbone), "l2": tuned.l2}
        authors = METHODS[variant.method].authors if default and variant.method in METHODS else {}
        options = {**authors, **variant.options}
        return Trial(
            label=label,
            method=variant.method,
            backbone=backbone,
            seed=seed,
            protocol=self.settings.protocol,
            train=TrainConfig(batch_size=self.batch_size, bad_batch="skip", **training),
            model={
                **network,
                # As usual with Criteo: ids seen fewer than five times share one row.
                "categorical_options": _VOCABULARY,
                **variant.model,
                **({"embedding_options": options} if options else {}),
            },
            sample_rows=sample_rows(rows),
            refit=default and self.settings.protocol == "stream",
            device=self.settings.device,
            numerical=variant.numerical,
        )


def _row_tests(
    results: Sequence[TrialResult], labels: Iterable[str], backbones: Sequence[str], protocol: str
) -> list[Findings]:
    titles = {measure: name for name, measure in HEADLINE[protocol].items()}
    found = []
    for backbone in backbones:  # one at a time, to keep the predictions of only one in memory
        here = [result for result in results if result.backbone == backbone]
        for test in method_tests(here, combinations(labels, 2), [backbone], list(titles)):
            kept = ("subject", "baseline", "backbone", "difference", "low", "high", "delong", "bootstrap")
            found.append({"measure": titles[test.measure], **{name: getattr(test, name) for name in kept}})
    return found
