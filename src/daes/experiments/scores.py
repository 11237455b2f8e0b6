"""Scores of methods × backbones × measures over seeds: their means, the best, tests and ranks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Self

from daes.experiments.significance import LEVEL, average_rank, t_test
from daes.formatting import fixed
from daes.table import Cell

if TYPE_CHECKING:
    from daes.experiments.trial import TrialResult

Scores = Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]


def higher_is_better(measure: str) -> bool:
    """Whether a larger value of the measure is better."""
    return measure.endswith("auc")


def defined(value: float | None) -> float | None:
    """A score, or None where it is not defined, such as the AUC of one class."""
    return value if value is not None and isfinite(value) else None


@dataclass(frozen=True)
class SeedScores:
    """One measure of one method on one backbone: the values of the seeds for which it is defined."""

    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Self:
        """From one value per seed; those that are None or not finite are left out.

        >>> SeedScores.of([0.5, None, float("nan")]).values
        (0.5,)
        """
        return cls(tuple(value for value in map(defined, values) if value is not None))

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def mean(self) -> float:
        """Mean over the seeds; NaN without any."""
        return fmean(self.values) if self.values else nan

    @property
    def std(self) -> float | None:
        """Standard deviation between seeds (n − 1); None with fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class BaselineTest:
    """The subject against the best baseline in one column; `p_value` is None with fewer than two seeds."""

    backbone: str
    measure: str
    subject: str
    baseline: str
    difference: float
    p_value: float | None

    @property
    def better(self) -> bool:
        """Whether the subject has the better score: a higher AUC, a lower LogLoss."""
        return self.difference > 0 if higher_is_better(self.measure) else self.difference < 0

    @property
    def significant(self) -> bool:
        """Whether the difference is significant at the 5 % level."""
        return self.p_value is not None and self.p_value < LEVEL


def collect_scores(results: "Iterable[TrialResult]", measures: Mapping[str, str]) -> Scores:
    """Label → backbone → name → one value per result, None where undefined; `measures` maps names to metrics."""
    scores: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for result in results:
        column = scores.setdefault(result.label, {}).setdefault(result.backbone, {})
        for name, measure in measures.items():
            column.setdefault(name, []).append(defined(result.metrics.get(measure)))
    return scores


@dataclass(frozen=True)
class ScoreTable:
    """Scores by label, backbone and measure.

    >>> table = ScoreTable.of({"ple": {"fnn": {"auc": [0.70, 0.71]}}, "daes": {"fnn": {"auc": [0.75, 0.76]}}})
    >>> table.get("daes", "fnn", "auc").mean, table.best("fnn", "auc"), table.ranks("auc", ["fnn"])
    (0.755, 'daes', {'ple': 2.0, 'daes': 1.0})
    >>> test = table.test("daes", ["ple"], "fnn", "auc")
    >>> round(test.difference, 4), test.better, test.significant
    (0.05, True, True)
    """

    scores: Mapping[tuple[str, str, str], SeedScores]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, values: Scores) -> Self:
        """From label → backbone → measure → one value per seed, None where undefined."""
        scores = {
            (label, backbone, measure): SeedScores.of(seeds)
            for label, by_backbone in values.items()
            for backbone, by_measure in by_backbone.items()
            for measure, seeds in by_measure.items()
        }
        return cls(scores, tuple(values))

    def get(self, label: str, backbone: str, measure: str) -> SeedScores:
        """The scores of one method in one column; empty where it has none."""
        return self.scores.get((label, backbone, measure), SeedScores())

    def best(self, backbone: str, measure: str, labels: Sequence[str] | None = None) -> str | None:
        """The label with the best mean in a column, the first of several; None where there is no score."""
        scores = {label: self.get(label, backbone, measure) for label in (self.labels if labels is None else labels)}
        means = {label: seeds.mean for label, seeds in scores.items() if seeds}
        pick = max if higher_is_better(measure) else min
        return pick(means, key=lambda label: means[label]) if means else None

    def cell(self, label: str, backbone: str, measure: str, mark: str = "") -> Cell:
        """Mean ± deviation for a table; strong where it equals the best of the column as printed."""
        scores, best = self.get(label, backbone, measure), self.best(backbone, measure)
        strong = bool(scores) and fixed(scores.mean) == fixed(self.get(best or label, backbone, measure).mean)
        spread = "" if scores.std is None else f"± {fixed(scores.std)}"
        return Cell(fixed(scores.mean), strong=strong, note=f"{spread} {mark}".strip())

    def test(self, subject: str, baselines: Sequence[str], backbone: str, measure: str) -> BaselineTest | None:
        """The subject against the best of the baselines by the paper's t-test; None where one side has no score."""
        mine, best = self.get(subject, backbone, measure), self.best(backbone, measure, baselines)
        if not mine or best is None:
            return None
        theirs = self.get(best, backbone, measure)
        enough = min(len(mine.values), len(theirs.values)) > 1
        p_value = t_test(mine.values, theirs.values) if enough else None
        return BaselineTest(backbone, measure, subject, best, mine.mean - theirs.mean, p_value)

    def ranks(self, measure: str, backbones: Sequence[str], labels: Sequence[str] | None = None) -> dict[str, float]:
        """The average rank of each label over the backbones, 1 being the best; a label without a score ranks last."""
        names = self.labels if labels is None else tuple(labels)
        means = [[self.get(label, backbone, measure).mean for backbone in backbones] for label in names]
        if not names:
            return {}
        ranks = average_rank(means, higher_is_better=higher_is_better(measure))
        return dict(zip(names, ranks.tolist(), strict=True))
