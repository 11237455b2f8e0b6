"""Scores of trained models as tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from daes.formatting import count, fixed, scientific, with_spread
from daes.paper import figures
from daes.paper.experiment import Findings
from daes.paper.judging import SIGNIFICANT, most
from daes.paper.result import Result
from daes.paper.titles import backbone_title
from daes.paper.trials import known, summary
from daes.table import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"auc": "AUC", "logloss": "LogLoss"}
Series = Mapping[str, tuple[Sequence[float], Sequence[str]]]
"""Lines by their titles: places on an axis, the same for all, and the labels of the scores there."""
_BACKBONES_SIDE_BY_SIDE = 3
_LINES_SHOWN = 20


def scores_table(found: Findings, titles: Mapping[str, str] | None = None) -> str:
    """AUC and LogLoss of each label on each backbone, mean ± deviation between seeds; the best mean in bold.

    One table, or one for each measure where there are many backbones.
    """
    backbones = found["training"]["backbones"]
    if len(backbones) <= _BACKBONES_SIDE_BY_SIDE:
        return _scores_table(found, titles, [(backbone, measure) for backbone in backbones for measure in MEASURES])
    parts = [_scores_table(found, titles, [(backbone, measure) for backbone in backbones]) for measure in MEASURES]
    return "\n\n".join(parts)


def _scores_table(found: Findings, titles: Mapping[str, str] | None, columns: Sequence[tuple[str, str]]) -> str:
    scores = found["scores"]
    best = {place: _best(scores, *place) for place in columns}
    rows = [
        [titles[label] if titles else label, *(_score(scores, label, *place, best[place]) for place in columns)]
        for label in titles or scores
    ]
    headers = ["", *(f"{backbone_title(backbone)} {MEASURES[measure]}" for backbone, measure in columns)]
    return markdown_table(headers, rows)


def series_table(found: Findings, series: Series, place: str) -> str:
    """The same for labels that are places on lines: a table a backbone, a row a place, a column a line and measure."""
    scores, parts = found["scores"], []
    places, _ = next(iter(series.values()))
    headers = [place, *(f"{line}, {name}" for name in MEASURES.values() for line in series)]
    for backbone in found["training"]["backbones"]:
        best = {measure: _best(scores, backbone, measure) for measure in MEASURES}
        rows = [
            [f"{number:g}"]
            + [
                _score(scores, labels[i], backbone, measure, best[measure])
                for measure in MEASURES
                for _, labels in series.values()
            ]
            for i, number in enumerate(places)
        ]
        parts += [f"**{backbone_title(backbone)}:**", markdown_table(headers, rows)]
    return "\n\n".join(parts)


def _score(scores: Findings, label: str, backbone: str, measure: str, best: float | None) -> str:
    mean, spread = summary(scores[label][backbone][measure])
    text = with_spread(mean, spread)
    return f"**{text}**" if mean is not None and fixed(mean) == fixed(best) else text


def _best(scores: Findings, backbone: str, measure: str) -> float | None:
    means = [summary(by_backbone[backbone][measure])[0] for by_backbone in scores.values()]
    return (max if measure == "auc" else min)(known(means), default=None)


def how_trained(result: Result, found: Findings | None = None) -> str:
    """A sentence on the training."""
    training = (found or result.results)["training"]
    seeds = result.settings["seeds"]
    choice = (
        f"learning rate {scientific(training['learning_rate'], 0)}, L2 {scientific(training['l2'], 0)}"
        if training["learning_rate"] is not None
        else "learning rate and L2 tuned on validation data over the paper's grid"
    )
    return (
        f"{result.where}; {training['scope']}; batch size {count(training['batch_size'])}, {choice}; "
        f"mean ± standard deviation of {seeds} seed{'s' if seeds > 1 else ''}."
    )


def failures(found: Findings) -> str:
    """What failed or was left out, a paragraph each; empty where all went well."""
    paragraphs = []
    for title, lines in (("Failed", found["failures"]), ("Note", found.get("notes", []))):
        paragraphs += [f"{title}: {line}" for line in lines[:_LINES_SHOWN]]
        if len(lines) > _LINES_SHOWN:
            paragraphs.append(f"{title}: {len(lines) - _LINES_SHOWN} more lines of the kind.")
    return "".join(f"\n\n{paragraph}" for paragraph in paragraphs)


def means_and_spreads(scores: Findings, labels: Sequence[str], backbone: str, measure: str) -> tuple[Any, Any]:
    """Arrays of means and of deviations (0 where there is one seed), NaN without a result."""
    pairs = [summary(scores[label][backbone][measure]) for label in labels]
    means = np.array([np.nan if mean is None else mean for mean, _ in pairs])
    return means, np.array([spread or 0.0 for _, spread in pairs])


@dataclass(frozen=True)
class Comparison:
    """By how much AUC one of two labels is ahead of the other, case by case, and in how many that is significant."""

    differences: tuple[float, ...]
    surely_ahead: int
    surely_behind: int

    @property
    def ahead(self) -> int:
        return sum(difference > 0 for difference in self.differences)

    @property
    def parts(self) -> tuple[bool, ...]:
        """Whether it is ahead in most cases, and significantly so in most; nothing where there are no cases."""
        cases = len(self.differences)
        return (most(self.ahead, cases), most(self.surely_ahead, cases)) if cases else ()

    def __str__(self) -> str:
        if not self.differences:
            return "no results."
        return (
            f"ahead in {self.ahead} of {len(self.differences)} cases, significantly in {self.surely_ahead} and "
            f"significantly behind in {self.surely_behind}; AUC {fixed(fmean(self.differences), sign=True)} on average."
        )


def compare_pairs(result: Result, pairs: Iterable[tuple[str, str]]) -> Comparison:
    """The first of each pair of labels against the second, a case a pair and backbone where both have results."""
    from daes.experiments.significance import t_test

    scores, backbones = result.results["scores"], result.results["training"]["backbones"]
    differences, sure = [], []
    for pair, backbone in product(pairs, backbones):
        one, other = (known(scores[label][backbone]["auc"]) for label in pair)
        if one and other:
            differences.append(fmean(one) - fmean(other))
            if min(len(one), len(other)) > 1 and t_test(one, other).significant(SIGNIFICANT):
                sure.append(differences[-1])
    ahead = sum(difference > 0 for difference in sure)
    return Comparison(tuple(differences), ahead, len(sure) - ahead)


def changes(result: Result, before: str, after: str) -> list[float | None]:
    """The difference of AUC between two labels on each backbone, None where one has no result."""
    scores = result.results["scores"]
    pairs = [
        [summary(scores[label][backbone]["auc"])[0] for label in (before, after)]
        for backbone in result.results["training"]["backbones"]
    ]
    return [None if one is None or other is None else other - one for one, other in pairs]


def line_figure(result: Result, series: Series, xlabel: str, title: str) -> "Figure":
    """AUC and LogLoss against a number, a row of panels a backbone."""
    scores, backbones = result.results["scores"], result.results["training"]["backbones"]
    figure, axes = figures.panels(len(backbones), 2, 9.6, 0.9 + 2.5 * len(backbones), sharex=True, squeeze=False)
    for row, backbone in enumerate(backbones):
        for panel, (measure, name) in zip(axes[row], MEASURES.items(), strict=True):
            ends = []
            for (line, (places, labels)), colour in zip(series.items(), figures.CYCLE, strict=False):
                means, spreads = means_and_spreads(scores, labels, backbone, measure)
                panel.fill_between(places, means - spreads, means + spreads, color=colour, alpha=0.15, linewidth=0)
                panel.plot(places, means, "o-", color=colour)
                if np.isfinite(means[-1]):
                    ends.append((float(places[-1]), float(means[-1]), line, colour))
            _label_ends(panel, ends)
            panel.set_title(f"{backbone_title(backbone)}: {name}")
            if row == len(backbones) - 1:
                panel.set_xlabel(xlabel)
    bands = " · bands: ± one standard deviation between seeds" if result.settings["seeds"] > 1 else ""
    figures.headline(figure, title, how_short(result) + bands)
    return figure


def dot_figure(result: Result, groups: Mapping[str, Mapping[str, str]], title: str) -> "Figure":
    """AUC and LogLoss of named variants as dots, one a seed and the mean on top; `groups`: group → label → title."""
    scores, backbones = result.results["scores"], result.results["training"]["backbones"]
    lines = sum(len(labels) for labels in groups.values())
    height = 0.9 + (0.65 + 0.3 * lines) * len(backbones)
    figure, axes = figures.panels(len(backbones), 2, 9.6, height, sharey="row", squeeze=False)
    for row, backbone in enumerate(backbones):
        for panel, (measure, name) in zip(axes[row], MEASURES.items(), strict=True):
            names, place = [], 0
            for labels, colour in zip(groups.values(), figures.CYCLE, strict=False):
                for label, shown in labels.items():
                    values = known(scores[label][backbone][measure])
                    panel.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=5)
                    if values:
                        panel.plot(np.mean(values), place, "|", color=colour, markersize=14, markeredgewidth=2.5)
                    names.append(shown)
                    place += 1
            panel.set_yticks(range(place), names)
            panel.set_ylim(place - 0.5, -0.5)
            panel.set_title(f"{backbone_title(backbone)}: {name}")
            panel.grid(axis="y", visible=False)
            panel.margins(x=0.08)
    figures.headline(figure, title, f"{how_short(result)} · dots: seeds, bars: their mean")
    return figure


def how_short(result: Result) -> str:
    """The data and the protocol, for the line under a figure's title."""
    seeds = result.settings["seeds"]
    return f"{result.where} · {result.results['training']['scope']} · {seeds} seed{'s' if seeds > 1 else ''}"


def _label_ends(panel: "Axes", ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Labels at the lines' ends, moved apart where they would overlap."""
    low, high = panel.get_ylim()
    least = 0.075 * (high - low)
    last = -np.inf
    for x, y, text, colour in sorted(ends, key=lambda end: end[1]):
        place = max(y, last + least)
        last = place
        figures.at_end(panel, x, place, text, colour)
