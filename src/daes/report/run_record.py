"""The record of a run from its folder, as arrays; what the folder lacks is None or empty. See docs/run-folder.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.formatting import compact, count
from daes.metrics.stream import Reliability
from daes.storage.run_folder import RunFolder

Floats = NDArray[np.float64]


def _empty() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class DriftSeries:
    """The drift of segments of the stream against its first `reference_rows` rows.

    **Shape.** `rows` (S,), the ends of the segments; the others (S, q). `…_by_chance` is the expected value for a
    feature without drift.
    """

    names: tuple[str, ...]
    rows: Floats
    reference_rows: int
    psi: Floats
    ks: Floats
    psi_by_chance: Floats
    ks_by_chance: Floats


@dataclass(frozen=True, eq=False)
class KnotPaths:
    """The positions of the knots along the stream. **Shape.** `rows` (T,), `levels` (K,), `values` (T, q, K)."""

    names: tuple[str, ...]
    rows: Floats
    levels: Floats
    values: Floats


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One pass of one model over a stream.

    `history` has one array per column (`rows`, `seconds`, `auc`, `window_auc`, …); `undefined` says why a metric is
    NaN; `segment_rows` are the ends of the segments of `missing` (by column), `distinct` (by categorical column, up to
    each segment), `speed`, `click_rate` and `mean_prediction`; `importance` is the content of importance.json;
    `bad_rows` is the number of skipped rows and a description of the first ones.
    """

    title: str
    lead: str = ""
    folder: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    undefined: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[str, Floats] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    window: int | None = None
    rows: int | None = None
    batches: int | None = None
    seconds: float | None = None
    reliability: Reliability | None = None
    drift: DriftSeries | None = None
    missing: Mapping[str, Floats] = field(default_factory=dict)
    distinct: Mapping[str, Floats] = field(default_factory=dict)
    importance: Mapping[str, Any] = field(default_factory=dict)
    segment_rows: Floats = field(default_factory=_empty)
    speed: Floats = field(default_factory=_empty)
    click_rate: Floats = field(default_factory=_empty)
    mean_prediction: Floats = field(default_factory=_empty)
    knots: KnotPaths | None = None
    quantiles: KnotPaths | None = None
    bad_batches: tuple[tuple[int, str], ...] = ()
    bad_rows: tuple[int, tuple[str, ...]] = (0, ())
    notes: tuple[str, ...] = ()

    @property
    def windowed(self) -> bool:
        """Whether the metrics of the window are about fewer rows than those of the stream."""
        return bool(self.window and self.rows and self.rows > self.window)


def read_run(folder: Path) -> RunRecord:
    """The record of a run's folder; `config` and `metrics` must exist, other files may be missing."""
    files = RunFolder(folder)
    config, results = files.read_config(), files.read("metrics")
    monitor = without_short_end(_optional(files, "monitor"))
    model, data = config.get("model", {}), config.get("data", {})
    bins = results.get("reliability")
    has_numbers = bool(config.get("schema", {}).get("numerical"))
    method = f"{model.get('embedding')} · " if has_numbers else ""
    return RunRecord(
        title=f"{method}{model.get('backbone')} on {data.get('name') or data.get('what')}",
        lead=_lead(config, results),
        folder=str(folder),
        metrics={name: number(value) for name, value in results.get("metrics", {}).items()},
        undefined=dict(results.get("undefined", {})),
        history={name: floats(values) for name, values in _optional(files, "history").items()},
        config={name: value for name, value in config.items() if name not in ("environment", "schema")},
        schema=config.get("schema", {}),
        environment=config.get("environment", {}),
        window=config.get("training", {}).get("window"),
        rows=results.get("rows"),
        batches=results.get("batches"),
        seconds=results.get("seconds"),
        reliability=Reliability(*(floats(bins.get(name, [])) for name in Reliability._fields)) if bins else None,
        drift=read_drift(monitor),
        missing={name: floats(values) for name, values in monitor.get("missing", {}).items()},
        distinct={name: floats(values) for name, values in monitor.get("distinct", {}).items()},
        importance=_optional(files, "importance"),
        segment_rows=floats(monitor.get("rows", [])),
        speed=floats(monitor.get("rows_per_second", [])),
        click_rate=floats(monitor.get("click_rate", [])),
        mean_prediction=floats(monitor.get("mean_prediction", [])),
        knots=read_knots(monitor.get("knots")),
        quantiles=read_knots(monitor.get("quantiles")),
        bad_batches=tuple((bad.get("row"), str(bad.get("reason"))) for bad in results.get("bad_batches", [])),
        bad_rows=_bad_rows(results),
        notes=tuple(map(str, data.get("notes", []))),
    )


def _bad_rows(results: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    found = results.get("bad_rows", {})
    rows = (f"row {bad.get('row')} of {bad.get('path')}: {bad.get('reason')}" for bad in found.get("first", []))
    return int(found.get("count", 0)), tuple(rows)


def _optional(files: RunFolder, name: str) -> dict[str, Any]:
    try:
        return files.read(name)
    except FileNotFoundError:
        return {}


def without_short_end(monitor: Mapping[str, Any]) -> Mapping[str, Any]:
    """A monitor.json without its last segment if that is short, hence mostly noise.

    >>> without_short_end({"rows": [100, 200, 210], "click_rate": [0.1, 0.2, 0.9], "missing": {"a": [0, 0, 1]}})
    {'rows': [100, 200], 'click_rate': [0.1, 0.2], 'missing': {'a': [0, 0]}}
    """
    rows = monitor.get("rows", [])
    if len(rows) < 3 or rows[-1] - rows[-2] >= (rows[-2] - rows[-3]) / 2:
        return monitor

    def cut(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {name: cut(value) for name, value in part.items()}
        return part[:-1] if isinstance(part, list) and len(part) == len(rows) else part

    other = ("knots", "quantiles")  # these have their own rows
    return {name: part if name in other else cut(part) for name, part in monitor.items()}


def _lead(config: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    schema = config.get("schema", {})
    numerical, categorical = len(schema.get("numerical", [])), len(schema.get("categorical", []))
    when = str(config.get("created", "")).replace("T", " ").replace("+00:00", " UTC")
    return (
        f"{count(results.get('rows'))} rows of {config.get('data', {}).get('what')} in one pass, each scored before it "
        f"was learned from; {numerical} numerical and {categorical} categorical features; "
        f"{compact(config.get('parameters'))} parameters; started {when or 'at an unknown time'}."
    )


def floats(values: Sequence[Any]) -> Floats:
    """Numbers from JSON, where null is NaN."""
    return np.array(values, dtype=np.float64)


def number(value: Any) -> float:
    """A number from JSON, where null is NaN."""
    return float("nan") if value is None else float(value)


def read_drift(monitor: Mapping[str, Any]) -> DriftSeries | None:
    """PSI and KS of a monitor.json; None if there is no numerical feature or no row after those of the reference."""
    features, rows = monitor.get("features", {}), floats(monitor.get("rows", []))
    reference_rows = int(monitor.get("reference_rows", 0))
    if not features or not len(rows) or rows[-1] <= reference_rows:
        return None
    blank = np.full(len(rows), np.nan)
    columns = {
        kind: np.stack([floats(series[kind]) if series.get(kind) else blank for series in features.values()], axis=1)
        for kind in ("psi", "ks", "psi_by_chance", "ks_by_chance")
    }
    return DriftSeries(tuple(features), rows, reference_rows, **columns)


def highest(values: Floats) -> Floats:
    """The highest value of each column, (S, q) → (q,); NaN where there is none."""
    return np.asarray(np.fmax.reduce(values, axis=0, initial=np.nan))


def means(values: Floats) -> Floats:
    """The mean of the finite values of each column, (S, q) → (q,); NaN where there is none."""
    finite = np.isfinite(values)
    number = finite.sum(axis=0)
    return np.asarray(np.where(finite, values, 0.0).sum(axis=0) / np.where(number > 0, number, np.nan))


def read_knots(found: Mapping[str, Any] | None) -> KnotPaths | None:
    """The paths of knots or quantiles in a monitor.json; None for a method without them."""
    if not found or not found.get("features") or not found.get("rows"):
        return None
    values = np.stack([np.stack([floats(knots) for knots in path]) for path in found["features"].values()], axis=1)
    return KnotPaths(tuple(found["features"]), floats(found["rows"]), floats(found["levels"]), values)
