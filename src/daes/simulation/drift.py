"""Time in the simulated stream: when a row occurs, and how far the numerical laws have moved by then."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from daes.simulation.draws import Draws

DAY = 86_400_000_000_000
"""Nanoseconds."""
START = 1_704_067_200_000_000_000
"""Monday, 1 January 2024, 00:00 UTC, in epoch nanoseconds: the time of the first row."""
TRAFFIC_SWING = 0.6
TRAFFIC_PEAK = 0.8  # of the day: about seven in the evening


@dataclass(frozen=True)
class LawDrift:
    """How the stream moves. A feature's law is shifted on its latent scale by

        unit · ( daily · sin(2π(t − a)) + slow · sin(2π(t/slow_period − b)) + abrupt · J_k ),   k = ⌊t / abrupt_every⌋

    with t in days, phases a and b of the feature, and J_k drawn from {−1, 0, 0, +1} for each feature and period k ≥ 1,
    J_0 = 0. `unit` is the typical scale of the feature's law within a category: 1 is about one standard deviation.

    Args:
        daily: size of the daily cycle; if positive, traffic and the mix of connections follow the hour too.
        slow: size of the slow wave.
        slow_period: its length in days.
        abrupt: size of the jumps.
        abrupt_every: days between them.
        churn: how fast ids are replaced by new ones, 1 being the lifetimes of the catalogue, 2 twice as fast, 0 never.

    >>> LawDrift.parse("daily+slow") == LawDrift(abrupt=0, churn=0)
    True
    >>> LawDrift.parse("none") == LawDrift(daily=0, slow=0, abrupt=0, churn=0)
    True
    """

    daily: float = 0.4
    slow: float = 0.6
    slow_period: float = 28.0
    abrupt: float = 0.8
    abrupt_every: float = 2.0
    churn: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            positive = field.name in ("slow_period", "abrupt_every")
            if not (math.isfinite(value) and (value > 0 if positive else value >= 0)):
                expected = "positive" if positive else "non-negative"
                raise ValueError(f"{field.name} must be finite and {expected}, got {value}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The kinds named in `text`, joined by "+", at their default size, and no other; "none" for none at all."""
        kinds = ("daily", "slow", "abrupt", "churn")
        named = [] if text == "none" else text.split("+")
        for kind in named:
            if kind not in kinds:
                raise ValueError(f'drift must be "none" or of {", ".join(kinds)}, joined by "+", got {text!r}')
        return cls(**{kind: 0.0 for kind in kinds if kind not in named})


class Clock:
    """When each row occurs: `rows_per_day` rows per day, denser in the evening if traffic has a daily cycle.

    The number of rows up to the part τ of a day grows as τ + s/2π · (sin 2π(τ − peak) + sin 2π peak), whose inverse is
    tabulated, so that time is a function of the row's number.

    >>> Clock(1000, daily=False).days(np.array([0, 500, 2000])).round(3).tolist()
    [0.0, 0.5, 2.0]
    """

    def __init__(self, rows_per_day: int, daily: bool) -> None:
        self.rows_per_day = rows_per_day
        self._part = np.linspace(0, 1, 4097)
        swing = TRAFFIC_SWING if daily else 0.0
        wave = np.sin(2 * np.pi * (self._part - TRAFFIC_PEAK)) + math.sin(2 * math.pi * TRAFFIC_PEAK)
        self._rows = self._part + swing / (2 * np.pi) * wave

    def days(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        day, row = np.divmod(rows, self.rows_per_day)
        part = np.interp(row / self.rows_per_day, self._rows, self._part)
        return day + part

    def time(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Epoch nanoseconds, never decreasing."""
        milliseconds = (self.days(rows) * 86_400_000).astype(np.int64)  # the resolution of most logs
        return START + milliseconds * 1_000_000


def days_of_time(time: NDArray[np.int64]) -> NDArray[np.float64]:
    """Days since the start of epoch nanoseconds."""
    return (time - START) / DAY


class Shifts:
    """The shift of each numerical feature at any time, in units of its law (formula in `LawDrift`)."""

    def __init__(self, drift: LawDrift, num_features: int, draws: Draws) -> None:
        self.drift = drift
        self._num_features = num_features
        self._draws = draws
        phase = 2 * np.pi * draws.uniform("phase", 0, 2 * num_features).reshape(2, num_features)
        size = np.array([[drift.daily], [drift.slow]])
        self._sine, self._cosine = size * np.cos(phase), -size * np.sin(phase)

    def __call__(self, days: NDArray[np.float64], features: Sequence[int]) -> list[NDArray[np.float64]]:
        """One (len(days),) array for each of `features`, given by number."""
        shifts = [np.zeros(len(days)) for _ in features]
        for wave, (size, period) in enumerate(((self.drift.daily, 1.0), (self.drift.slow, self.drift.slow_period))):
            if size:
                angle = (2 * np.pi / period) * days
                sine, cosine = np.sin(angle), np.cos(angle)
                for feature, shift in zip(features, shifts, strict=True):
                    shift += self._sine[wave, feature] * sine
                    shift += self._cosine[wave, feature] * cosine
        if self.drift.abrupt and len(days):
            period_of_row = (days / self.drift.abrupt_every).astype(np.int64)
            first = int(period_of_row.min())
            jumps = np.stack([self._jumps(k) for k in range(first, int(period_of_row.max()) + 1)], axis=1)
            period_of_row -= first
            for feature, shift in zip(features, shifts, strict=True):
                shift += jumps[feature][period_of_row]
        return shifts

    def _jumps(self, period: int) -> NDArray[np.float64]:
        if period == 0:
            return np.zeros(self._num_features)
        uniform = self._draws.uniform("abrupt", period * self._num_features, self._num_features)
        return np.select([uniform < 0.25, uniform > 0.75], [-self.drift.abrupt, self.drift.abrupt])
