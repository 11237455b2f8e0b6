"""Scores of trained models as tables and figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daes.paper import figures
from daes.paper.experiment import Findings
from daes.paper.published import BACKBONE_TITLES
from daes.paper.result import Result
from daes.paper.tables import count, fixed, table, with_spread
from daes.paper.trials import known, summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = {"auc": "AUC", "logloss": "LogLoss"}
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
    rows = []
    for label in titles or scores:
        row = [titles[label] if titles else label]
        for place in columns:
            mean, spread = summary(scores[label][place[0]][place[1]])
            text = with_spread(mean, spread)
            row.append(f"**{text}**" if mean is not None and fixed(mean) == fixed(best[place]) else text)
        rows.append(row)
    headers = ["", *(f"{BACKBONE_TITLES.get(backbone, backbone)} {MEASURES[measure]}" for backbone, measure in columns)]
    return table(headers, rows)


def _best(scores: Findings, backbone: str, measure: str) -> float | None:
    means = [summary(by_backbone[backbone][measure])[0] for by_backbone in scores.values()]
    return (max if measure == "auc" else min)(known(means), default=None)


def how_trained(result: Result, found: Findings | None = None) -> str:
    """A sentence on the training."""
    training = (found or result.results)["training"]
    seeds = result.settings["seeds"]
    choice = (
        f"learning rate {training['learning_rate']:g}, L2 {training['l2']:g}"
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


def compare_pairs(result: Result, pairs: Sequence[tuple[str, str]]) -> str:
    """How often, and by how much AUC, the first of each pair of labels is ahead of the second, over all backbones."""
    scores, backbones = result.results["scores"], result.results["training"]["backbones"]
    differences, sure_ahead, sure_behind = [], 0, 0
    for one, other in pairs:
        for backbone in backbones:
            a, b = (known(scores[label][backbone]["auc"]) for label in (one, other))
            if not a or not b:
                continue
            differences.append(float(np.mean(a) - np.mean(b)))
            if min(len(a), len(b)) > 1 and _differ(a, b):
                sure_ahead, sure_behind = sure_ahead + (differences[-1] > 0), sure_behind + (differences[-1] < 0)
    if not differences:
        return "no results."
    ahead = sum(difference > 0 for difference in differences)
    return (
        f"ahead in {ahead} of {len(differences)} cases (significantly in {sure_ahead}, significantly behind in "
        f"{sure_behind}), mean difference of AUC {np.mean(differences):+.4f}."
    )


def change(result: Result, backbone: str, before: str, after: str) -> str:
    """The difference of AUC between two labels, – where one has none."""
    a, b = (summary(result.results["scores"][label][backbone]["auc"])[0] for label in (before, after))
    return "–" if a is None or b is None else f"{b - a:+.4f}"


def _differ(a: Sequence[float], b: Sequence[float]) -> bool:
    from daes.training.significance import t_test

    return t_test(a, b).p_value < 0.05


def line_figure(
    result: Result, series: Mapping[str, tuple[Sequence[float], Sequence[str]]], xlabel: str, title: str
) -> "Figure":
    """AUC and LogLoss against a number, a line a series, a row of panels a backbone.

    `series` gives for each title the places on the x-axis and the labels of the scores there.
    """
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
            panel.set_title(f"{BACKBONE_TITLES.get(backbone, backbone)}: {name}")
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
            panel.set_title(f"{BACKBONE_TITLES.get(backbone, backbone)}: {name}")
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
