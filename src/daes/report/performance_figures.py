"""Figures of a run's performance: scores along the stream, calibration, speed."""

from collections.abc import Sequence

import numpy as np

from daes.formatting import compact, count, fixed, percent
from daes.metrics.stream import Reliability
from daes.report.figures import Figure, Floats, Line, View, lines, middles, segments_axis
from daes.report.run_record import RunRecord
from daes.table import Table

_SCORES = {"auc": "AUC", "logloss": "LogLoss"}
_SETTLE = 0.1
_Y = "%{y:.4f}<extra></extra>"


def score_figures(run: RunRecord) -> list[Figure]:
    """AUC and LogLoss along the stream, over the window and since its start."""
    found = []
    window = f"last {compact(run.window)} rows" if run.window else "window"
    for metric, title in _SCORES.items():
        rows, recent, life = (_column(run, name) for name in ("rows", f"window_{metric}", metric))
        series = [
            Line("window", window, rows, recent, "c1"),
            Line("life", "since the start", rows, life, "c7", dash="dash"),
        ]
        if metric == "logloss":
            series.append(Line("rate", "click rate alone", rows, _entropy(run), "c5", width=1.2, dash="dot"))
        series = [line for line in series if np.isfinite(np.asarray(line.y)).any()]
        if not series:
            continue
        found.append(
            Figure(
                f"stream-{metric}",
                title,
                [View("", *lines(series, height=300, settle=_SETTLE))],
                alt=f"{title} along the stream: {_ends(series)}.",
                keys=series,
                labelled=True,
                caption=_CAPTIONS[metric],
                table=Table(
                    ("rows", f"{title}, {window}", f"{title} since the start"),
                    [(count(rows[i]), fixed(recent[i]), fixed(life[i])) for i in thinned(len(rows), 20)],
                ),
            )
        )
    return found


_CAPTIONS = {
    "auc": "Higher is better; 0.5 is chance. Every batch is scored before it is learned from.",
    "logloss": "Lower is better, in nats. “Click rate alone” is what predicting the mean label so far would score.",
}


def _column(run: RunRecord, name: str) -> Floats:
    length = len(run.history["rows"]) if "rows" in run.history else 0
    return run.history.get(name, np.full(length, np.nan))


def _entropy(run: RunRecord) -> Floats:
    """The LogLoss of always predicting the mean label so far: LogLoss over normalised entropy."""
    loss, part = _column(run, "logloss"), _column(run, "normalized_entropy")
    entropy = np.full(loss.shape, np.nan)
    np.divide(loss, part, out=entropy, where=np.isfinite(part) & (part > 0))
    return entropy


def _ends(series: Sequence[Line]) -> str:
    last = ((line.label, [value for value in np.asarray(line.y) if np.isfinite(value)]) for line in series)
    return ", ".join(f"{label} ends at {fixed(float(values[-1]))}" for label, values in last if values)


def thinned(length: int, most: int) -> list[int]:
    """At most `most` indices out of `length`, evenly spaced, including the first and the last.

    >>> thinned(5, 20), thinned(100, 4)
    ([0, 1, 2, 3, 4], [0, 33, 66, 99])
    """
    return [int(index) for index in np.linspace(0, length - 1, min(length, most)).round()]


def calibration_figure(found: Reliability) -> Figure | None:
    """Click rate against mean prediction.

    Bins with less than a thousandth of the weight are left out, because their rate is noise.
    """
    total = float(found.weight.sum())
    kept = (found.weight >= max(total / 1000, 1)) & np.isfinite(found.mean_prediction) & np.isfinite(found.mean_label)
    x, y, weight = found.mean_prediction[kept], found.mean_label[kept], found.weight[kept]
    if not len(x):
        return None
    least, most = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    margin = 0.04 * (most - least) or 0.05
    frame = [max(0.0, least - margin), min(1.0, most + margin)]
    diagonal = Line("diagonal", "perfect", frame, frame, "c7", width=1, dash="dot")
    hover = "predicted %{x:.3f}<br>clicked %{y:.3f}<br>%{customdata} of the rows<extra></extra>"
    shares = [percent(part) for part in weight / total]
    line = Line("found", "found", x, y, "c1", mode="lines+markers", hover=hover, texts=shares)
    data, layout = lines(
        [diagonal, line],
        y_title="clicked",
        height=380,
        x_axis={"title": {"text": "predicted"}, "range": frame, "hoverformat": ".3f"},
        y_axis={"range": frame},
        end_labels=False,
    )
    layout["hovermode"] = "closest"
    data[0]["hoverinfo"] = "skip"
    del data[0]["hovertemplate"]
    return Figure(
        "reliability",
        "Reliability",
        [View("", data, layout)],
        alt="Reliability diagram: the rate of clicks against the mean prediction, by bins of the prediction.",
        caption="On the dotted line, as many clicked as predicted; below it, fewer. All rows count, including the "
        "first ones, when the model was untrained; bins with less than a thousandth of the rows are left out.",
        height=380,
        table=Table(
            ("predicted", "clicked", "share", "rows"),
            [(fixed(p, 3), fixed(c, 3), s, count(w)) for p, c, s, w in zip(x, y, shares, weight, strict=True)],
        ),
    )


def throughput_figure(run: RunRecord) -> Figure | None:
    """Rows per second, segment by segment."""
    rows, speed = run.segment_rows, run.speed
    if len(rows) < 2 or not np.isfinite(speed).any():
        return None
    line = Line(
        "speed", "rows per second", middles(rows), speed, "c1", hover="%{y:,.0f} rows per second<extra></extra>"
    )
    frame = [0.0, 1.1 * float(np.nanmax(speed))]
    y_axis = {"range": frame, "tickformat": "~s"}
    view = lines([line], height=220, x_axis=segments_axis(rows), y_axis=y_axis, end_labels=False)
    return Figure(
        "throughput-lines",
        "Rows per second",
        [View("", *view)],
        alt=f"Rows per second along the stream, {compact(float(np.nanmedian(speed)))} in the median.",
        caption="Reading, scoring and training together; other load on the machine also has an effect.",
        height=220,
        table=Table(("rows", "rows per second"), [(count(rows[i]), count(speed[i])) for i in thinned(len(rows), 20)]),
    )


def rate_figure(run: RunRecord) -> Figure | None:
    """Clicks and mean prediction, segment by segment."""
    rows = run.segment_rows
    if len(rows) < 2 or not np.isfinite(run.click_rate).any():
        return None
    series = [
        Line("predicted", "predicted", middles(rows), run.mean_prediction, "c1", hover=f"predicted {_Y}"),
        Line("clicked", "clicked", middles(rows), run.click_rate, "c2", width=1.3, hover=f"clicked {_Y}"),
    ]
    return Figure(
        "rate-lines",
        "Predicted and clicked along the stream",
        [View("", *lines(series, height=380, x_axis=segments_axis(rows), settle=_SETTLE))],
        alt=f"Mean prediction and rate of clicks along the stream: {_ends(series)}.",
        caption="Mean prediction and rate of clicks of each segment of the stream.",
        height=380,
        keys=series,
        labelled=True,
        table=Table(
            ("rows", "predicted", "clicked"),
            [(count(rows[i]), fixed(run.mean_prediction[i]), fixed(run.click_rate[i])) for i in thinned(len(rows), 20)],
        ),
    )
