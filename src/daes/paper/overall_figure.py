"""All methods against each other, drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.published import METHOD_TITLES, PAPER_METHODS
from daes.paper.result import Result
from daes.paper.scores import how_short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAMILIES = {
    "static binning": (("efd", "ld", "td", "multihot", "ewd"), figures.ORANGE),
    "neural embedding": (
        ("youtube", "dlrm", "fe", "autodis", "deer", "keyvalue", "narydis", "plr"),
        figures.PURPLE,
    ),
    "interpolated binning": (("ple",), figures.GREEN),
    "dynamic quantile": (("dae", "daes-gate", "daes-tran", "daes"), figures.BLUE),
}


def methods_figure(result: Result, panels: Mapping[str, Mapping[str, Floats]]) -> "Figure":
    """A panel a title: the AUC of each method on each backbone, NaN without a result, above the median method."""
    methods = [method for names, _ in _FAMILIES.values() for method in names if method in result.results["scores"]]
    figure, axes = figures.panels(
        1, len(panels), 9.6, 1.2 + 0.26 * len(methods), sharex=True, sharey=True, squeeze=False
    )
    for panel, (title, means) in zip(axes[0], panels.items(), strict=True):
        _draw_methods(panel, methods, _above_median(means))
        panel.set_title(title)
    _name_families(axes[0][0], axes[0][-1], methods)
    figures.headline(figure, "Methods against each other", f"{how_short(result)} · dots: backbones, bars: their mean")
    return figure


def _draw_methods(panel: Any, methods: list[str], above: dict[str, Floats]) -> None:
    for family, colour in _FAMILIES.values():
        for method in (method for method in family if method in above):
            place, values = methods.index(method), above[method]
            panel.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=4)
            panel.plot(np.mean(values), place, "|", color=colour, markersize=13, markeredgewidth=2.5)
    panel.axvline(0, color=figures.GREY, linewidth=0.8)
    panel.set_yticks(range(len(methods)), [METHOD_TITLES.get(method, method) for method in methods])
    panel.set_ylim(len(methods) - 0.4, -0.6)
    panel.set_xlabel("AUC points × 100 above the median method")
    panel.grid(axis="y", visible=False)


def _name_families(first: Any, last: Any, methods: list[str]) -> None:
    """The colours of the methods' names in the first panel, and what they mean right of the last."""
    for name, (family, colour) in _FAMILIES.items():
        places = [methods.index(method) for method in family if method in methods]
        for place in places:
            first.get_yticklabels()[place].set_color(colour)
        if places:
            middle, text = float(np.mean(places)), name.replace(" ", "\n")
            across = last.get_yaxis_transform()
            last.text(1.01, middle, text, transform=across, color=colour, va="center", fontsize=7.5)


def _above_median(means: Mapping[str, Floats]) -> dict[str, Floats]:
    """100 × the AUC above the median of the paper's methods on the same backbone, where there is one.

    >>> _above_median({"efd": np.array([0.5]), "ple": np.array([0.7]), "daes": np.array([np.nan])})
    {'efd': array([-10.]), 'ple': array([10.])}
    """
    base = np.array([row for method, row in means.items() if method in PAPER_METHODS] or list(means.values()))
    there = np.isfinite(base).any(axis=0)
    middle = np.nanmedian(base[:, there], axis=0)
    above = {method: 100 * (row[there] - middle) for method, row in means.items()}
    return {method: row[np.isfinite(row)].round(6) for method, row in above.items() if np.isfinite(row).any()}
