"""A comparison of estimators as a plot: an HTML page or a PNG."""

from pathlib import Path
from typing import Any

from daes.cli.estimator_text import THEME, costs
from daes.distribution.estimator_report import EstimatorReport
from daes.extras import require
from daes.report.content import Page, Section
from daes.report.figures import Figure, Line, View, lines
from daes.report.rendering import render
from daes.storage.durable import write_text

_TRUE_COLOUR = "#8a8a8a"
# Distinguishable for colour-blind readers (after Okabe and Ito).
_COLOURS = {
    "reservoir": "#56b4e9",
    "jump": "#009e73",
    "jump-paper": "#e69f00",
    "order-statistics": "#d55e00",
    "kll": "#cc79a7",
    "tdigest": "#2f7fd1",
    "gk": "#8f7ad6",
}
_DASHED = {"reservoir": "dot", "jump-paper": "dash", "gk": "dashdot"}
_HEIGHT = 380


def check_plot(path: Path, *endings: str) -> None:
    """Check, before a long stream is read, that the plot can be written afterwards."""
    if path.suffix.lower() not in endings:
        raise ValueError(f"--plot must end in {' or '.join(endings)}, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot must lie in a folder that exists, got {path}")
    require("jinja2" if path.suffix.lower() == ".html" else "matplotlib.figure")


def write_plot(comparison: EstimatorReport, path: Path, title: str) -> None:
    """Plot quantiles and rank errors by level to an .html or .png file."""
    if path.suffix.lower() == ".html":
        write_text(path, _page(comparison, title))
    else:
        _write_png(comparison, path, title)


def _summary(comparison: EstimatorReport) -> str:
    total = comparison.count + comparison.skipped
    return (
        f"{total:,} values, {comparison.skipped:,} of them missing or infinite; "
        f"reservoirs of {comparison.size:,} slots; {len(comparison.levels)} levels"
    )


def _page(comparison: EstimatorReport, title: str) -> str:
    levels = [100 * level for level in comparison.levels]
    axis = {"title": {"text": "level, %"}, "range": [0, 100]}
    true = Line("true", "true", levels, comparison.true_quantiles, "c7", width=7, hover="%{y:.4g}")
    quantiles, errors = [true], []
    for result in comparison.results:
        style: dict[str, Any] = {"colour": THEME[result.name], "dash": _DASHED.get(result.name, "solid")}
        percents = [100 * error for error in result.rank_errors]
        quantiles.append(Line(result.name, result.label, levels, result.quantiles, hover="%{y:.4g}", **style))
        errors.append(Line(result.name, result.label, levels, percents, hover="%{y:+.3f} %", **style))
    views = [
        View(scale, *lines(quantiles, y_title="quantile", height=_HEIGHT, x_axis=axis, y_axis={"type": kind}))
        for scale, kind in (("linear", "linear"), ("logarithmic (hides zero and below)", "log"))
    ]
    for view in views:
        view.data[0]["opacity"] = 0.45
    figures = [
        Figure(
            "quantiles",
            "Quantiles",
            views,
            alt="The quantiles of each estimator by level.",
            caption="The quantiles of each estimator; the broad line shows the true ones.",
            choice="Scale",
            height=_HEIGHT,
            keys=quantiles,
        ),
        Figure(
            "rank-errors",
            "Rank errors",
            [View("", *lines(errors, y_title="rank error, %", height=_HEIGHT, x_axis=axis))],
            alt="The rank errors of each estimator by level; the table has the largest and the mean.",
            caption="How far in ranks of the stream each quantile is too high (+) or too low (−).",
            height=_HEIGHT,
            keys=errors,
        ),
    ]
    sections = [Section("levels", "By level", figures), Section("costs", "Error and cost", [costs(comparison)])]
    return render(Page(title, f"{_summary(comparison)}.", sections))


def _write_png(comparison: EstimatorReport, path: Path, title: str) -> None:
    # A figure with its own canvas needs neither pyplot's global state nor a display.
    figure = require("matplotlib.figure").Figure(figsize=(9, 8), dpi=150, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[0.55, 0.45])
    levels = [100 * level for level in comparison.levels]
    above.plot(levels, comparison.true_quantiles, color=_TRUE_COLOUR, linewidth=7, alpha=0.45, label="true")
    styles = {"dot": ":", "dash": "--", "dashdot": "-."}
    for result in comparison.results:
        line = {"color": _COLOURS[result.name], "linestyle": styles.get(_DASHED.get(result.name, ""), "-")}
        above.plot(levels, result.quantiles, label=result.label, **line)
        below.plot(levels, [100 * error for error in result.rank_errors], **line)
    above.set_ylabel("quantile")
    below.set(xlabel="level, %", ylabel="rank error, %")
    below.axhline(0.0, color=_TRUE_COLOUR, linewidth=0.8)
    for axes in (above, below):
        axes.grid(alpha=0.25)
    above.legend(ncols=4, frameon=False)
    # A dollar sign in a column's name is not the start of a formula.
    figure.suptitle(f"{title}\n{_summary(comparison)}".replace("$", r"\$"), fontsize=10, wrap=True)
    figure.savefig(path)
