"""Live pages of a server or a run: HTML without data, and views with the data.

A view consists of plain values: `title`, `lead`, `facts` (pairs of texts) and `sections`, each with an `id`, a `title`,
`notes`, `charts` and `tables`. live.js draws any view, so a server and a run look alike.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import daes
from daes.formatting import compact, count, duration, fixed, listed, percent
from daes.report.rendering import template_environment
from daes.stream.schema import Schema

SECONDS = 2
"""Time between two requests of a page for new numbers."""

_LEAST_WEIGHT = 10
_ADDRESSES = {
    "POST /predict": 'scores of rows: {"rows": [{…}]}, or an Arrow IPC stream; "id" may have up to 200 characters',
    "POST /labels": 'what was clicked: {"id": "…", "labels": [1, 0, null]}, one label per row; null if it is not known',
    "GET /drift": "recent rows compared with the rows of training: PSI, KS, missing values, unseen ids, alarms",
    "GET /readyz": "which model is live, and which was refused and why; 503 while there is none",
    "GET /healthz": "whether the process answers",
    "GET /metrics": "all counters, for Prometheus",
    "GET /status": "the content of the live page, as JSON",
    "GET /openapi.json": "the description of this interface",
}


def live_page(name: str, *, links: Sequence[str] = ()) -> str:
    """The page of a server or a run; it requests its data from the relative address `view`."""
    template = template_environment().get_template("live.html")
    html: str = template.render(title=name, lead="", version=daes.__version__, seconds=SECONDS, links=links)
    return html


def docs_page(schema: Schema) -> str:
    """The page of a server's addresses, with a form for a row of this schema."""
    template = template_environment().get_template("docs.html")
    html: str = template.render(numerical=schema.numerical, categorical=schema.categorical, addresses=_ADDRESSES)
    return html


def serving_view(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """The view of a server, from its /status."""
    traffic, drift, model = status["traffic"], status["drift"], status["model"]
    latency = traffic["latency"]
    failed = sum(number for code, number in traffic["by_status"].items() if int(code) >= 500)
    facts = [
        ("requests/s, last minute", compact(traffic["requests_per_second"])),
        ("rows/s, last minute", compact(traffic["rows_per_second"])),
        ("median latency", duration(latency["p50"])),
        ("99 % within", duration(latency["p99"])),
        ("requests", count(traffic["requests"])),
        ("failed (5xx)", count(failed)),
        ("model", "none yet" if model is None else model["version"]),
        ("model age", "–" if model is None else duration(model["age"])),
    ]
    sections = [_traffic(traffic), _scores(traffic), _drift(drift), _model(status)]
    return {"title": f"Serving {name}", "lead": _lead(model), "facts": facts, "sections": sections}


def _lead(model: Mapping[str, Any] | None) -> str:
    if model is None:
        return "No model yet: the run has not written its first checkpoint."
    learned = "" if model["rows"] is None else f", learned from {count(model['rows'])} rows"
    compiled = ", compiled" if model["compiled"] else ""
    return f"{model['method']} with {model['backbone']}{learned}{compiled}."


def _traffic(traffic: Mapping[str, Any]) -> dict[str, Any]:
    series = traffic["series"]
    x = list(range(-len(series["rows"]), 0))
    requests = [("all", series["requests"]), ("failed", series["errors"])]
    latency = [(name, series[name]) for name in ("p50", "p99")]
    measured = "From a request to its answer within the server; accurate to within 25 %."
    past = "The last five minutes, in seconds before now."
    charts = [
        chart("requests", "Requests a second", x, requests, zero=True, caption=past),
        chart("latency", "Latency", x, latency, unit="s", zero=True, caption=measured),
    ]
    return {"id": "traffic", "title": "Traffic", "charts": charts}


def chart(
    name: str,
    title: str,
    x: Sequence[float],
    series: Sequence[tuple[str, Sequence[float | None]]],
    *,
    kind: str = "line",
    caption: str = "",
    x_unit: str = "",
    unit: str = "",
    zero: bool = False,
) -> dict[str, Any]:
    """A chart of series (label, values) over x.

    Args:
        name: id of the chart.
        title: its heading.
        x: positions of the values; for bars, the edges of the bins.
        series: labels and values.
        kind: "line", "bars", or "match" (dots that should lie on the diagonal).
        caption: text below the chart.
        x_unit, unit: of the axes: "%", "s" or none.
        zero: whether the y-axis starts at 0.
    """
    drawn = [{"name": label, "values": list(values)} for label, values in series]
    about = {"id": name, "title": title, "caption": caption, "kind": kind}
    return {**about, "x": list(x), "x_unit": x_unit, "unit": unit, "zero": zero, "series": drawn}


def _scores(traffic: Mapping[str, Any]) -> dict[str, Any]:
    scores, labels = traffic["scores"], traffic["labels"]
    caption = "" if scores["mean"] is None else f"The last rows; their mean is {percent(scores['mean'])}."
    counts = [("rows", scores["counts"])]
    charts = [chart("scores", "Scores", scores["edges"], counts, kind="bars", caption=caption, x_unit="%", zero=True)]
    metrics = labels["metrics"]
    text = "No labels have come back: POST /labels says what was clicked."
    if metrics:
        text = (
            f"Labels of {count(metrics['rows'])} rows came back: AUC {fixed(metrics['auc'])}, LogLoss "
            f"{fixed(metrics['logloss'])}, calibration {fixed(metrics['calibration'])} (1 is calibrated)."
        )
        charts.append(reliability_chart(labels["reliability"]))
    return {"id": "scores-section", "title": "Scores and clicks", "notes": [note(text)], "charts": charts}


def reliability_chart(reliability: Mapping[str, Any]) -> dict[str, Any]:
    """The click rate against the prediction."""
    filled = [i for i, weight in enumerate(reliability["weight"]) if (weight or 0) >= _LEAST_WEIGHT]
    predicted, clicked = ([reliability[name][i] for i in filled] for name in ("mean_prediction", "mean_label"))
    caption = "Rows grouped by prediction, groups of ten or more; on the line, as many click as predicted."
    options: dict[str, Any] = {"kind": "match", "caption": caption, "x_unit": "%", "unit": "%", "zero": True}
    return chart("reliability", "Clicked against predicted", predicted, [("clicked", clicked)], **options)


def _drift(drift: Mapping[str, Any]) -> dict[str, Any]:
    rows = drift.get("rows", 0)
    if not rows:
        return {"id": "drift", "title": "Drift", "notes": [note("No rows to compare yet.")]}
    alarms = drift["alarms"]
    notes = [note(f"The last {count(rows)} rows compared with those of training.")]
    if alarms:
        notes.append(note(f"Traffic differs from training: {listed(alarms)}.", alarm=True))
    missing = ("missing", "missing_learned")
    numbers = [
        [name, *(fixed(of[key], 3) for key in ("psi", "psi_by_chance", "ks")), *(percent(of[key]) for key in missing)]
        for name, of in drift["numerical"].items()
    ]
    categories = [
        [name, *(percent(of[key]) for key in ("unseen", "unseen_learned", *missing))]
        for name, of in drift["categorical"].items()
    ]
    tables = [
        *table(["number", "PSI", "by chance", "KS", "missing", "in training"], numbers, alarms),
        *table(["category", "unseen ids", "in training", "missing", "in training"], categories, alarms),
    ]
    return {"id": "drift", "title": "Drift", "notes": notes, "tables": tables}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], alarms: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A table, or none without rows; a row is marked if an alarm begins with its name."""
    marked = [{"cells": row, "alarm": any(alarm.startswith(f"{row[0]}: ") for alarm in alarms)} for row in rows]
    return [{"columns": columns, "rows": marked}] if rows else []


def _model(status: Mapping[str, Any]) -> dict[str, Any]:
    model, refused = status["model"], status["refused"]
    notes = []
    if model is not None:
        text = (
            f"{model['version']}, written {model['written']}. Models that went live: {count(status['changes'])}; "
            f"refused: {count(status['refusals'])}. The server has been up for {duration(status['traffic']['uptime'])}."
        )
        notes.append(note(text))
    if refused is not None:
        notes.append(note(f"{refused['version']} was refused: {refused['reason']}", alarm=True))
    return {"id": "model", "title": "Model", "notes": notes}


def note(text: str, *, alarm: bool = False) -> dict[str, Any]:
    """A sentence of a section."""
    return {"text": text, "alarm": alarm}
