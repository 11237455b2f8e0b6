"""The columns of a run in the order of their importance, with what is known of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daes.report.learned import Learned
from daes.report.run_record import Floats, RunRecord, highest, number

MOST_LISTED = 2_000
"""The most columns that are listed; more would make the page large."""


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """One column; what is not known is None or NaN.

    Args:
        name: the column.
        kind: "numerical" or "categorical".
        rise: by how much LogLoss rises without it, and `error`, the standard error of that.
        evidence: root mean square of the log odds that past clicks give its values.
        missing: the share of missing values.
        drift: the highest PSI along the stream (numerical).
        distinct: distinct values (categorical).
        fresh: the share of rows with a value never seen before, in the second half of the stream (categorical).
        response: the predicted probability along its distribution (numerical).
    """

    name: str
    kind: str
    rise: float = float("nan")
    error: float = float("nan")
    evidence: float | None = None
    missing: float = float("nan")
    drift: float = float("nan")
    distinct: float = float("nan")
    fresh: float = float("nan")
    response: Floats | None = field(default=None)

    @property
    def matters(self) -> bool:
        """Whether predictions are worse without it, beyond what chance explains."""
        return self.rise > 2 * self.error

    @property
    def path(self) -> str:
        """The response as the path of a picture of 100 × 24; empty where it is not known.

        >>> ColumnSummary("price", "numerical", response=np.array([0.1, 0.3, 0.2])).path
        'M0 23L50 1L100 12'
        """
        if self.response is None:
            return ""
        low, high = float(self.response.min()), float(self.response.max())
        scaled = (self.response - low) / (high - low) if high > low else np.full(len(self.response), 0.5)
        places = np.linspace(0, 100, len(scaled))
        return "M" + "L".join(f"{x:.4g} {23 - 22 * y:.3g}" for x, y in zip(places, scaled, strict=True))


def column_summaries(run: RunRecord, learned: Learned | None) -> list[ColumnSummary]:
    """Every column, the most important first; those of unknown importance last, by the range of their response."""
    importance = {column["name"]: column for column in run.importance.get("columns", [])}
    responses = {} if learned is None else _responses(learned)
    drift = {} if run.drift is None else dict(zip(run.drift.names, highest(run.drift.psi), strict=True))
    fresh = fresh_shares(run)
    found = []
    for kind in ("numerical", "categorical"):
        for name in run.schema.get(kind, []):
            known = importance.get(name, {})
            found.append(
                ColumnSummary(
                    name,
                    kind,
                    rise=number(known.get("logloss")),
                    error=number(known.get("error")),
                    evidence=known.get("evidence"),
                    missing=_mean(run.missing.get(name)),
                    drift=float(drift.get(name, np.nan)),
                    distinct=float(run.distinct[name][-1]) if name in run.distinct else float("nan"),
                    fresh=fresh.get(name, float("nan")),
                    response=responses.get(name),
                )
            )
    return sorted(found, key=_place)


def fresh_shares(run: RunRecord) -> dict[str, float]:
    """The share of rows of the second half of the stream whose category had never been seen before, by column.

    Every value is new once, so that this is the rise of the number of distinct values over the number of rows.
    """
    rows = run.segment_rows
    if len(rows) < 2:
        return {}
    half = int(np.searchsorted(rows, rows[-1] / 2))
    if half >= len(rows) - 1:
        half = len(rows) - 2
    passed = float(rows[-1] - rows[half])
    return {
        name: float(np.clip((counts[-1] - counts[half]) / passed, 0.0, 1.0))
        for name, counts in run.distinct.items()
        if len(counts) == len(rows)
    }


def _place(column: ColumnSummary) -> tuple[bool, float, float]:
    reach = 0.0 if column.response is None else float(np.ptp(column.response))
    return np.isnan(column.rise), -np.nan_to_num(column.rise), -reach


def _responses(learned: Learned) -> Mapping[str, Floats]:
    known = learned.seen & np.isfinite(learned.response).all(axis=1)
    return {name: learned.response[place] for place, name in enumerate(learned.names) if known[place]}


def _mean(values: Any) -> float:
    found = np.asarray([] if values is None else values, dtype=np.float64)
    found = found[np.isfinite(found)]
    return float(found.mean()) if found.size else float("nan")
