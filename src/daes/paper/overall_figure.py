"""The figure of the main table: all methods against each other."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from daes.embedding import METHODS
from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.published import PAPER_METHODS
from daes.paper.result import ExperimentResult
from daes.paper.scores import backbone_title, how_short, method_title

_COLOURS = {
    "static binning": figures.ORANGE,
    "neural": figures.PURPLE,
    "interpolated binning": figures.GREEN,
    "dynamic quantile": figures.BLUE,
}
"""Family → colour; the methods of other families are grey."""


def methods_figure(result: ExperimentResult, panels: Mapping[str, Mapping[str, Floats]]) -> "figures.Figure":
    """One panel per title: the AUC of each method on each backbone, NaN without a result, above the median method.

    With a single backbone the values are those of the seeds.
    """
    scored = result.results["scores"]
    methods = list(dict.fromkeys([*(name for name in METHODS if name in scored), *scored]))
    figure, axes = figures.panels(1, len(panels), 1.2 + 0.26 * len(methods), sharex=True, sharey=True, squeeze=False)
    for panel, (title, means) in zip(axes[0], panels.items(), strict=True):
        _draw_methods(panel, methods, _above_median(means))
        panel.set_title(title)
    _name_families(axes[0][0], axes[0][-1], methods)
    first, *others = result.results["training"]["backbones"]
    which, dots = ("", "backbones") if others else (f" with {backbone_title(first)}", "seeds")
    subtitle = f"{how_short(result)} · dots: {dots}, bars: their mean"
    figures.headline(figure, f"Methods against each other{which}", subtitle)
    return figure


def _draw_methods(panel: Any, methods: list[str], above: dict[str, Floats]) -> None:
    for place, method in enumerate(methods):
        if method in above:
            colour, values = _COLOURS.get(_family(method), figures.GREY), above[method]
            panel.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=4)
            panel.plot(np.mean(values), place, "|", color=colour, markersize=13, markeredgewidth=2.5)
    panel.axvline(0, color=figures.GREY, linewidth=0.8)
    panel.set_xlabel("AUC points × 100 above the median method")
    figures.name_rows(panel, [method_title(method) for method in methods], 0.6, 0.6)


def _name_families(first: Any, last: Any, methods: list[str]) -> None:
    """Colour the methods' names in the first panel, and name the families to the right of the last."""
    for family in dict.fromkeys(_family(method) for method in methods):
        colour = _COLOURS.get(family, figures.GREY)
        places = [place for place, method in enumerate(methods) if _family(method) == family]
        for place in places:
            first.get_yticklabels()[place].set_color(colour)
        middle, text = float(np.mean(places)), family.replace(" ", "\n")
        last.text(1.01, middle, text, transform=last.get_yaxis_transform(), color=colour, va="center", fontsize=7.5)


def _family(method: str) -> str:
    return METHODS[method].family if method in METHODS else ""


def _above_median(means: Mapping[str, Floats]) -> dict[str, Floats]:
    """100 × the AUC above the median of the paper's methods on the same backbone, where it is known.

    >>> _above_median({"efd": np.array([0.5]), "ple": np.array([0.7]), "daes": np.array([np.nan])})
    {'efd': array([-10.]), 'ple': array([10.])}
    """
    base = np.array([row for method, row in means.items() if method in PAPER_METHODS] or list(means.values()))
    there = np.isfinite(base).any(axis=0)
    middle = np.nanmedian(base[:, there], axis=0)
    above = {method: 100 * (row[there] - middle) for method, row in means.items()}
    return {method: row[np.isfinite(row)].round(6) for method, row in above.items() if np.isfinite(row).any()}
