"""The figure of stationarity: how far each segment of a stream is from the first."""

from typing import Any

import numpy as np

from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.experiment import Findings
from daes.paper.result import ExperimentResult

MEASURES = {"psi": "PSI", "ks": "KS"}
SATURATED = 0.95
"""With a KS above this a segment hardly shares a value with the first: PSI and KS can hardly grow further."""
_FEW_DAYS = 20
_COLOURS = (figures.BLUE, figures.VERMILION, figures.GREEN)
_DOTTED = (0, (1, 1.5))


def draw(result: ExperimentResult) -> "figures.Figure":
    """One row per feature, one column per measure: segments against the first, and chance."""
    profiles = result.results["profiles"]
    names = list(profiles[-1]["series"])
    height = 1.2 + 1.45 * len(names)
    figure, axes = figures.panels(len(names), len(MEASURES), height, sharex=True, sharey="col", squeeze=False)
    dated = profiles[-1]["segments_a_day"] is not None
    beyond = False
    for column, (measure, title) in enumerate(MEASURES.items()):
        top = _top(profiles, measure)
        for name, colour, panel in zip(names, _COLOURS, axes[:, column], strict=False):
            for profile, faint in zip(reversed(profiles), (False, True), strict=False):
                if name in profile["series"]:
                    beyond |= _draw_series(panel, profile, name, measure, colour, top, faint)
            panel.set(title=f"{name}: {title}", ylim=(0, top))
            panel.grid(axis="x", visible=dated)
        axes[-1][column].set_xlabel("days since the start" if dated else "part of the stream, %")
    last = float(_ends(profiles[-1])[-1])
    axes[0][0].set_xlim(0, last)
    if dated and last < _FEW_DAYS:
        axes[0][0].set_xticks(range(round(last) + 1))
    _legend(figure, profiles, beyond)
    ceiling = " · where KS is 1, PSI is at a ceiling: the segment shares no range of values with the first"
    values = (value for profile in profiles for one in profile["series"].values() for value in one["ks"])
    saturated = any(value is not None and value > SATURATED for value in values)
    subtitle = result.where + (ceiling if saturated else "")
    figures.headline(figure, "How far each segment of the stream is from the first", subtitle)
    return figure


def _draw_series(panel: Any, profile: Findings, name: str, measure: str, colour: str, top: float, faint: bool) -> bool:
    """Segments as a line, or as dots if faint; returns whether any is above the top, where it is marked."""
    values = np.array(profile["series"][name][measure][1:], dtype=np.float64)
    ends = _ends(profile)
    places = ends[1:-1] + np.diff(ends)[1:] / 2
    if faint:
        panel.plot(places, values, ".", color=colour, alpha=0.4, markersize=2.5, markeredgewidth=0)
    else:
        panel.plot(places, values, color=colour, linewidth=1.5)
    chance = profile["features"][name][f"{measure}_by_chance"]
    panel.axhline(chance, color=figures.GREY if faint else figures.BLACK, linestyle=_DOTTED, linewidth=1.2)
    beyond = values > top
    panel.plot(places[beyond], np.full(beyond.sum(), 0.965 * top), "^", color=colour, alpha=0.7, markersize=4)
    return bool(beyond.any())


def _ends(profile: Findings) -> Floats:
    """The ends of the segments, in days, or in percent of the stream if days are not known."""
    number, per_day = profile["segments"], profile["segments_a_day"]
    ends: Floats = np.arange(number + 1) * (100 / number if per_day is None else 1 / per_day)
    return ends


def _top(profiles: list[Findings], measure: str) -> float:
    """The upper end of an axis, above nearly all values: one outlying segment must not flatten the others."""
    tops = []
    for profile in profiles:
        every = [value for one in profile["series"].values() for value in one[measure][1:] if value is not None]
        tops.append(1.15 * float(np.quantile(every, 0.99)) if every else 0.0)
    return max(*tops, 1e-3)


def _legend(figure: "figures.Figure", profiles: list[Findings], beyond: bool) -> None:
    dots = {"marker": ".", "linestyle": "", "alpha": 0.5, "markersize": 5}
    shuffled = {"linestyle": _DOTTED, "linewidth": 1.4, "label": "the same, values shuffled"}
    marks: list[dict[str, Any]] = [{"label": f"{profiles[-1]['segments']} segments"}, shuffled]
    if len(profiles) > 1:
        marks[:0] = [
            {"label": f"{profiles[0]['segments']} segments", **dots},
            {"color": figures.GREY, **shuffled},
        ]
    if beyond:
        marks.append({"marker": "^", "linestyle": "", "label": "beyond the axis"})
    figures.legend(figure, *marks)
