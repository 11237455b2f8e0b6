"""The view of a run for the live page (`daes.report.live`), from the files of its folder."""

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from daes.formatting import compact, count, duration, fixed, percent
from daes.report.live import chart, note, reliability_chart, table
from daes.storage.run_folder import RunFolder

_FEW_RECORDS = 10
_SILENT = 60.0
"""Seconds without an update after which a run may have ended."""


def training_view(folder: str | Path) -> dict[str, Any]:
    """The view of a run, during training and afterwards.

    A run that is going to replace another is shown instead of it. A folder without a run is an error; a run without a
    record says so.
    """
    run = RunFolder(folder)
    if run.replacement.is_run:
        run = run.replacement
    config = run.read_config("data", "model", "training")
    found, state = _read(run)
    view: dict[str, Any] = {
        "title": f"Training {Path(folder)}",
        "lead": f"{config['model'].get('embedding')} with {config['model'].get('backbone')} on "
        f"{config['data'].get('name')}; {state}.",
        "facts": [],
        "sections": [],
    }
    if found is None:
        return view
    metrics, history, monitor = found["metrics"], found["history"], found["monitor"]
    speed = found["rows"] / found["seconds"] if found["seconds"] else None
    total = config["data"].get("rows")
    total = total and min(total, config["data"].get("limit") or total)
    view["facts"] = [
        ("rows", count(found["rows"]) + (f" of {count(total)}" if total else "")),
        ("rows/s", compact(speed)),
        ("training", duration(found["seconds"])),
        ("AUC, last rows", fixed(metrics.get("window_auc"))),
        ("LogLoss, last rows", fixed(metrics.get("window_logloss"))),
        ("AUC, all rows", fixed(metrics.get("auc"))),
        ("calibration", fixed(metrics.get("window_calibration"), 3)),
        ("segments", count(len(monitor.get("rows", [])))),
    ]
    calibration = {"id": "calibration", "title": "Calibration", "charts": [reliability_chart(found["reliability"])]}
    view["sections"] = [_metrics(history), _stream(monitor), calibration, _drift(monitor)]
    return view


def _read(run: RunFolder) -> tuple[dict[str, Any] | None, str]:
    """The records of the run, and its state."""
    with suppress(FileNotFoundError):
        found = run.read("progress")
        silent = time.time() - found["time"]
        return found, f"nothing new for {duration(silent)}: it may have ended" if silent > _SILENT else "training"
    with suppress(FileNotFoundError):
        return {**run.read("metrics"), "history": run.read("history"), "monitor": run.read("monitor")}, "finished"
    return None, "nothing is recorded yet"


def _metrics(history: Mapping[str, Any]) -> dict[str, Any]:
    rows = history.get("rows", [])
    # Metrics jump before they settle: shown from the start they would leave no room for what follows.
    start = bisect_left(rows, rows[-1] / 10) if len(rows) > _FEW_RECORDS else 0
    left_out = " The first tenth of the rows is left out." if start else ""

    def along(name: str) -> list[tuple[str, Sequence[float | None]]]:
        return [
            (shown, history.get(key, [])[start:])
            for shown, key in (("last rows", f"window_{name}"), ("all rows", name))
        ]

    scored = f"Every row is scored before it is learned from.{left_out}"
    charts = [
        chart("auc", "AUC", rows[start:], along("auc"), caption=scored),
        chart("logloss", "LogLoss", rows[start:], along("logloss"), caption=f"Lower is better.{left_out}"),
    ]
    return {"id": "metrics", "title": "Predictions", "charts": charts}


def _stream(monitor: Mapping[str, Any]) -> dict[str, Any]:
    rows = monitor.get("rows", [])
    clicks = [("clicked", monitor.get("click_rate", [])), ("predicted", monitor.get("mean_prediction", []))]
    charts = [
        chart("clicks", "Click rate", rows, clicks, unit="%", zero=True),
        chart("speed", "Rows a second", rows, [("rows", monitor.get("rows_per_second", []))], zero=True),
    ]
    return {"id": "stream", "title": "The stream", "charts": charts}


def _drift(monitor: Mapping[str, Any]) -> dict[str, Any]:
    features, missing = monitor.get("features", {}), monitor.get("missing", {})
    measures = ("psi", "psi_by_chance", "ks")
    numbers = [
        [name, *(fixed(_last(of.get(measure)), 3) for measure in measures), percent(_last(missing.get(name)))]
        for name, of in features.items()
    ]
    categories = [
        [name, count(_last(counts)), percent(_last(missing.get(name)))]
        for name, counts in monitor.get("distinct", {}).items()
    ]
    tables = [
        *table(["number", "PSI", "by chance", "KS", "missing"], numbers),
        *table(["category", "distinct ids", "missing"], categories),
    ]
    text = f"The last segment compared with the first {count(monitor.get('reference_rows'))} rows."
    return {"id": "drift", "title": "Drift", "notes": [note(text)], "tables": tables}


def _last(values: Sequence[float | None] | None) -> float | None:
    """The latest known value."""
    return next((value for value in reversed(values or ()) if value is not None), None)
