"""Does the distribution move? PSI and KS of consecutive segments against the first, with what chance alone gives."""

from typing import TYPE_CHECKING, Any

import numpy as np

from daes.distribution import drift_profile
from daes.extras import require
from daes.paper import figures
from daes.paper.data import DataSet, Floats, columns, days
from daes.paper.experiment import Experiment, Findings, Means, Settings
from daes.paper.published import PROFILED
from daes.paper.result import Result
from daes.paper.tables import fixed, percent, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEGMENTS = (1000, 100)
"""The paper's number, and a coarser one whose segments are ten times as long, hence less noisy."""
_SHOWN = 3
_LEAST_ROWS = 20
_COLOURS = (figures.BLUE, figures.VERMILION, figures.GREEN)


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    schema = data.open().schema
    assert schema is not None
    read = columns(data, schema.numerical, settings.rows)
    rows = len(next(iter(read.values())))
    span = days(data, rows)
    found: Findings = {"rows": rows, "profiles": []}
    shown = [name for name in PROFILED.get(data.name, ()) if name in read]
    for segments in SEGMENTS:
        if rows < segments * _LEAST_ROWS:
            continue
        means.note(f"{data.title}: {segments} segments")
        per_day = None if not span else segments / span
        summaries, series = {}, {}
        for name, values in read.items():
            if not np.isfinite(values).any():
                continue
            profile = drift_profile(values, segments)
            summaries[name] = _summary(profile, per_day)
            series[name] = {"psi": np.round(profile.psi, 4), "ks": np.round(profile.ks, 4)}
        if not shown:
            shown = _most_drifting(summaries)
        found["profiles"].append(
            {
                "segments": segments,
                "segments_a_day": per_day,
                "features": summaries,
                "series": {name: series[name] for name in shown if name in series},
            }
        )
    if not found["profiles"]:
        raise ValueError(f"{data.spec} must have {SEGMENTS[-1] * _LEAST_ROWS} rows or more, however: {rows}")
    return found


def _summary(profile: Any, per_day: float | None) -> Findings:
    """Medians over segments, against what a column without drift shows, and how strongly yesterday repeats."""
    excess = profile.ks[1:] - profile.ks_by_chance[1:]
    summary = {
        "psi": float(np.nanmedian(profile.psi[1:])),
        "psi_by_chance": float(np.nanmedian(profile.psi_by_chance[1:])),
        "psi_largest": float(np.nanmax(profile.psi[1:])),
        "ks": float(np.nanmedian(profile.ks[1:])),
        "ks_by_chance": float(np.nanmedian(profile.ks_by_chance[1:])),
        "bins": profile.bins,
        "above_chance": float(np.nanmean(profile.psi[1:] > 2 * profile.psi_by_chance[1:])),
        "missing": float(profile.missing.mean()),
    }
    if per_day is not None and per_day >= 4 and profile.segments >= 2 * per_day:
        summary["daily"], summary["daily_by_chance"] = daily_repetition(excess, per_day)
    return summary


def daily_repetition(series: Floats, per_day: float) -> tuple[float, float]:
    """Autocorrelation of a series at the lag of a day, and the value that chance exceeds once in twenty times.

    >>> wave = np.sin(np.arange(1000) * 2 * np.pi / 100)
    >>> round(daily_repetition(wave, 100.0)[0], 2)
    1.0
    """
    lag = round(per_day)
    one, other = series[:-lag], series[lag:]
    both = np.isfinite(one) & np.isfinite(other)
    if both.sum() < 3 or one[both].std() == 0 or other[both].std() == 0:
        return float("nan"), float("nan")
    return float(np.corrcoef(one[both], other[both])[0, 1]), float(1.645 / np.sqrt(both.sum()))


def _most_drifting(summaries: dict[str, Findings]) -> list[str]:
    ranked = sorted(summaries, key=lambda name: summaries[name]["psi_by_chance"] - summaries[name]["psi"])
    return ranked[:_SHOWN]


def markdown(result: Result) -> str:
    parts = []
    for profile in result.results["profiles"]:
        rows = [
            [
                name,
                fixed(one["psi"], 3),
                fixed(one["psi_by_chance"], 3),
                percent(one["above_chance"], 0),
                fixed(one["psi_largest"], 3),
                fixed(one["ks"], 3),
                fixed(one["ks_by_chance"], 3),
                f"{one['daily']:.2f} ({one['daily_by_chance']:.2f})" if one.get("daily") is not None else "–",
            ]
            for name, one in profile["features"].items()
        ]
        headers = ["feature", "PSI, median", "by chance", "segments above twice chance", "PSI, largest"]
        headers += ["KS, median", "by chance", "day-to-day correlation (5 % by chance)"]
        length = result.results["rows"] // profile["segments"]
        parts += [f"**{profile['segments']} segments** of {length:,} rows each:", "", table(headers, rows), ""]
    return "\n".join(parts).rstrip()


def verdict(result: Result) -> str:
    profile = result.results["profiles"][-1]
    features = profile["features"]
    moving = [name for name, one in features.items() if one["psi"] > 2 * one["psi_by_chance"]]
    dated = {name: one for name, one in features.items() if one.get("daily") is not None}
    daily = [name for name, one in dated.items() if one["daily"] > one["daily_by_chance"]]
    sentence = (
        f"Over {profile['segments']} segments the median PSI of {len(moving)} of {len(features)} features is more than "
        f"twice what chance gives{_named(moving, features)}."
    )
    if not dated:
        return sentence
    return f"{sentence} {len(daily)} of {len(dated)} repeat from day to day{_named(daily, dated)}."


def _named(names: list[str], among: Findings) -> str:
    """The names in brackets, unless they are none or all."""
    return f" ({', '.join(names)})" if 0 < len(names) < len(among) else ""


def draw(result: Result) -> "Figure":
    profiles = result.results["profiles"]
    figure, axes = figures.panels(2, len(profiles), 9.6, 4.6, sharex="col", squeeze=False)
    for number, profile in enumerate(profiles):
        for panel, (measure, title) in zip(axes[:, number], (("psi", "PSI"), ("ks", "KS")), strict=True):
            for (name, series), colour in zip(profile["series"].items(), _COLOURS, strict=False):
                values = np.array(series[measure][1:], dtype=np.float64)
                panel.plot(
                    np.arange(1, values.size + 1), values, color=colour, alpha=0.8, linewidth=_width(values.size)
                )
                chance = profile["features"][name][f"{measure}_by_chance"]
                panel.axhline(chance, color=colour, linestyle=(0, (1, 1.5)), linewidth=1.3)
            panel.set_ylabel(f"{title} against the first" if not number else "")
            panel.set_ylim(0, _top(profile, measure))
        for day in _days(profile):
            for panel in axes[:, number]:
                panel.axvline(day, color="#bbbbbb", linewidth=0.7, zorder=0)
        axes[0][number].set_title(f"{profile['segments']} segments")
        axes[1][number].set_xlabel("segment" + (" (grey lines: days)" if len(_days(profile)) else ""))
    colours = zip(profiles[0]["series"], _COLOURS, strict=False)
    handles = [require("matplotlib.lines").Line2D([], [], color=c, linewidth=2.5, label=name) for name, c in colours]
    figure.legend(handles=handles, loc="upper right", ncols=len(handles))
    figures.headline(
        figure,
        "How far each segment of the stream is from the first",
        f"{result.where} · dotted: what a feature without drift shows on average",
    )
    return figure


def _width(points: int) -> float:
    return 0.5 if points > 200 else 1.5


def _top(profile: Findings, measure: str) -> float:
    """Up to nearly the largest value: one odd segment shall not flatten all others."""
    values = [value for one in profile["series"].values() for value in one[measure][1:] if value is not None]
    return 1.15 * float(np.quantile(values, 0.998))


def _days(profile: Findings) -> Floats:
    """Where days begin, if these can be told apart."""
    per_day = profile["segments_a_day"]
    if per_day is None or profile["segments"] > 40 * per_day:
        return np.empty(0)
    starts: Floats = np.arange(1, profile["segments"] / per_day) * per_day
    return starts


EXPERIMENT = Experiment(
    name="stationarity",
    title="Do the distributions stand still?",
    what="PSI and KS of 1000 consecutive segments against the first, with what chance alone gives",
    claim="""
    Appendix A: over 1,000 segments of Criteo and AutoML the PSI and KS of numerical features against the first
    segment fluctuate and show periodic patterns, so the streams are not i.i.d.
    """,
    differs="""
    Chance is drawn beside it: a segment of n values has PSI (bins − 1)·2/n without any drift. On a small sample
    that hides most of what there is, so a hundred longer segments stand beside the thousand. Periodicity is
    measured as the correlation of the KS series with itself one day later.
    """,
    run=run,
    markdown=markdown,
    verdict=verdict,
    draw=draw,
    data=("adstream", "flights"),
)
