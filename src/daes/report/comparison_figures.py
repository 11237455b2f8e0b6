"""Figures of a comparison."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from daes.formatting import compact, fixed
from daes.report.comparison import CEILING, Compared
from daes.report.figures import Figure, Floats, Layout, Line, Trace, View, lines, named, side_label
from daes.report.run_record import floats

_SETTLE = 0.1
_HEIGHT = 360


def dot_figure(compared: Compared) -> Figure | None:
    """Each method's score as one dot per seed, best on top, by measure and backbone."""
    table = compared.table
    views = []
    for backbone, measure in product(table.backbones, compared.titles):
        made = _dots(compared, backbone, measure)
        if made is not None:
            title = compared.titles[measure]
            views.append(View(f"{title} · {backbone}" if len(table.backbones) > 1 else title, *made))
    if not views:
        return None
    more = "A small dot is a seed, the large one their mean. " if len(table.seeds) > 1 else ""
    return Figure(
        "results-dots",
        "Methods side by side",
        views,
        alt="Dot plot of the methods' scores, best on top; the table above has the numbers.",
        caption=f"{more}AUC: right is better. LogLoss: left is better."
        + (" The dotted line is what the true click probabilities score." if compared.ceiling else ""),
        choice="Measure",
        height=80 + 26 * max(len(table.methods), 2),
    )


def _dots(compared: Compared, backbone: str, measure: str) -> tuple[list[Trace], Layout] | None:
    table = compared.table
    labels = [label for label in compared.order(backbone, measure) if table.summary(label, backbone, measure).values]
    if not labels:
        return None
    data: list[Trace] = []
    for row, label in enumerate(labels):
        found = table.summary(label, backbone, measure)
        mark = {"mode": "markers", "name": named(label), "hovertemplate": "%{x:.4f}<extra>%{fullData.name}</extra>"}
        colour = f"@{compared.line(label).colour}"
        if len(found.values) > 1:
            seeds = {"x": list(found.values), "y": [row] * len(found.values)}
            data.append({**mark, **seeds, "marker": {"color": colour, "size": 6, "opacity": 0.45}})
        data.append({**mark, "x": [found.mean], "y": [row], "marker": {"color": colour, "size": 12}})
    layout: Layout = {
        "hovermode": "closest",
        "xaxis": {"tickformat": ".3f", "nticks": 6},
        "yaxis": {
            "tickvals": list(range(len(labels))),
            "ticktext": [named(label) for label in labels],
            "range": [len(labels) - 0.4, -0.6],
            "fixedrange": True,
        },
        "annotations": [
            side_label(fixed(compared.mean(label, backbone, measure)), row, "quiet") for row, label in enumerate(labels)
        ],
        "margin": {"r": 62},
    }
    ceiling = compared.ceiling.get(measure)
    if ceiling is not None:
        line = {"color": "@c7", "width": 1.2, "dash": "dot"}
        vertical = {"type": "line", "x0": ceiling, "x1": ceiling, "y0": 0, "y1": 1, "yref": "paper", "line": line}
        layout["shapes"] = [vertical]
        # Unlike a shape, an invisible dot extends the range of the axis.
        data.append({"x": [ceiling], "y": [0], "mode": "markers", "marker": {"opacity": 0}, "hoverinfo": "skip"})
    return data, layout


def stream_figures(compared: Compared) -> list[Figure]:
    """AUC and LogLoss of each method along the stream."""
    found = []
    for metric, title in (("auc", "AUC"), ("logloss", "LogLoss")):
        views = []
        for backbone in compared.table.backbones:
            suffix = f" · {backbone}" if len(compared.table.backbones) > 1 else ""
            for column, label in ((f"window_{metric}", _window(compared)), (metric, "since the start")):
                curves = _curves(compared, backbone, column)
                if curves:
                    views.append(_view(compared, curves, label + suffix, metric))
                if len(curves) > 1 and column != metric:
                    views.append(_difference(compared, curves, f"{label}, against the mean{suffix}"))
        alt = f"{title} of each method along the stream; the table of results has where they end."
        found += _figure(compared, f"curves-{metric}", title, views, alt=alt, caption=_CAPTIONS[metric])
    return found


def _figure(
    compared: Compared, name: str, title: str, views: Sequence[View], alt: str, caption: str = "", choice: str = "Show"
) -> list[Figure]:
    """A figure with a line per method; empty without views."""
    keys = [compared.line(label) for label in compared.table.methods]
    return [Figure(name, title, views, alt, caption, choice, _HEIGHT, keys)] if views else []


def _window(compared: Compared) -> str:
    window = compared.common_settings().get("train", {}).get("window")
    return f"last {compact(window)} rows" if window else "last rows"


_CAPTIONS = {
    "auc": "Higher is better. “Against the mean” is the difference, seed by seed, from the mean of all methods at that "
    "row: it removes the ups and downs that all methods share. With several seeds the band spans them.",
    "logloss": "Lower is better, in nats.",
}


def epoch_figures(compared: Compared) -> list[Figure]:
    """Scores on the validation part, epoch by epoch (the paper's protocol)."""
    found = []
    for column, title in (("valid_auc", "AUC on validation"), ("valid_logloss", "LogLoss on validation")):
        views = []
        for backbone in compared.table.backbones:
            curves = _curves(compared, backbone, column, axis="epoch")
            if curves:
                axis = {"title": {"text": "epoch"}, "dtick": 1}
                drawn = _lines(compared, curves, mode="lines+markers")
                views.append(View(backbone, *lines(drawn, height=_HEIGHT, x_axis=axis)))
        alt = f"{title} of each method, epoch by epoch."
        found += _figure(compared, f"epochs-{column}", title, views, alt=alt, choice="Backbone")
    return found


class Curve(NamedTuple):
    """The values of a method along the stream or over epochs: x (T,), values (seeds, T)."""

    label: str
    x: Floats
    values: Floats


def _curves(compared: Compared, backbone: str, column: str, axis: str = "rows") -> list[Curve]:
    """The recorded values of a column, for every method that has any."""
    found = []
    for label in compared.table.methods:
        histories = [trial.history for trial in compared.table.trials(label, backbone) if trial.history.get(column)]
        if histories:
            shortest = min(len(history[axis]) for history in histories)
            values = np.stack([floats(history[column])[:shortest] for history in histories])
            found += _defined(label, floats(histories[0][axis])[:shortest], values)
    return found


def _defined(label: str, x: Floats, values: Floats) -> list[Curve]:
    """A curve of the points that are defined for all seeds; empty if there are none."""
    known = np.isfinite(values).all(axis=0)
    return [Curve(label, x[known], values[:, known])] if known.any() else []


def _lines(compared: Compared, curves: Sequence[Curve], *, mode: str = "lines", bands: bool = False) -> list[Line]:
    made = []
    for label, x, values in curves:
        band = (values.min(axis=0), values.max(axis=0)) if bands and len(values) > 1 else None
        made.append(replace(compared.line(label), x=x, y=values.mean(axis=0), band=band, mode=mode))
    # The subject is drawn last, on top of the others.
    return sorted(made, key=lambda line: line.label == compared.subject)


def _view(compared: Compared, curves: Sequence[Curve], label: str, metric: str) -> View:
    made = _lines(compared, curves)
    if (ceiling := compared.ceiling.get(metric)) is not None:
        ends = curves[0].x[[0, -1]]
        made.append(Line("ceiling", CEILING, ends, [ceiling, ceiling], "c7", width=1.2, dash="dot"))
    return View(label, *lines(made, height=_HEIGHT, settle=_SETTLE))


def _difference(compared: Compared, curves: Sequence[Curve], label: str) -> View:
    """Each method minus the mean of all; seed by seed if all have as many, since a seed affects all methods alike."""
    shortest = min(len(curve.x) for curve in curves)
    last = [curve.values[:, -shortest:] for curve in curves]
    alike = len({len(values) for values in last}) == 1
    mean = np.mean(last, axis=0) if alike else np.mean([values.mean(axis=0) for values in last], axis=0)
    moved = [Curve(c.label, c.x[-shortest:], values - mean) for c, values in zip(curves, last, strict=True)]
    made = lines(_lines(compared, moved, bands=True), height=_HEIGHT, settle=_SETTLE)
    for trace in made[0]:
        if "hovertemplate" in trace:
            trace["hovertemplate"] = "%{y:+.4f}"
    made[1]["yaxis"]["zeroline"] = True
    return View(label, *made)
