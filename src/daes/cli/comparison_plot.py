"""A comparison of estimators as a picture: a page for the browser (plotly) or a PNG (matplotlib)."""

from html import escape
from pathlib import Path
from string import Template
from typing import Any

from daes.distribution.estimator_report import EstimatorReport, EstimatorResult
from daes.extras import require
from daes.formatting import compact, count, duration, nbytes, percent, scientific
from daes.report.rendering import plotly_code
from daes.storage.durable import write_text

_TRUE_COLOUR = "#8a8a8a"
# Distinguishable for colour-blind readers (after Okabe and Ito), and legible on light and dark ground alike.
_COLOURS = {
    "reservoir": "#56b4e9",
    "jump": "#009e73",
    "jump-paper": "#e69f00",
    "order-statistics": "#d55e00",
    "kll": "#cc79a7",
    "tdigest": "#2f7fd1",
    "gk": "#8f7ad6",
}
# A page that works offline has no button that uploads it.
_CONFIG = {"displaylogo": False, "responsive": True, "showSendToCloud": False, "plotlyServerURL": ""}
_DASHED = {"reservoir": "dot", "jump-paper": "dash", "gk": "dashdot"}


def check_plot(path: Path) -> None:
    """Find out before a long stream is read whether the picture can be written after it."""
    if path.suffix.lower() not in (".html", ".png"):
        raise ValueError(f"--plot must end in .html or .png, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot must lie in a folder that exists, got {path}")
    require("plotly.subplots" if path.suffix.lower() == ".html" else "matplotlib.figure")


def write_plot(comparison: EstimatorReport, path: Path, title: str) -> None:
    """Draw quantiles and rank errors by level, to an .html or a .png file."""
    if path.suffix.lower() == ".html":
        write_text(path, _page(comparison, title))
    else:
        _write_png(comparison, path, title)


def _page(comparison: EstimatorReport, title: str) -> str:
    figure = _figure(comparison).to_html(full_html=False, include_plotlyjs=False, post_script=_SCRIPT, config=_CONFIG)
    return Template(_PAGE).substitute(
        title=escape(title),
        summary=escape(_summary(comparison)),
        figure=f"<script>{plotly_code().decode()}</script>{figure}",
        rows="\n".join(_row(result) for result in comparison.results),
    )


def _summary(comparison: EstimatorReport) -> str:
    total = comparison.count + comparison.skipped
    return (
        f"{total:,} values, {comparison.skipped:,} of them missing or infinite; "
        f"reservoirs of {comparison.size:,} slots; {len(comparison.levels)} levels"
    )


def _figure(comparison: EstimatorReport) -> Any:
    figure = require("plotly.subplots").make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.07, row_heights=[0.55, 0.45]
    )
    levels = [100 * level for level in comparison.levels]
    figure.add_scatter(
        x=levels,
        y=comparison.true_quantiles,
        name="true",
        line={"color": _TRUE_COLOUR, "width": 9},
        opacity=0.45,
        hovertemplate="%{y:.4g}",
        row=1,
        col=1,
    )
    for result in comparison.results:
        line = {"color": _COLOURS[result.name], "width": 2, "dash": _DASHED.get(result.name, "solid")}
        common = {"x": levels, "name": result.label, "legendgroup": result.name, "line": line, "mode": "lines"}
        figure.add_scatter(**common, y=result.quantiles, hovertemplate="%{y:.4g}", row=1, col=1)
        percents = [100 * error for error in result.rank_errors]
        figure.add_scatter(**common, y=percents, hovertemplate="%{y:+.3f} %", showlegend=False, row=2, col=1)
    figure.update_yaxes(title_text="quantile", row=1, col=1)
    figure.update_yaxes(title_text="rank error, %", row=2, col=1)
    figure.update_xaxes(range=[0, 100])
    figure.update_xaxes(title_text="level, %", row=2, col=1)
    figure.update_layout(
        height=760,
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 70, "r": 20, "t": 40, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _TRUE_COLOUR, "activecolor": _COLOURS["tdigest"]},
    )
    return figure


def _row(result: EstimatorResult) -> str:
    cells = (
        percent(result.max_rank_error, 3),
        percent(result.mean_rank_error, 3),
        scientific(result.kl_divergence, 1),
        count(result.draws),
        duration(result.seconds),
        compact(result.values_per_second),
        nbytes(result.nbytes),
    )
    colour = _COLOURS[result.name]
    name = f'<th scope="row"><i style="background:{colour}"></i>{escape(result.label)}</th>'
    return f"<tr>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _write_png(comparison: EstimatorReport, path: Path, title: str) -> None:
    # A figure of its own canvas: nothing of pyplot's global state, no display needed.
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
    below.set_ylabel("rank error, %")
    below.set_xlabel("level, %")
    below.axhline(0.0, color=_TRUE_COLOUR, linewidth=0.8)
    for axes in (above, below):
        axes.grid(alpha=0.25)
    above.legend(ncols=4, frameon=False)
    # A dollar sign in a column's name is not the start of a formula.
    figure.suptitle(f"{title}\n{_summary(comparison)}".replace("$", r"\$"), fontsize=10, wrap=True)
    figure.savefig(path)


_SCRIPT = """
const plot = document.getElementById('{plot_id}');
const dark = window.matchMedia('(prefers-color-scheme: dark)');
function paint() {
  const style = getComputedStyle(document.body);
  const ink = style.getPropertyValue('--ink').trim(), grid = style.getPropertyValue('--grid').trim();
  const ground = style.getPropertyValue('--ground').trim();
  const change = {'font.color': ink, 'hoverlabel.bgcolor': ground, 'hoverlabel.font.color': ink};
  for (const axis of ['xaxis', 'xaxis2', 'yaxis', 'yaxis2']) {
    change[axis + '.gridcolor'] = grid;
    change[axis + '.zerolinecolor'] = grid;
    change[axis + '.linecolor'] = grid;
  }
  Plotly.relayout(plot, change);
}
paint();
dark.addEventListener('change', paint);
document.getElementById('log').addEventListener('change', function (event) {
  Plotly.relayout(plot, {'yaxis.type': event.target.checked ? 'log' : 'linear', 'yaxis.autorange': true});
});
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { --ink: #1b1f24; --ground: #ffffff; --grid: #d9dee4; --quiet: #5b6570; }
@media (prefers-color-scheme: dark) { body { --ink: #e6e9ed; --ground: #14181d; --grid: #39424d; --quiet: #9aa5b1; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1100px;
  margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.2rem; margin: 0; overflow-wrap: anywhere; text-wrap: balance; }
p { color: var(--quiet); margin: .3rem 0 1rem; max-width: 75ch; }
label { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: 1rem; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th:first-child { text-align: left; }
th i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$summary</p>
<label><input type="checkbox" id="log"> logarithmic scale (hides values of zero and below)</label>
$figure
<p>Above, the quantiles each estimator gives, on the broad line of the true ones. Below, how far in ranks of the stream
each quantile is too high (+) or too low (−). Click a name to hide it.</p>
<div class="wide"><table>
<thead><tr><th>method</th><th>max rank error</th><th>mean</th><th>KL</th><th>draws</th><th>time</th><th>values/s</th>
<th>memory</th></tr></thead>
<tbody>
$rows
</tbody>
</table></div>
</body>
</html>
"""
