"""Time in the simulated stream: when a row occurs, and how far the numerical laws have moved by then."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

import numpy as np

from daes.simulation.draws import Array, Draws, IntArray

DAY = 86_400_000_000_000
"""Nanoseconds."""
START = 1_704_067_200_000_000_000
"""Monday, 1 January 2024, 00:00 UTC, in epoch nanoseconds: the time of the first row."""
TRAFFIC_SWING = 0.6
TRAFFIC_PEAK = 0.8  # of the day: about seven in the evening


@dataclass(frozen=True)
class LawDrift:
    """How the stream drifts. A feature's law is shifted on its latent scale by

        unit · ( daily · sin(2π(t − a)) + slow · sin(2π(t/slow_period − b)) + abrupt · J_k ),   k = ⌊t / abrupt_every⌋

    with t in days, phases a and b of the feature, J_0 = 0, and J_k drawn from {−1, 0, 0, +1} for each feature and
    period k ≥ 1. `unit` is the typical scale of the feature's law within a category, about one standard deviation.

    Args:
        daily: size of the daily cycle; if positive, traffic and the mix of connections also follow the hour.
        slow: size of the slow wave.
        slow_period: its length in days.
        abrupt: size of the jumps.
        abrupt_every: days between them.
        churn: how fast new ids replace old ones: 1 for the lifetimes of the catalogue, 2 for half of them, 0 for never.
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


class Clock:
    """When each row occurs: `rows_per_day` rows per day, denser in the evening if traffic has a daily cycle.

    The number of rows up to the fraction τ of a day grows as τ + s/2π · (sin 2π(τ − peak) + sin 2π peak), whose inverse
    is tabulated: time is a function of the row number.

    >>> days_of_time(Clock(1000, daily=False).time(np.array([0, 500, 2000]))).tolist()
    [0.0, 0.5, 2.0]
    """

    def __init__(self, rows_per_day: int, daily: bool) -> None:
        self.rows_per_day = rows_per_day
        self._part = np.linspace(0, 1, 4097)
        swing = TRAFFIC_SWING if daily else 0.0
        wave = np.sin(2 * np.pi * (self._part - TRAFFIC_PEAK)) + math.sin(2 * math.pi * TRAFFIC_PEAK)
        self._rows = self._part + swing / (2 * np.pi) * wave

    def time(self, rows: IntArray) -> IntArray:
        """Epoch nanoseconds, never decreasing."""
        day, row = np.divmod(rows, self.rows_per_day)
        days = day + np.interp(row / self.rows_per_day, self._rows, self._part)
        milliseconds = (days * 86_400_000).astype(np.int64)  # the resolution of most logs
        return START + milliseconds * 1_000_000


def days_of_time(time: IntArray) -> Array:
    """Epoch nanoseconds as days since the start."""
    return (time - START) / DAY


class Shifts:
    """The shift of each numerical feature at any time, in units of its law (formula in `LawDrift`)."""

    def __init__(self, drift: LawDrift, features: Sequence[str], draws: Draws) -> None:
        self.drift = drift
        self._numbers = {name: number for number, name in enumerate(features)}
        self._draws = draws
        phase = 2 * np.pi * draws.uniform("phase", 0, 2 * len(features)).reshape(2, len(features))
        size = np.array([[drift.daily], [drift.slow]])
        self._sine, self._cosine = size * np.cos(phase), -size * np.sin(phase)

    def __call__(self, time: IntArray, features: Collection[str] | None = None) -> dict[str, Array]:
        """The shifts of these features (None: all) at the given times, in epoch nanoseconds; (len(time),) each."""
        days = days_of_time(time)
        shifts = {name: np.zeros(len(days)) for name in self._numbers if features is None or name in features}
        for wave, (size, period) in enumerate(((self.drift.daily, 1.0), (self.drift.slow, self.drift.slow_period))):
            if size:
                angle = (2 * np.pi / period) * days
                sine, cosine = np.sin(angle), np.cos(angle)
                for name, shift in shifts.items():
                    shift += self._sine[wave, self._numbers[name]] * sine
                    shift += self._cosine[wave, self._numbers[name]] * cosine
        if self.drift.abrupt and len(days):
            period_of_row = (days / self.drift.abrupt_every).astype(np.int64)
            first = int(period_of_row.min())
            jumps = np.stack([self._jumps(k) for k in range(first, int(period_of_row.max()) + 1)], axis=1)
            period_of_row -= first
            for name, shift in shifts.items():
                shift += jumps[self._numbers[name]][period_of_row]
        return shifts

    def _jumps(self, period: int) -> Array:
        count = len(self._numbers)
        if period == 0:
            return np.zeros(count)
        uniform = self._draws.uniform("abrupt", period * count, count)
        return np.select([uniform < 0.25, uniform > 0.75], [-self.drift.abrupt, self.drift.abrupt])
