"""Figures of the features' distributions: drift, missing values and the movement of knots."""

from collections.abc import Mapping, Sequence

import numpy as np

from daes.formatting import compact, fixed, measured, percent
from daes.report.figures import (
    ROWS_AXIS,
    Figure,
    Floats,
    Layout,
    Line,
    View,
    edges,
    first,
    heat_map,
    lines,
    map_height,
    middles,
    named,
    segments_axis,
)
from daes.report.run_record import DriftSeries, KnotPaths, highest, means
from daes.table import Table

SEGMENTS_AXIS: Layout = {**ROWS_AXIS, "rangemode": "normal"}

_LIMITS = {"psi": 0.25, "ks": 0.1}
_TITLES = {"psi": "PSI", "ks": "KS"}
_LEAST_FRAME = 0.1
"""The least height of the drift of one feature: what is below looks as small as it is."""


def drift_figures(drift: DriftSeries) -> list[Figure]:
    """A map of all features, and the lines of one feature, by PSI and KS."""
    order = np.argsort(-np.nan_to_num(highest(drift.psi), nan=-1.0), kind="stable").tolist()
    return [_drift_map(drift, order), _drift_lines(drift, order)]


def _drift_map(drift: DriftSeries, order: Sequence[int]) -> Figure:
    shown, omitted = first(order, keep_order=True)
    names = [drift.names[i] for i in shown]
    views = []
    for measure, title in _TITLES.items():
        z = getattr(drift, measure)[:, shown].T
        finite = z[np.isfinite(z)]
        high = max(_LIMITS[measure], float(np.quantile(finite, 0.98)) if finite.size else 0.0)
        views.append(View(title, *heat_map(names, edges(drift.rows), z, title, SEGMENTS_AXIS, limits=(0.0, high))))
    kinds = ((drift.psi, drift.psi_by_chance), (drift.ks, drift.ks_by_chance))
    columns = [column for seen, chance in kinds for column in (highest(seen), seen[-1], means(chance))]
    return Figure(
        "drift-map",
        f"Drift against the first {compact(drift.reference_rows)} rows",
        views,
        alt=f"Heat map of drift by feature and row. {_most_drift(drift)}",
        caption="PSI below 0.1 is usually called stable, above 0.25 a shift. KS is the largest gap between the two "
        "distribution functions, 0 to 1. Blank where a segment has no value; the strongest colour also stands for "
        f"larger values.{omitted}",
        choice="Measure",
        height=map_height(len(names)),
        table=Table(
            ("feature", "highest PSI", "last PSI", "by chance", "highest KS", "last KS", "by chance"),
            [(drift.names[i], *(fixed(column[i], 3) for column in columns)) for i in order],
        ),
    )


def _drift_lines(drift: DriftSeries, order: Sequence[int]) -> Figure:
    shown, omitted = first(order)
    y, views = "%{y:.3f}<extra></extra>", []
    for feature in shown:
        series = [
            Line("psi", "PSI", middles(drift.rows), drift.psi[:, feature], "c1", hover=f"PSI {y}"),
            Line("ks", "KS", middles(drift.rows), drift.ks[:, feature], "c2", dash="dash", hover=f"KS {y}"),
        ]
        most = float(np.nanmax([*drift.psi[:, feature], *drift.ks[:, feature], _LEAST_FRAME]))
        frame = {"range": [-0.03 * most, 1.06 * most]}
        view = lines(series, y_title="drift", height=260, x_axis=segments_axis(drift.rows), y_axis=frame)
        views.append(View(drift.names[feature], *view))
    return Figure(
        "drift-lines",
        "Drift of one feature",
        views,
        alt="PSI and KS of one feature along the stream; the table above has each feature's highest values.",
        caption=f"Features that drifted most come first.{omitted}",
        choice="Feature",
        height=260,
    )


def _most_drift(drift: DriftSeries) -> str:
    psi = highest(drift.psi)
    if not np.isfinite(psi).any():
        return "No feature has a value to compare."
    feature = int(np.nanargmax(psi))
    return f"The highest PSI is {fixed(float(psi[feature]), 3)}, of {drift.names[feature]}."


def missing_figure(missing: Mapping[str, Floats], rows: Floats) -> Figure | None:
    """The share of missing values per column along the stream, for the columns that have any."""
    known = {name: part for name, part in missing.items() if np.nan_to_num(part).max(initial=0.0) > 0}
    if not known:
        return None
    most = [-float(np.nanmax(part)) for part in known.values()]
    shown, omitted = first(np.argsort(most, kind="stable").tolist(), keep_order=True)
    names = [list(known)[i] for i in shown]
    z = np.stack([known[name] for name in names])
    limits = (0.0, max(0.05, float(np.nanmax(z))))
    view = heat_map(names, edges(rows), z, "missing", SEGMENTS_AXIS, limits=limits, form=".1f", percent=True)
    return Figure(
        "missing-map",
        "Share of missing values",
        [View("", *view)],
        alt=f"Heat map of the share of missing values by column and row; {len(known)} columns have missing values.",
        caption=f"Columns without a missing value are left out ({len(missing) - len(known)} of {len(missing)})."
        + omitted,
        height=map_height(len(names)),
        table=Table(
            ("column", "mean", "lowest", "highest"),
            [
                (name, percent(mean), percent(np.nanmin(part)), percent(np.nanmax(part)))
                for name, part, mean in zip(names, z, means(z.T), strict=True)
            ],
        ),
    )


def rank_distance(values: Floats, final: Floats, levels: Floats) -> Floats:
    """How far each knot was from its final position, in ranks of the final distribution: (T, K), (K,), (K,) → (T, K).

    The final distribution has the quantiles `final` at `levels`, linear in between; where knots coincide, every rank of
    the tie counts as correct.
    """
    low = np.interp(values, final, levels)
    high = 1.0 - np.interp(-values, -final[::-1], (1.0 - levels)[::-1])
    return np.maximum(np.maximum(np.minimum(low, high) - levels, levels - np.maximum(low, high)), 0.0)


def knot_figures(knots: KnotPaths) -> list[Figure]:
    """How far the knots of each feature were from their final position, and the paths of one feature's knots."""
    seen = [i for i in range(len(knots.names)) if np.isfinite(knots.values[-1, i]).all()]
    if not seen:
        return []
    inner = slice(1, -1) if len(knots.levels) > 2 else slice(None)
    distance = {
        i: rank_distance(knots.values[:, i], knots.values[-1, i], knots.levels)[:, inner].max(axis=1) for i in seen
    }
    moved = sorted(seen, key=lambda i: -np.nan_to_num(distance[i]).mean())
    return [*([_knot_map(knots, distance, moved)] if len(knots.rows) > 1 else []), _knot_lines(knots, moved)]


def _knot_map(knots: KnotPaths, distance: Mapping[int, Floats], order: Sequence[int]) -> Figure:
    shown, omitted = first(order, keep_order=True)
    names, z = [knots.names[i] for i in shown], np.stack([distance[i] for i in shown])
    limits = (0.0, max(0.02, float(np.nanquantile(z, 0.98))))
    view = heat_map(names, edges(knots.rows), z, "ranks away", SEGMENTS_AXIS, limits=limits, form=".1f", percent=True)
    return Figure(
        "knots-map",
        "How far the knots were from their last place",
        [View("", *view)],
        alt="Heat map of the largest distance of a feature's knots from their last place, by feature and row.",
        caption="The largest distance of an inner knot from where it ended, in ranks of the final distribution: "
        f"5 % means that a quantile was off by 5 percentage points.{omitted}",
        height=map_height(len(names)),
        table=Table(
            ("feature", "at the first record", "half way"),
            [(name, percent(line[0]), percent(line[len(line) // 2])) for name, line in zip(names, z, strict=True)],
        ),
    )


def _knot_lines(knots: KnotPaths, seen: Sequence[int]) -> Figure:
    shown = _deciles(knots.levels)
    labels = [f"{100 * knots.levels[i]:.3g} %" for i in shown]
    middle = (len(shown) - 1) / 2
    features, omitted = first(seen)
    views = []
    for feature in features:
        paths = knots.values[:, feature][:, shown]
        series = []
        for k, label in enumerate(labels):
            colour, width = ("c1", 2.2) if abs(k - middle) < 0.75 else ("c7", 1.1)
            hover = f"{label}: %{{y:.4~g}}<extra></extra>"
            series.append(Line(label, label, knots.rows, paths[:, k], colour, width, hover=hover))
        name, axis = knots.names[feature], _value_axis(paths)
        views.append(View(name, *lines(series, y_title=named(name), height=340, y_axis=axis)))
    return Figure(
        "knots-lines",
        "Paths of one feature’s knots",
        views,
        alt="The values of a feature's quantiles along the stream; the table has their first and last places.",
        caption="Each line is a quantile as the method knew it at that row; the smallest and the largest value are "
        "left out. Features whose knots moved most come first." + omitted,
        choice="Feature",
        height=340,
        table=Table(
            ("feature", *labels),
            [(knots.names[feature], *map(measured, knots.values[-1, feature, shown])) for feature in seen],
            caption="Values of the quantiles at the end of the stream",
        ),
    )


def _deciles(levels: Floats) -> list[int]:
    """The indices of up to nine inner knots, evenly spaced."""
    inner = range(1, len(levels) - 1) if len(levels) > 2 else range(len(levels))
    wanted = np.linspace(levels[inner[0]], levels[inner[-1]], min(len(inner), 9))
    return sorted({int(np.argmin(np.abs(levels - level))) for level in wanted})


def _value_axis(paths: Floats) -> Layout:
    low, high = float(np.nanmin(paths)), float(np.nanmax(paths))
    if low > 0 and high / low > 50:
        return {"type": "log", "hoverformat": ".4~g", "dtick": 1}
    return {"hoverformat": ".4~g", "tickformat": "~s" if max(abs(low), abs(high)) >= 1e4 else ""}
