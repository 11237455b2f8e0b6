"""Evidence of past clicks for each numerical feature: log odds over its quantiles, with their standard errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from daes.evidence.odds import NO_CUT, log_odds
from daes.formatting import compact, fixed, measured
from daes.model import CTRModel
from daes.report.figures import Figure, Floats, Line, View, first, lines
from daes.table import Table

_ERRORS = 1.96
"""Standard errors on either side of a 95 % interval."""
_FEWEST = 2


@dataclass(frozen=True, eq=False)
class EvidenceCurve:
    """The log odds of one feature, bin by bin.

    **Shape.** K bins with rows, in the order of their values: `level` (K,) the middle of the bin as a quantile, from 0
    to 1; `upper` (K,) its largest value, infinite for the last bin; `odds`, `error` (K,): log odds against the click
    rate, and their standard error; `views` (K,) its rows. `missing`: the log odds of rows without a value, NaN if there
    are none.
    """

    name: str
    level: Floats
    upper: Floats
    odds: Floats
    error: Floats
    views: Floats
    missing: float

    @property
    def strength(self) -> float:
        """Root mean square of the log odds over the rows with a value."""
        return float(np.sqrt(np.average(self.odds**2, weights=self.views)))


def evidence_curves(model: CTRModel) -> list[EvidenceCurve]:
    """The curves of the numerical features that the model counts clicks for, the strongest first."""
    evidence = model.evidence
    if not evidence.options.numbers or not evidence.number_counts.numel():
        return []
    counts = evidence.number_counts.detach().double().cpu()
    rows, clicks = evidence.total.detach().double().cpu().tolist()
    prior = torch.tensor((clicks + 2) / (rows + 10), dtype=torch.float64)
    strength = evidence.options.strength
    odds = log_odds(counts[..., 0], counts[..., 1], prior, strength).numpy()
    # The delta method for a rate with c + a·p̄ clicks and n − c + a·(1 − p̄) others.
    clicked = counts[..., 1] + strength * prior
    passed = counts[..., 0] - counts[..., 1] + strength * (1 - prior)
    error = torch.sqrt(1 / clicked + 1 / passed).numpy()
    views, edges = counts[..., 0].numpy(), evidence.edges.detach().double().cpu().numpy()
    found = []
    for feature, name in enumerate(model.schema.numerical):
        filled = views[feature, :-1] > 0
        if np.count_nonzero(filled) < _FEWEST:
            continue
        seen = views[feature, :-1][filled]
        upper = np.append(np.where(edges[feature] < NO_CUT, edges[feature], np.inf), np.inf)[filled]
        missing = float(odds[feature, -1]) if views[feature, -1] else np.nan
        level = (np.cumsum(seen) - seen / 2) / seen.sum()
        bins = (level, upper, odds[feature, :-1][filled], error[feature, :-1][filled], seen)
        found.append(EvidenceCurve(name, *bins, missing))
    return sorted(found, key=lambda curve: -curve.strength)


def combination_table(model: CTRModel) -> Table | None:
    """The pairs and triples of columns that the model combines, those with the largest effect first."""
    evidence, found = model.evidence, model.evidence.combinations
    if found is None:
        return None
    rate = evidence.prior()
    effects = found.effects(rate * (1 - rate)).tolist()
    options, schema = evidence.options, model.schema
    names = [*(schema.numerical if options.numbers else ()), *(schema.categorical if options.categories else ())]
    rows = [
        (" × ".join(names[one] for one in fields if one >= 0), fixed(effect, 3))
        for effect, fields in sorted(zip(effects, found.fields.tolist(), strict=True), reverse=True)
        if fields[0] >= 0 and effect > 0
    ]
    return Table(("columns", "moves the logit by"), rows) if rows else None


def evidence_figure(curves: Sequence[EvidenceCurve]) -> Figure | None:
    """Log odds over the quantiles of each feature, one view per feature; None if nothing was counted."""
    if not curves:
        return None
    shown, omitted = first(range(len(curves)))
    return Figure(
        "evidence-odds",
        "Log odds of a click over a feature’s quantiles",
        [_view(curves[feature]) for feature in shown],
        alt="Log odds of a click against the click rate, bin by bin of one feature; the table has the range of each.",
        caption="Above 0 a click is more likely than on average; one unit is a factor of e in the odds. The band is a "
        "95 % interval; it is wide where values are rare. A dotted line is for rows without a value. Clicks are "
        "counted feature by feature, and nothing else is held fixed: a feature may also stand for another one that it "
        "correlates with. The strongest features come first." + omitted,
        choice="Feature",
        table=Table(
            ("feature", "strength", "lowest", "at value", "highest", "at value", "if missing"),
            [_row(curve) for curve in curves],
        ),
        height=320,
    )


def _view(curve: EvidenceCurve) -> View:
    band = (curve.odds - _ERRORS * curve.error, curve.odds + _ERRORS * curve.error)
    texts = [
        f"value {_upper(curve, i)}, {compact(views)} rows, ± {fixed(_ERRORS * error, 2)}"
        for i, (views, error) in enumerate(zip(curve.views, curve.error, strict=True))
    ]
    hover, mode = "%{y:+.2f}<br>%{customdata}<extra></extra>", "lines+markers"
    drawn = [Line("odds", "log odds", curve.level, curve.odds, "c1", 2.2, "solid", band, hover, mode, texts)]
    if np.isfinite(curve.missing):
        flat = np.full(curve.level.size, curve.missing)
        drawn.append(Line("missing", "if missing", curve.level, flat, "c7", width=1.2, dash="dot"))
    ticks = np.linspace(0, 1, 5)
    nearest = [int(np.abs(curve.level - tick).argmin()) for tick in ticks]
    axis = {
        "title": {"text": "quantile, value"},
        "tickangle": 0,
        "range": [0, 1],
        "tickvals": ticks.tolist(),
        "ticktext": [f"{100 * tick:.0f}\u00a0%<br>{_upper(curve, i)}" for tick, i in zip(ticks, nearest, strict=True)],
    }
    least, most = (float(f([*band[0], *band[1], 0.0, np.nan_to_num(curve.missing)])) for f in (min, max))
    frame = {"range": [least - 0.04 * (most - least), most + 0.04 * (most - least)]}
    data, layout = lines(drawn, y_title="log odds against the click rate", height=320, x_axis=axis, y_axis=frame)
    data[2]["marker"]["size"] = 4  # after both sides of the band
    layout["yaxis"]["zeroline"] = True
    layout["hovermode"] = "closest"
    return View(curve.name, data, layout)


def _upper(curve: EvidenceCurve, bin_: int) -> str:
    """The upper end of a bin; for the last one, which has none, its lower end."""
    if np.isfinite(curve.upper[bin_]):
        return f"≤ {measured(curve.upper[bin_])}"
    return f"> {measured(curve.upper[bin_ - 1])}"


def _row(curve: EvidenceCurve) -> tuple[str, ...]:
    ends = [int(curve.odds.argmin()), int(curve.odds.argmax())]
    found = [text for i in ends for text in (fixed(curve.odds[i], 2, sign=True), _upper(curve, i))]
    return (curve.name, fixed(curve.strength, 2), *found, fixed(curve.missing, 2, sign=True))
