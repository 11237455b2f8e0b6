"""Does the distribution drift? PSI and KS of consecutive segments against the first, compared with chance."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from daes.distribution import DriftProfile, drift_profile
from daes.formatting import fixed, percent
from daes.paper import figures
from daes.paper.data import Floats, columns, days, name_in
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings, Judgement, most
from daes.paper.published import PROFILED
from daes.paper.result import ExperimentResult
from daes.paper.stationarity_figure import MEASURES, SATURATED, draw
from daes.stream.dataset import Dataset
from daes.table import markdown_table

SEGMENTS = (1000, 100)
"""The paper's number of segments, and one with segments ten times as long, hence less noisy."""
SHUFFLES = 19
"""A feature without drift is above all of 19 shuffles of itself once in twenty times."""
_SHOWN = 3
_LEAST_ROWS = 20
_JUDGED_ROWS = 1000  # with fewer rows per segment, chance hides all but the largest drift
_ROTATIONS = 999
_LEAST_A_DAY, _LEAST_DAYS = 6, 4


class Stationarity(Experiment):
    name = "stationarity"
    title = "Are the distributions stationary?"
    what = "PSI and KS of 1000 consecutive segments against the first, compared with chance"
    claim = """
    Appendix A: over 1,000 segments of Criteo and AutoML the PSI and KS of numerical features against the first
    segment fluctuate and show periodic patterns, so the streams are not i.i.d.
    """
    differs = """
    Short segments differ even without drift, so the effect of chance is measured too, on the same values in random
    order. On a small sample chance hides most drift, so a hundred longer segments are profiled as well. Periodicity is
    the correlation of the KS series with itself one day later, after subtracting the mean of the surrounding day. It is
    compared with series whose days are rotated at random: a random walk or a trend must not pass for a period.

    Both measures have a ceiling. Where a segment is outside the range of the first, KS is 1, and PSI is limited by the
    minimum mass of an empty bin (1e-4), however far the feature moves on.
    """
    judged_by = """
    (1) Most features drift: their median PSI is above that of all shuffles. (2) Most features repeat from day to day
    beyond the limit of chance; segments that are too long to show a day do not confirm it.
    """
    data = ("adstream", "flights")
    uses = ("rows",)

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        assert data is not None
        data = data.head(settings.rows)
        read = columns(data, data.schema.numerical)
        rows = data.count_rows()
        if rows < SEGMENTS[-1] * _LEAST_ROWS:
            raise ValueError(f"{data.what} must have {SEGMENTS[-1] * _LEAST_ROWS} rows or more, got {rows}")
        span = days(data)
        parts: list[Findings] = []
        for segments in SEGMENTS:
            if rows < segments * _LEAST_ROWS:
                continue
            per_day = None if not span else segments / span
            found: Findings = {"segments": segments, "segments_a_day": per_day, "features": {}, "series": {}}
            for place, (name, values) in enumerate(read.items()):
                if not np.isfinite(values).any():
                    continue
                execution.check_time(f"{len(parts)} of {len(SEGMENTS)} profiles are done")
                execution.note(f"{data.name}: {segments} segments, {name}")
                profile = drift_profile(values, segments)
                found["features"][name] = _summary(profile, _shuffled(values, segments, seed=place), per_day)
                found["series"][name] = {measure: np.round(getattr(profile, measure), 4) for measure in MEASURES}
            parts.append(found)
        shown = [name for name in PROFILED.get(name_in(data.name), ()) if name in read]
        shown = shown or _most_drifting(_judged(parts, rows)["features"])
        for found in parts:
            found["series"] = {name: found["series"][name] for name in shown if name in found["series"]}
        return {"rows": rows, "shuffles": SHUFFLES, "profiles": parts}

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        parts = []
        for profile in found["profiles"]:
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
            headers = ["feature", "PSI, median", "by chance", "segments above 95 % of chance", "PSI, largest"]
            headers += ["KS, median", "by chance", "day-to-day correlation (limit)"]
            length = found["rows"] // profile["segments"]
            heading = f"**{profile['segments']} segments** of {length:,} rows each:"
            parts += [heading, "", markdown_table(headers, rows), ""]
        parts.append(
            f"By chance: the mean over {found['shuffles']} shuffles of the feature's values. Limit: what chance "
            "exceeds once in a hundred times (days rotated at random)."
        )
        left_out = [number for number in SEGMENTS if number not in {one["segments"] for one in found["profiles"]}]
        parts += [
            f"{number} segments are left out: with {found['rows']:,} rows each would have {found['rows'] // number}, "
            f"fewer than the minimum of {_LEAST_ROWS}."
            for number in left_out
        ]
        return "\n".join(parts)

    def verdict(self, result: ExperimentResult) -> str:
        rows, shuffles = result.results["rows"], result.results["shuffles"]
        segments, features, moving, dated, daily = _drifting(result)
        strongly = [name for name in moving if features[name]["psi"] > 2 * features[name]["psi_by_chance"]]
        sentences = [
            f"Over {segments} segments the median PSI of {len(moving)} of {len(features)} features is above that of "
            f"all {shuffles} shuffles{_named(moving, features)}, where chance alone gives "
            f"{len(features) / (shuffles + 1):.1f}; for {len(strongly)} it is more than twice what chance "
            f"gives{_named(strongly, moving)}."
        ]
        if dated:
            sentences.append(f"{len(daily)} of {len(dated)} repeat from day to day{_named(daily, dated)}.")
        if segments != SEGMENTS[0]:
            sentences.append(
                f"The paper's {SEGMENTS[0]} segments have {rows // SEGMENTS[0]:,} rows each here; below "
                f"{_JUDGED_ROWS:,} rows chance hides most drift, so they are not used for the judgement."
            )
        return "\n".join(f"- {sentence}" for sentence in sentences)

    def judge(self, result: ExperimentResult) -> Judgement:
        segments, features, moving, dated, daily = _drifting(result)
        known = f"{len(daily)} of {len(dated)} repeat from day to day"
        repeat = known if dated else "segments are too long to show days"
        return (most(len(moving), len(features)), most(len(daily), len(dated))), (
            f"{len(moving)} of {len(features)} features drift, over {segments} segments; {repeat}."
        )

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        return draw(result)


def _shuffled(values: Floats, segments: int, seed: int) -> list[DriftProfile]:
    """Profiles of the same values in random order, missing values left in place: what chance alone gives."""
    rng = np.random.default_rng(seed)
    finite = np.isfinite(values)
    profiles = []
    for _ in range(SHUFFLES):
        column = values.copy()
        column[finite] = rng.permutation(values[finite])
        profiles.append(drift_profile(column, segments))
    return profiles


def _summary(profile: DriftProfile, shuffled: list[DriftProfile], per_day: float | None) -> Findings:
    """Medians over segments, those of shuffled columns, and how strongly a day repeats the day before."""
    summary: Findings = {"bins": profile.bins, "missing": float(profile.missing.mean())}
    for measure in MEASURES:
        series = getattr(profile, measure)[1:]
        chance = np.array([getattr(one, measure)[1:] for one in shuffled])
        medians = _quantile(chance, 0.5)
        summary |= {
            measure: float(_quantile(series, 0.5)),
            f"{measure}_largest": float(_quantile(series, 1.0)),
            # All segments are compared with the same first one, so the median varies between shuffles.
            f"{measure}_by_chance": float(np.mean(medians)),
            f"{measure}_by_chance_largest": float(np.max(medians)),
        }
    known = np.isfinite(profile.psi[1:])
    usual = _quantile(np.ravel([one.psi[1:] for one in shuffled]), 0.95)
    summary["above_chance"] = float(np.mean(profile.psi[1:][known] > usual)) if known.any() else float("nan")
    if per_day is not None and per_day >= _LEAST_A_DAY and profile.segments >= _LEAST_DAYS * per_day:
        summary["daily"], summary["daily_by_chance"] = daily_repetition(profile.ks[1:], per_day)
    return summary


def _quantile(values: Floats, level: float) -> Any:
    """Over the last axis, ignoring NaN; NaN if there is nothing else."""
    if not np.isfinite(values).any():
        return np.full(values.shape[:-1], np.nan)
    return np.nanquantile(values, level, axis=-1)


def daily_repetition(series: Floats, per_day: float) -> tuple[float, float]:
    """Correlation of a detrended series with itself a day later, and the limit that chance rarely exceeds.

    A series that changes slowly correlates with itself a day later without having any period. Therefore the mean of the
    day around each entry is subtracted first (half a day at either end is lost). The limit is the 99 % quantile over
    copies in which each day is rotated by a random part of a day: that preserves the correlation of neighbouring hours
    and destroys the time of day.

    White noise, autoregressive series, random walks and trends of a week exceed it in 1 to 5 % of cases. NaN, NaN if
    too few values are known.

    >>> wave = np.sin(np.arange(1000) * 2 * np.pi / 100)
    >>> found, by_chance = daily_repetition(wave, 100.0)
    >>> round(found, 2), bool(by_chance < 0.9)
    (1.0, True)
    >>> found, by_chance = daily_repetition(np.linspace(0, 1, 1000) ** 2, 100.0)  # a trend
    >>> bool(found > by_chance)
    False
    """
    lag = round(per_day)
    rest = _without_trend(series, lag)
    if rest.size < 2 * lag:
        return float("nan"), float("nan")
    places = np.arange(rest.size)
    day = places // lag
    length = np.minimum(lag, rest.size - day * lag)  # the last day may be incomplete
    turns = np.random.default_rng(0).integers(0, lag, size=(_ROTATIONS, int(day[-1]) + 1))
    rotated = rest[day * lag + (places - day * lag + turns[:, day]) % length]
    found, by_chance = _correlation(rest, lag), _correlation(rotated, lag)
    if not np.isfinite(found):
        return float("nan"), float("nan")
    return float(found), float(np.nanquantile(by_chance, 0.99))


def _without_trend(series: Floats, lag: int) -> Floats:
    """Each entry minus the mean of the day around it, where that day is complete."""
    half = lag // 2
    window = np.ones(2 * half + 1)
    if lag % 2 == 0:
        window[[0, -1]] = 0.5
    if series.size < window.size:
        return np.empty(0)
    known = np.isfinite(series)
    around = np.lib.stride_tricks.sliding_window_view
    weights = around(known, window.size) @ window
    sums = around(np.where(known, series, 0.0), window.size) @ window
    middle = series[half : series.size - half]
    # Rounding errors are set to zero: a constant must not seem to vary.
    rest = middle - sums / np.where(weights > 0, weights, np.nan)
    scale = float(np.abs(series[known]).max(initial=0.0))
    cleaned: Floats = np.where(np.abs(rest) <= 1e-9 * scale, 0.0, rest)
    return cleaned


def _correlation(series: Floats, lag: int) -> Any:
    """Over the last axis, of entries that are `lag` apart and both known; NaN if one side is constant."""
    sides = series[..., :-lag], series[..., lag:]
    both = np.isfinite(sides[0]) & np.isfinite(sides[1])
    number = np.maximum(both.sum(axis=-1, keepdims=True), 1)
    known = (np.where(both, side, 0.0) for side in sides)
    one, other = (np.where(both, side - side.sum(axis=-1, keepdims=True) / number, 0.0) for side in known)
    scale = np.sqrt(np.square(one).sum(axis=-1) * np.square(other).sum(axis=-1))
    return (one * other).sum(axis=-1) / np.where(scale > 0, scale, np.nan)


def _most_drifting(features: dict[str, Findings]) -> list[str]:
    """The features with the largest KS above chance; those far outside the first segment's range come last."""

    def order(name: str) -> tuple[bool, float]:
        one = features[name]
        return one["ks"] > SATURATED, one["ks_by_chance"] - one["ks"]

    return sorted(features, key=order)[:_SHOWN]


def _judged(profiles: list[Findings], rows: int) -> Findings:
    """The finest profile with segments long enough to tell drift from chance."""
    return next((one for one in profiles if rows // one["segments"] >= _JUDGED_ROWS), profiles[-1])


def _drifting(result: ExperimentResult) -> tuple[int, dict[str, Findings], list[str], list[str], list[str]]:
    """The number of segments, the features, and which of these drift, have a known day, and repeat daily."""
    found = result.results
    profile = _judged(found["profiles"], found["rows"])
    features = {name: one for name, one in profile["features"].items() if one["psi"] is not None}
    moving = [name for name, one in features.items() if one["psi"] > one["psi_by_chance_largest"]]
    dated = [name for name, one in features.items() if one.get("daily") is not None]
    daily = [name for name in dated if features[name]["daily"] > features[name]["daily_by_chance"]]
    return profile["segments"], features, moving, dated, daily


def _named(names: Sequence[str], among: Collection[str]) -> str:
    """The names in brackets, or the others if these are few; empty for none or all.

    >>> _named(["a"], "abcd"), _named(["a", "b", "c"], "abcd"), _named([], "abcd")
    (' (a)', ' (all but d)', '')
    """
    others = [name for name in among if name not in names]
    if not names or not others:
        return ""
    return f" ({', '.join(names)})" if len(names) < 3 * len(others) else f" (all but {', '.join(others)})"
