"""Figures of what the model learned about each numerical feature."""

from collections.abc import Sequence

import numpy as np

from daes.formatting import compact, fixed, measured, percent
from daes.report.figures import Figure, Layout, Line, View, first, heat_map, lines, map_height
from daes.report.learned import LEVELS, Learned, Modulation, principal_coordinates, principal_direction
from daes.table import Table

_TICKS = (0, 10, 20, 30, 40)
_Y = "%{y:.4f}<extra></extra>"


def _level_axis(title: str, ticks: Sequence[str]) -> Layout:
    """Levels from 0 to 1; narrow screens show every other tick."""
    return {
        "title": {"text": title},
        "hoverformat": ".1%",
        "tickangle": 0,
        "tickvals": [float(LEVELS[i]) for i in _TICKS],
        "ticktext": list(ticks),
        "narrowvals": [float(LEVELS[i]) for i in _TICKS[::2]],
        "narrowtext": list(ticks[::2]),
    }


LEVEL_AXIS = _level_axis("quantile of the feature", [f"{100 * LEVELS[i]:.0f}\u00a0%" for i in _TICKS])


def encoding_figures(learned: Learned) -> list[Figure]:
    """The response to each feature, its encoding in one dimension, and one feature's whole embedding."""
    seen = np.flatnonzero(learned.seen)
    if not len(seen):
        return []
    found = [_response(learned, seen)]
    if learned.embedding is not None:
        found += [_overview(learned, seen), _embedding(learned, seen)]
    return found


def _response(learned: Learned, seen: np.ndarray) -> Figure:
    known = seen[np.isfinite(learned.response[seen]).all(axis=1)]
    order = known[np.argsort(-np.ptp(learned.response[known], axis=1), kind="stable")].tolist()
    shown, omitted = first(order)
    views = []
    for feature in shown:
        name, values = learned.names[feature], learned.values[feature]
        texts, hover = [measured(value) for value in values], f"value %{{customdata}}: {_Y}"
        line = Line("response", "predicted", LEVELS, learned.response[feature], "c1", 2.2, hover=hover, texts=texts)
        missing = np.full(len(LEVELS), learned.missing_response[feature])
        other = Line("missing", "if missing", LEVELS, missing, "c7", 1.2, "dot", hover=f"if missing: {_Y}")
        view = lines([line, other], y_title="predicted probability", height=300, x_axis=_axis_of(values))
        views.append(View(name, *view))
    return Figure(
        "response",
        "Response to one feature",
        views,
        alt="Predicted probability as one feature moves through its distribution; the table has its range.",
        caption="The prediction as this feature moves from its smallest to its largest value, with the other numbers "
        "at their medians and every category unknown. Features that change the prediction most come first." + omitted,
        choice="Feature",
        table=Table(
            ("feature", "lowest", "at the median", "highest", "if missing"),
            [
                (learned.names[i], *map(fixed, (found.min(), found[len(LEVELS) // 2], found.max(), missing)))
                for i in order
                for found, missing in [(learned.response[i], learned.missing_response[i])]
            ],
        ),
    )


def _axis_of(values: np.ndarray) -> Layout:
    """An axis of quantiles with their values."""
    ticks = [f"{100 * LEVELS[i]:.0f}\u00a0%<br>{measured(values[i])}" for i in _TICKS]
    return _level_axis("quantile, value", ticks)


def _overview(learned: Learned, seen: np.ndarray) -> Figure:
    assert learned.embedding is not None
    coordinates, carried = principal_coordinates(learned.embedding[seen])
    picked, omitted = first(np.argsort(-np.ptp(coordinates, axis=1), kind="stable").tolist(), keep_order=True)
    seen, coordinates, carried = seen[picked], coordinates[picked], carried[picked]
    names = [learned.names[i] for i in seen]
    directions = heat_map(names, LEVELS, coordinates, "coordinate", LEVEL_AXIS, scale="diverging")
    length = np.linalg.norm(learned.embedding[seen], axis=-1)
    norms = heat_map(names, LEVELS, length, "length", LEVEL_AXIS)
    return Figure(
        "encoding-map",
        "Encoding of every feature",
        [View("first principal direction", *directions), View("length of the embedding", *norms)],
        alt="Heat map of each feature's embedding along its distribution, on its first principal direction.",
        caption="Each line is one feature from its smallest to its largest value. The colour is the embedding’s "
        "coordinate on the direction in which that feature’s embedding varies most: values of equal colour are alike "
        "to the model, and a line without colour is a feature it hardly uses. The strongest colours also stand for "
        f"larger values.{omitted}",
        height=map_height(len(names)),
        table=Table(
            ("feature", "range on the first direction", "variance it carries", "mean length"),
            [
                (name, compact(np.ptp(line)), percent(part), compact(size.mean()))
                for name, line, part, size in zip(names, coordinates, carried, length, strict=True)
            ],
        ),
    )


def _embedding(learned: Learned, seen: np.ndarray) -> Figure:
    assert learned.embedding is not None
    shown, omitted = first(seen.tolist())
    views = []
    for feature in shown:
        vectors = learned.embedding[feature]
        order = np.argsort(-principal_direction(vectors), kind="stable")
        centred = vectors - vectors.mean(axis=0)
        names, axis = [str(component) for component in order], _axis_of(learned.values[feature])
        data, layout = heat_map(names, LEVELS, centred.T[order], "minus mean", axis, scale="diverging")
        data[0]["hovertemplate"] = "component %{y}, %{x:.1%}<br>%{z:.4f}<extra></extra>"
        layout["yaxis"]["title"] = {"text": "component"}
        views.append(View(learned.names[feature], data, layout))
    return Figure(
        "embedding-map",
        "Embedding of one feature",
        views,
        alt="Heat map of the components of one feature's embedding along its distribution.",
        caption="The components of the embedding, each minus its mean, ordered by their share in the first principal "
        "direction. A step in colour is a value at which the encoding changes." + omitted,
        choice="Feature",
        height=map_height(learned.embedding.shape[-1], 16),
    )


def modulation_figure(modulation: Modulation, learned: Learned) -> Figure | None:
    """How each context changes a feature's encoding."""
    seen = np.flatnonzero(learned.seen)
    if not len(seen) or not modulation.labels:
        return None
    order = seen[np.argsort(-modulation.reach[seen], kind="stable")].tolist()
    shown, omitted = first(order)
    views = []
    for feature in shown:
        shift, axis = modulation.shift[feature], _axis_of(learned.values[feature])
        data, layout = heat_map(modulation.labels, LEVELS, shift, "shift", axis, scale="diverging")
        data[0]["hovertemplate"] = "%{y}<br>quantile %{x:.1%}<br>shift %{z:.4f}<extra></extra>"
        views.append(View(learned.names[feature], data, layout))
    return Figure(
        "modulation-map",
        "Modulation by context",
        views,
        alt="Heat map of how context shifts one feature's encoding, by context and quantile.",
        caption="How far each context moves the embedding along the feature’s first principal direction, relative to "
        "the mean of these contexts: one category is changed at a time, the others are at their mean. The model knows "
        f"categories by number only. Features that context affects most come first.{omitted}",
        choice="Feature",
        height=map_height(len(modulation.labels)),
        table=Table(
            ("feature", "effect of context"),
            [(learned.names[i], percent(modulation.reach[i])) for i in order],
            caption="Mean length of the change by context over the mean length of the embedding",
        ),
    )
