"""Figures as plain data for plotly.js, with named colours so that the page can change them.

"@c1" is a colour of the theme, "@c1/0.15" the same with that opacity, "@sequential" and "@diverging" are colour scales.
Names in plots are escaped here, because plotly.js interprets `<b>` and `<a>` in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.formatting import shorten
from daes.table import Table

Floats = NDArray[np.float64]
Trace = dict[str, Any]
Layout = dict[str, Any]

COLOURS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MOST_SHOWN = 60
"""Maximum number of features in a figure; more would make the page large and the maps unreadable."""
ROWS_AXIS: Layout = {"title": {"text": "rows"}, "tickformat": "~s", "hoverformat": ",d", "rangemode": "tozero"}

_LABEL_PIXELS = 15


@dataclass(frozen=True)
class View:
    """One of the states of a figure that a reader can choose from."""

    label: str
    data: list[Trace]
    layout: Layout


@dataclass(frozen=True)
class Figure:
    """A titled plot with its caption, a choice of views, and its numbers as a table.

    `alt` describes the plot in a sentence; `choice` says what the views are a choice of; `keys` are the lines with a
    button in the legend that shows and hides their group. If the lines are `labelled` at their ends, the keys are only
    shown on screens too narrow for labels.
    """

    name: str
    title: str
    views: Sequence[View]
    alt: str
    caption: str = ""
    choice: str = "Show"
    height: int = 300
    keys: Sequence["Line"] = ()
    labelled: bool = False
    table: Table | None = None

    @property
    def specification(self) -> dict[str, Any]:
        """The plot as page.js reads it."""
        return {"height": self.height, "views": [vars(view) for view in self.views]}


@dataclass(frozen=True)
class Line:
    """A line of a plot, labelled at its end. `band` is a lower and an upper line, filled in between.

    `hover` is the text for a point under the pointer, in which `%{customdata}` stands for the point's entry of `texts`.
    """

    group: str
    label: str
    x: ArrayLike = ()
    y: ArrayLike = ()
    colour: str = "c1"
    width: float = 1.8
    dash: str = "solid"
    band: tuple[ArrayLike, ArrayLike] | None = None
    hover: str = "%{y:.4f}"
    mode: str = "lines"
    texts: Sequence[str] = ()


def first(order: Sequence[int], *, keep_order: bool = False) -> tuple[list[int], str]:
    """The first features of an order of interest, and a sentence if these are not all.

    With `keep_order` they are returned in ascending order, as in the schema.

    >>> first([2, 0, 1], keep_order=True)
    ([0, 1, 2], '')
    """
    shown = [int(feature) for feature in order[:MOST_SHOWN]]
    omitted = f" Only the first {MOST_SHOWN} of {len(order)} are shown." if len(order) > MOST_SHOWN else ""
    return sorted(shown) if keep_order else shown, omitted


def named(name: str, length: int = 24) -> str:
    """A name for a plot, shortened and escaped.

    >>> named("<b>price</b>")
    '&lt;b&gt;price&lt;/b&gt;'
    """
    return escape(shorten(name, length), quote=False)


def numbers(values: ArrayLike) -> list[float]:
    """Floats for JSON, where NaN becomes null and a gap in the line."""
    found: list[float] = np.asarray(values, dtype=np.float64).tolist()
    return found


def lines(
    series: Sequence[Line],
    *,
    height: int,
    y_title: str = "",
    x_axis: Layout | None = None,
    y_axis: Layout | None = None,
    settle: float = 0.0,
    end_labels: bool = True,
) -> tuple[list[Trace], Layout]:
    """Lines over one axis, each labelled at its end.

    Args:
        series: the lines.
        height: height of the figure in pixels, which determines the distance between labels.
        y_title: title of the y-axis.
        x_axis, y_axis: options of the axes; x counts rows by default.
        settle: the initial share of the x range that is ignored in the range of y: metrics jump before they settle.
        end_labels: whether the lines are labelled at their ends.
    """
    data: list[Trace] = []
    for line in series:
        common = {"x": numbers(line.x), "legendgroup": line.group, "name": named(line.label)}
        if line.band is not None:
            hidden = {**common, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            data.append({**hidden, "y": numbers(line.band[0])})
            data.append({**hidden, "y": numbers(line.band[1]), "fill": "tonexty", "fillcolor": f"@{line.colour}/0.14"})
        data.append(
            {
                **common,
                "y": numbers(line.y),
                "mode": line.mode if np.size(line.x) > 1 else "markers",
                "line": {"color": f"@{line.colour}", "width": line.width, "dash": line.dash},
                "marker": {"color": f"@{line.colour}", "size": 7},
                "hovertemplate": line.hover,
                **({"customdata": list(line.texts)} if line.texts else {}),
            }
        )
    layout: Layout = {
        "xaxis": {**(ROWS_AXIS if x_axis is None else x_axis)},
        "yaxis": {"title": {"text": y_title}, **(y_axis or {})},
    }
    # On a logarithmic axis plotly.js expects the range and the positions of labels as powers of ten.
    drawn = [replace(line, y=_log10(line.y)) for line in series] if layout["yaxis"].get("type") == "log" else series
    frame = layout["yaxis"].get("range") or _frame(drawn, settle)
    if frame is not None:
        layout["yaxis"]["range"] = list(frame)
    if end_labels and frame is not None:
        layout["annotations"] = _end_labels(drawn, frame, height)
        longest = max(len(shorten(line.label)) for line in series)
        layout["margin"] = {"r": min(20 + 7 * longest, 190)}
    return data, layout


def _log10(values: ArrayLike) -> Floats:
    y = np.asarray(values, dtype=np.float64)
    return np.log10(y, out=np.full(y.shape, np.nan), where=y > 0)


def _frame(series: Sequence[Line], settle: float) -> tuple[float, float] | None:
    """The initial range of y: all of the lines except their first `settle` share, with a margin."""
    seen: list[Floats] = []
    for line in series:
        x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
        if len(x) > 10:
            y = y[x >= settle * np.nanmax(x)]
        seen.append(y[np.isfinite(y)])
    values = np.concatenate(seen) if seen else np.empty(0)
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    return low - margin, high + margin


def _end_labels(series: Sequence[Line], frame: tuple[float, float], pixels: int) -> list[Layout]:
    ends = []
    for line in series:
        finite = [value for value in numbers(line.y) if np.isfinite(value)]
        if finite:
            ends.append((finite[-1], line))
    ends.sort(key=lambda end: end[0])
    gap = (frame[1] - frame[0]) * _LABEL_PIXELS / max(pixels - 60, 1)
    heights = spread([min(max(value, frame[0]), frame[1]) for value, _ in ends], gap)
    # A label outside the frame would not be drawn: move it back in.
    last = len(heights) - 1
    heights = [max(height, frame[0] + index * gap) for index, height in enumerate(heights)]
    heights = [min(height, frame[1] - (last - index) * gap) for index, height in enumerate(heights)]
    return [
        {**side_label(named(line.label), height, line.colour), "end": True, "group": line.group}
        for height, (_, line) in zip(heights, ends, strict=True)
    ]


def side_label(label: str, y: float, colour: str) -> Layout:
    """A text at the right edge of a plot; `end` and `group` may be added, see page.js."""
    return {
        "text": label,
        "x": 1,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 6,
        "y": y,
        "yanchor": "middle",
        "font": {"color": f"@{colour}", "size": 12},
    }


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending positions moved as little as possible (least squares) so that neighbours are at least `gap` apart.

    >>> spread([0.0, 0.0, 10.0], 2.0)
    [-1.0, 1.0, 10.0]
    """
    # Minus k gaps, the positions must not decrease: isotonic regression by pooling adjacent violators.
    pools: list[list[float]] = []
    for index, place in enumerate(places):
        pools.append([place - index * gap, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, size = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * size) / (pools[-1][1] + size), pools[-1][1] + size]
    level = [mean for mean, size in pools for _ in range(int(size))]
    return [place + index * gap for index, place in enumerate(level)]


def edges(ends: Floats) -> Floats:
    """Where segments of a stream begin and end, for `heat_map`, from their ends.

    >>> edges(np.array([1000.0, 2000.0, 2500.0])).tolist()
    [0.0, 1000.0, 2000.0, 2500.0]
    """
    return np.append(0.0, ends)


def middles(ends: Floats) -> Floats:
    """The middles of segments of a stream, where a mean over a segment is drawn, from their ends.

    >>> middles(np.array([1000.0, 2000.0, 2500.0])).tolist()
    [500.0, 1500.0, 2250.0]
    """
    found: Floats = ends - np.diff(ends, prepend=0.0) / 2
    return found


def segments_axis(ends: Floats) -> Layout:
    """The axis below what is drawn at `middles`: the whole stream."""
    return {**ROWS_AXIS, "range": [0.0, float(ends[-1])]}


def map_height(rows: int, row_pixels: int = 22) -> int:
    """The height in pixels of a heat map and the axis below it."""
    return max(170, min(row_pixels * rows, 1400) + 70)


def heat_map(
    names: Sequence[str],
    x: ArrayLike,
    z: ArrayLike,
    measure: str,
    x_axis: Layout,
    *,
    scale: str = "sequential",
    limits: tuple[float, float] | None = None,
    form: str = ".3f",
    percent: bool = False,
) -> tuple[list[Trace], Layout]:
    """A heat map of z over names (one per row, from the top) and x; NaN is left blank.

    x has the middles of the columns, or one entry more, their edges. `narrowtext` holds the names for narrow screens.
    """
    unit = 100.0 if percent else 1.0
    shares = unit * np.asarray(z, dtype=np.float64)
    low, high = (unit * limit for limit in limits) if limits else _limits(shares, scale)
    suffix = "\u00a0%" if percent else ""
    trace = {
        "type": "heatmap",
        "x": numbers(x),
        "y": list(range(len(names))),
        "z": shares.tolist(),
        "zmin": low,
        "zmax": high,
        "colorscale": f"@{scale}",
        "xgap": 0,
        "ygap": 1,
        "hovertemplate": f"%{{y}}<br>{x_axis['title']['text']} %{{x}}<br>"
        f"{measure} %{{z:{form}}}{suffix}<extra></extra>",
        "hoverongaps": False,
        "colorbar": {"title": {"text": measure, "side": "right", "font": {"size": 11}}, "ticksuffix": suffix},
    }
    layout: Layout = {
        "hovermode": "closest",
        "xaxis": {**x_axis, "showgrid": False},
        "yaxis": {
            "autorange": "reversed",
            "showgrid": False,
            "tickvals": list(range(len(names))),
            "ticktext": [named(name) for name in names],
            "narrowtext": [named(name, 14) for name in names],
        },
    }
    return [trace], layout


def _limits(z: Floats, scale: str) -> tuple[float, float]:
    sizes = np.abs(z[np.isfinite(z)])
    most = 1.0
    if sizes.size:  # the extremes of a heavy tail would leave no colour for the rest
        most = float(np.quantile(sizes, 0.95)) or float(sizes.max()) or 1.0
    return (-most, most) if scale == "diverging" else (0.0, most)
