"""Training experiments: variants × backbones × seeds as resumable trials, and the scores that come of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, product
from math import log2
from statistics import fmean
from typing import Any

from daes.embedding import METHODS
from daes.experiments.compare import TrialProgress, run_trials
from daes.experiments.method_tests import method_tests
from daes.experiments.scores import collect_scores, defined
from daes.experiments.trial import Trial, TrialResult
from daes.formatting import fixed
from daes.paper.experiment import Execution, ExperimentSettings, Findings, OutOfTimeError
from daes.paper.published import BATCH_SIZE, L2_WEIGHTS, LEARNING_RATES, as_published
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig, suggest_batch_size

LEARNING_RATE, L2 = 1e-3, 1e-6
"""Where nothing is tuned: the fastest learning rate and the weakest L2 weight of the paper's grid."""
HEADLINE = {"stream": {"auc": "half_auc", "logloss": "half_logloss"}, "paper": {"auc": "auc", "logloss": "logloss"}}
"""The measures that tables show: over the second half of the stream, or on the test part."""
WHOLE = {"stream": {"whole_auc": "auc", "whole_logloss": "logloss"}, "paper": {}}
"""Further measures that are kept: over the whole stream."""
SCOPE = {"stream": "second half of one pass, scored before trained on", "paper": "test part, chronological 80/10/10"}

_STEPS = 1000
_SMALLEST_BATCH = 256
_TUNING_SHARE = 4  # the stream protocol tunes on the first 1/4 of the stream
_SAMPLE_ROWS = 10_000
_VOCABULARY = {"mode": "vocabulary"}


@dataclass(frozen=True)
class Variant:
    """What is trained under a label.

    Args:
        method: a name of `daes.embedding.METHODS`.
        options: of the method.
        model: further arguments of `CTRModel.from_sample`, such as `context`.
        numerical: the numerical columns it sees; None for all.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    numerical: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Tuned:
    """What tuning chooses."""

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
        settings, data, execution: as given to the experiment.
        variants: by label.
        backbones: where the settings name none.

    Returns:
        `training` (how it was trained), `scores` (label → backbone → measure → one value per seed, None where there is
        none), `row_tests` (every two labels on each backbone, tested on the rows), `tuned` (label → backbone → what
        tuning chose), `seconds` (label → mean of a trial), `failures` (a line for each trial without a result) and
        `notes` (a line for each trial that left something out).
    """
    data = data.head(settings.rows)
    rows = data.count_rows()
    names = settings.backbones or tuple(backbones)
    suitable = suggest_batch_size if settings.recipe == "default" else suitable_batch_size
    batch_size = settings.batch_size or suitable(rows)
    grid = _Grid(settings, data, execution, variants, names, rows, batch_size)
    chosen = grid.tune() if settings.tune else {place: Tuned() for place in product(variants, names)}
    places = [
        (label, backbone, seed, chosen[label, backbone])
        for seed, backbone, label in product(range(settings.seeds), names, variants)
    ]
    results = grid.train(places, rows)
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
        "tuned": _chosen(chosen) if settings.tune else {},
        "seconds": _seconds(results),
        "failures": grid.failures,
        "notes": grid.notes,
    }


def suitable_batch_size(rows: int) -> int:
    """The paper's 8192, or on fewer rows a power of two that makes about a thousand steps, at least 256.

    >>> [suitable_batch_size(rows) for rows in (20_000, 137_139, 1_000_000, 45_840_617)]
    [256, 256, 1024, 8192]
    """
    return min(max(int(2.0 ** round(log2(max(rows, 1) / _STEPS))), _SMALLEST_BATCH), BATCH_SIZE)


def sample_rows(rows: int) -> int:
    """The rows at the start that models are set up on; none of the second half, which is judged."""
    return max(min(_SAMPLE_ROWS, rows // 2), 1)


def run_all(trials: Sequence[Trial], data: Dataset, execution: Execution) -> list[TrialResult]:
    """The results of all trials, in their order; an `OutOfTimeError` where the deadline comes first."""

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
    """The trials of one experiment, and what went wrong in them."""

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
        """The learning rate and L2 weight of least LogLoss on validation data, by one seed, for each variant and place.

        By the paper's protocol that is its validation part; by the stream protocol the first quarter of the stream. A
        run that had to skip more batches than another is worse, whatever its LogLoss over the others.
        """
        stream = self.settings.protocol == "stream"
        measure = HEADLINE["stream"]["logloss"] if stream else "valid_logloss"
        rows = max(self.rows // _TUNING_SHARE, 1) if stream else self.rows
        grid = [Tuned(*pair) for pair in product(LEARNING_RATES, L2_WEIGHTS)]
        places = [(label, name, 0, tuned) for label, name in product(self.variants, self.backbones) for tuned in grid]
        best: dict[tuple[str, str], tuple[tuple[int, float], Tuned]] = {}
        for (label, name, _, tuned), result in zip(places, self.train(places, rows, "tuning "), strict=True):
            loss = defined(result.metrics.get(measure))
            if loss is not None:
                found = ((result.bad_batches, loss), tuned)
                best[label, name] = min(best.get((label, name), found), found, key=lambda pair: pair[0])
        return {place: best[place][1] if place in best else Tuned() for place in product(self.variants, self.backbones)}

    def train(self, places: Sequence[tuple[str, str, int, Tuned]], rows: int, kind: str = "") -> list[TrialResult]:
        """Results of (label, backbone, seed, tuned), in their order, on the first `rows` rows."""
        results = run_all([self._trial(*place, rows) for place in places], self.data.head(rows), self.execution)
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
        authors = METHODS[variant.method].authors if self.default_recipe else {}
        options = {**authors, **variant.options}
        return Trial(
            label=label,
            method=variant.method,
            backbone=backbone,
            seed=seed,
            protocol=self.settings.protocol,
            train=self._config(tuned),
            model={
                **({"evidence": False} if self.default_recipe else {**as_published(backbone), "l2": tuned.l2}),
                # As usual with Criteo: ids seen fewer than five times share one row.
                "categorical_options": _VOCABULARY,
                **variant.model,
                **({"embedding_options": options} if options else {}),
            },
            sample_rows=sample_rows(rows),
            refit=self.default_recipe and self.settings.protocol == "stream",
            device=self.settings.device,
            numerical=variant.numerical,
        )

    @property
    def default_recipe(self) -> bool:
        """Whether to train as the defaults do, with the inputs of each method's authors."""
        return self.settings.recipe == "default"

    def _config(self, tuned: Tuned) -> TrainConfig:
        if self.default_recipe:
            return TrainConfig(batch_size=self.batch_size, bad_batch="skip")
        return TrainConfig(
            batch_size=self.batch_size, optimizer="adam", learning_rate=tuned.learning_rate, bad_batch="skip"
        )


def _row_tests(
    results: Sequence[TrialResult], labels: Iterable[str], backbones: Sequence[str], protocol: str
) -> list[Findings]:
    titles = {measure: name for name, measure in HEADLINE[protocol].items()}
    found = []
    for backbone in backbones:  # one after the other: their predictions need not be in memory at once
        here = [result for result in results if result.backbone == backbone]
        for test in method_tests(here, combinations(labels, 2), [backbone], list(titles)):
            kept = ("subject", "baseline", "backbone", "difference", "low", "high", "delong", "bootstrap")
            found.append({"measure": titles[test.measure], **{name: getattr(test, name) for name in kept}})
    return found


def _seconds(results: Sequence[TrialResult]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for result in results:
        found.setdefault(result.label, []).append(result.seconds)
    return {label: fmean(several) for label, several in found.items()}


def _chosen(chosen: Mapping[tuple[str, str], Tuned]) -> Findings:
    nested: Findings = {}
    for (label, backbone), tuned in chosen.items():
        nested.setdefault(label, {})[backbone] = asdict(tuned)
    return nested
