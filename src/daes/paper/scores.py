"""Scores of trained models as tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

import numpy as np

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.experiments.method_tests import ROW_TESTS
from daes.experiments.rivals import RIVALS
from daes.experiments.scores import BaselineTest, ScoreTable
from daes.experiments.significance import holm
from daes.formatting import count, counted, fixed, scientific
from daes.paper import figures
from daes.paper.experiment import Findings, Part, shown
from daes.paper.result import ExperimentResult
from daes.table import markdown_table

MEASURES = {"auc": "AUC", "logloss": "LogLoss"}
SEED_TEST, ROW_TEST = "t-test between seeds", f"{ROW_TESTS}, after Holm's correction"
"""The tests of differences: where predictions were not kept, and where they were."""
Series = Mapping[str, tuple[Sequence[float], Sequence[str]]]
"""Lines by title: positions on an axis, the same for all, and the labels of the scores there."""
_BACKBONES_SIDE_BY_SIDE = 3
_LINES_SHOWN = 20


def method_title(name: str) -> str:
    """The short title of a method; a label that is not the name of a method is returned as it is."""
    return METHODS[name].short if name in METHODS else RIVALS[name].short if name in RIVALS else name


def backbone_title(name: str) -> str:
    """The short title of a backbone; a label that is not the name of a backbone is returned as it is."""
    return BACKBONES[name].short if name in BACKBONES else name


def scores_of(found: Findings) -> ScoreTable:
    """The scores in the findings of a result."""
    return ScoreTable.of(found["scores"])


def scores_table(found: Findings) -> str:
    """AUC and LogLoss of each label on each backbone, mean ± deviation between seeds; the best mean in bold.

    One table, or one per measure if there are many backbones.
    """
    backbones = found["training"]["backbones"]
    if len(backbones) <= _BACKBONES_SIDE_BY_SIDE:
        return _scores_table(found, list(product(backbones, MEASURES)))
    return "\n\n".join(_scores_table(found, list(product(backbones, [measure]))) for measure in MEASURES)


def _scores_table(found: Findings, columns: Sequence[tuple[str, str]]) -> str:
    scores = scores_of(found)
    rows = [[method_title(label), *(scores.cell(label, *column) for column in columns)] for label in scores.labels]
    return markdown_table(["", *(f"{backbone_title(name)} {MEASURES[measure]}" for name, measure in columns)], rows)


def series_table(found: Findings, series: Series, axis: str) -> str:
    """The same for labels that lie on lines: per backbone a table with one row per position."""
    scores, parts = scores_of(found), []
    positions, _ = next(iter(series.values()))
    headers = [axis, *(f"{line}, {name}" for name in MEASURES.values() for line in series)]
    for backbone in found["training"]["backbones"]:
        rows = [
            [f"{position:g}"]
            + [scores.cell(labels[i], backbone, measure) for measure in MEASURES for _, labels in series.values()]
            for i, position in enumerate(positions)
        ]
        parts += [f"**{backbone_title(backbone)}:**", markdown_table(headers, rows)]
    return "\n\n".join(parts)


def how_trained(result: ExperimentResult) -> str:
    """A sentence on the training."""
    training, seeds = result.results["training"], result.settings["seeds"]
    choice = (
        "trained as the defaults are (Adagrad, no BatchNorm, no dropout), without evidence"
        if training.get("recipe") == "default"
        else f"learning rate {scientific(training['learning_rate'], 0)}, L2 {scientific(training['l2'], 0)}"
        if training["learning_rate"] is not None
        else "learning rate and L2 tuned on validation data over the paper's grid"
    )
    return (
        f"{result.where}; {training['scope']}; batch size {count(training['batch_size'])}, {choice}; "
        f"mean ± standard deviation of {counted(seeds, 'seed')}."
    )


def failures(found: Findings) -> str:
    """Failures and notes, a paragraph each; empty if there are none."""
    paragraphs = []
    for title, lines in (("Failed", found["failures"]), ("Note", found.get("notes", []))):
        paragraphs += [f"{title}: {line}" for line in lines[:_LINES_SHOWN]]
        if len(lines) > _LINES_SHOWN:
            paragraphs.append(f"{title}: {len(lines) - _LINES_SHOWN} more lines of this kind.")
    return "".join(f"\n\n{paragraph}" for paragraph in paragraphs)


@dataclass(frozen=True)
class PairComparison:
    """The difference in AUC between two labels, case by case, and the number of significant cases."""

    differences: tuple[float, ...]
    significantly_ahead: int
    significantly_behind: int
    test: str = SEED_TEST

    @property
    def ahead(self) -> int:
        return sum(difference > 0 for difference in self.differences)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Whether it is significantly ahead in most cases; empty if there are no cases."""
        cases = len(self.differences)
        return (shown(self.ahead, self.significantly_ahead, cases),) if cases else ()

    def __str__(self) -> str:
        if not self.differences:
            return "no results."
        return (
            f"ahead in {self.ahead} of {len(self.differences)} cases, significantly in {self.significantly_ahead} and "
            f"significantly behind in {self.significantly_behind} ({self.test}); "
            f"AUC {fixed(fmean(self.differences), sign=True)} on average."
        )


def compare_pairs(result: ExperimentResult, pairs: Iterable[tuple[str, str]]) -> PairComparison:
    """The first of each pair of labels against the second; a case is a pair on a backbone where both have results.

    Tests are on the rows where predictions were kept, corrected for the number of cases; otherwise between seeds.
    """
    scores = scores_of(result.results)
    columns = product(pairs, result.results["training"]["backbones"])
    found = [scores.test(one, [other], backbone, "auc") for (one, other), backbone in columns]
    tests, name = on_rows(result.results, [test for test in found if test is not None])
    significant = [test.better for test in tests if test.significant]
    ahead = sum(significant)
    return PairComparison(tuple(test.difference for test in tests), ahead, len(significant) - ahead, name)


def on_rows(found: Findings, tests: Sequence[BaselineTest]) -> tuple[list[BaselineTest], str]:
    """The same tests on the rows, corrected for their number, if predictions were kept; and the name of the test."""
    p_values = {
        (t["backbone"], t["measure"], frozenset([t["subject"], t["baseline"]])): max(t["bootstrap"], t["delong"] or 0)
        for t in found.get("row_tests", ())
    }
    known = [p_values.get((t.backbone, t.measure, frozenset([t.subject, t.baseline]))) for t in tests]
    if not tests or None in known:
        return list(tests), SEED_TEST
    corrected = holm([p for p in known if p is not None]).tolist()
    return [replace(test, p_value=p) for test, p in zip(tests, corrected, strict=True)], ROW_TEST


def changes(result: ExperimentResult, before: str, after: str) -> list[float | None]:
    """The difference in AUC between two labels on each backbone, None where one has no result."""
    scores, found = scores_of(result.results), []
    for backbone in result.results["training"]["backbones"]:
        one, other = (scores.get(label, backbone, "auc") for label in (before, after))
        found.append(other.mean - one.mean if one and other else None)
    return found


def line_figure(result: ExperimentResult, series: Series, xlabel: str, title: str) -> "figures.Figure":
    """AUC and LogLoss against a number, one row of panels per backbone."""
    scores, backbones = scores_of(result.results), result.results["training"]["backbones"]
    figure, axes = figures.panels(len(backbones), 2, 0.9 + 2.5 * len(backbones), sharex=True, squeeze=False)
    for panel, (backbone, measure) in zip(axes.flat, product(backbones, MEASURES), strict=True):
        ends = []
        for (line, (positions, labels)), colour in zip(series.items(), figures.CYCLE, strict=False):
            found = [scores.get(label, backbone, measure) for label in labels]
            means, spreads = np.array([one.mean for one in found]), np.array([one.std or 0.0 for one in found])
            panel.fill_between(positions, means - spreads, means + spreads, color=colour, alpha=0.15, linewidth=0)
            panel.plot(positions, means, "o-", color=colour)
            if np.isfinite(means[-1]):
                ends.append((float(positions[-1]), float(means[-1]), line, colour))
        figures.label_ends(panel, ends)
        panel.set_title(f"{backbone_title(backbone)}: {MEASURES[measure]}")
        if backbone == backbones[-1]:
            panel.set_xlabel(xlabel)
    bands = " · bands: ± one standard deviation between seeds" if result.settings["seeds"] > 1 else ""
    figures.headline(figure, title, how_short(result) + bands)
    return figure


def dot_figure(result: ExperimentResult, groups: Mapping[str, Sequence[str]], title: str) -> "figures.Figure":
    """AUC and LogLoss of labels as dots, one per seed and the mean on top; the labels of a group share a colour."""
    scores, backbones = scores_of(result.results), result.results["training"]["backbones"]
    colours = {label: colour for group, colour in zip(groups.values(), figures.CYCLE, strict=False) for label in group}
    height = 0.9 + (0.65 + 0.3 * len(colours)) * len(backbones)
    figure, axes = figures.panels(len(backbones), 2, height, sharey="row", squeeze=False)
    for panel, (backbone, measure) in zip(axes.flat, product(backbones, MEASURES), strict=True):
        for row, (label, colour) in enumerate(colours.items()):
            values = scores.get(label, backbone, measure).values
            panel.plot(values, [row] * len(values), "o", color=colour, alpha=0.35, markersize=5)
            if values:
                panel.plot(np.mean(values), row, "|", color=colour, markersize=14, markeredgewidth=2.5)
        figures.name_rows(panel, list(colours))
        panel.set_title(f"{backbone_title(backbone)}: {MEASURES[measure]}")
        panel.margins(x=0.08)
        panel.locator_params(axis="x", nbins=5)  # so that long numbers do not touch
    figures.headline(figure, title, f"{how_short(result)} · dots: seeds, bars: their mean")
    return figure


def how_short(result: ExperimentResult) -> str:
    """Data and protocol, for the subtitle of a figure."""
    seeds, training = result.settings["seeds"], result.results["training"]
    how = " · trained as the defaults are" if training.get("recipe") == "default" else ""
    tuned = " · tuned" if result.settings.get("tune") else ""
    return f"{result.where} · {training['scope']}{how}{tuned} · {counted(seeds, 'seed')}"
