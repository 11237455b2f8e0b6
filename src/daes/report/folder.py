"""From the files of a run to what the report draws; see docs/run-folder.md for the files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from daes.formatting import compact, count
from daes.report.run import Drift, Floats, Knots, Reliability, Run
from daes.storage.run_folder import RunFolder


def read_run(folder: Path) -> Run:
    """Everything a run's folder says; `history` and `monitor` may be missing, `config` and `metrics` not."""
    place = RunFolder(folder)
    config, results = place.read_config(), place.read("metrics")
    monitor = _optional(place, "monitor")
    model, data = config.get("model", {}), config.get("data", {})
    has_numbers = bool(config.get("schema", {}).get("numerical"))
    method = f"{model.get('embedding')} · " if has_numbers else ""
    return Run(
        title=f"{method}{model.get('backbone')} on {data.get('name') or data.get('what')}",
        lead=_lead(config, results),
        metrics={name: _float(value) for name, value in results.get("metrics", {}).items()},
        undefined=dict(results.get("undefined", {})),
        history={name: floats(values) for name, values in _optional(place, "history").items()},
        config={name: value for name, value in config.items() if name not in ("environment", "schema")},
        schema=config.get("schema", {}),
        environment=config.get("environment", {}),
        window=config.get("training", {}).get("window"),
        rows=results.get("rows"),
        seconds=results.get("seconds"),
        reliability=read_reliability(results),
        drift=read_drift(monitor),
        missing={name: floats(values) for name, values in monitor.get("missing", {}).items()},
        segment_rows=floats(monitor.get("rows", [])),
        speed=floats(monitor.get("rows_per_second", [])),
        click_rate=floats(monitor.get("click_rate", [])),
        mean_prediction=floats(monitor.get("mean_prediction", [])),
        knots=read_knots(monitor.get("knots")),
        quantiles=read_knots(monitor.get("quantiles")),
        bad_batches=tuple((bad.get("row"), str(bad.get("reason"))) for bad in results.get("bad_batches", [])),
        notes=tuple(map(str, data.get("notes", []))),
    )


def _optional(place: RunFolder, name: str) -> dict[str, Any]:
    try:
        return place.read(name)
    except FileNotFoundError:
        return {}


def _lead(config: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    schema = config.get("schema", {})
    numerical, categorical = len(schema.get("numerical", [])), len(schema.get("categorical", []))
    return (
        f"{count(results.get('rows'))} rows of {config.get('data', {}).get('what')} in one pass, each scored before it "
        f"was learned from; {numerical} numerical and {categorical} categorical features; "
        f"{compact(config.get('parameters'))} parameters; begun {_when(config)}."
    )


def _when(config: Mapping[str, Any]) -> str:
    return str(config.get("created", "")).replace("T", " ").replace("+00:00", " UTC") or "at an unknown time"


def floats(values: Sequence[Any]) -> Floats:
    """A list of JSON, in which null stands for what is not a number."""
    return np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)


def read_reliability(results: Mapping[str, Any]) -> Reliability | None:
    """The groups of predictions of a metrics.json."""
    found = results.get("reliability")
    if not found:
        return None
    return Reliability(*(floats(found.get(name, [])) for name in ("weight", "mean_prediction", "mean_label")))


def read_drift(monitor: Mapping[str, Any]) -> Drift | None:
    """PSI and KS of a monitor.json; None where there is no numerical feature or no segment."""
    features, rows = monitor.get("features", {}), floats(monitor.get("rows", []))
    if not features or not len(rows):
        return None
    blank = np.full(len(rows), np.nan)
    columns = {
        kind: np.stack([floats(series[kind]) if series.get(kind) else blank for series in features.values()], axis=1)
        for kind in ("psi", "ks", "psi_by_chance", "ks_by_chance")
    }
    return Drift(tuple(features), rows, int(monitor.get("reference_rows", 0)), **columns)


def read_knots(found: Mapping[str, Any] | None) -> Knots | None:
    """The paths of knots or quantiles of a monitor.json; None for a method that has none."""
    if not found or not found.get("features") or not found.get("rows"):
        return None
    values = np.stack([np.stack([floats(knots) for knots in path]) for path in found["features"].values()], axis=1)
    return Knots(tuple(found["features"]), floats(found["rows"]), floats(found["levels"]), values)
