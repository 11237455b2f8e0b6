"""The columns of a run in the order of their importance, with a summary of each."""

from dataclasses import dataclass

import numpy as np

from daes.distribution.binned import MOST_BY_CHANCE
from daes.report.learned import Learned
from daes.report.run_record import DriftSeries, Floats, RunRecord, highest, means, number

MOST_LISTED = 2_000
"""Maximum number of listed columns; more would make the page large."""


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """One column; unknown values are None or NaN.

    Args:
        name: the column.
        kind: "numerical" or "categorical".
        rise, error: by how much LogLoss rises without it, and the standard error of that.
        evidence: root mean square of the log odds that past clicks give its values.
        missing: the share of missing values.
        drift: the highest PSI along the stream, of segments with enough values to tell drift from chance (numerical).
        distinct: number of distinct values (categorical).
        fresh: the share of rows with a value never seen before, in the second half of the stream (categorical).
        table_rows, filled, shared: number of rows of its table, the share of them that hold a value, and the share of
            values that share their row with others (categorical).
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
    table_rows: float = float("nan")
    filled: float = float("nan")
    shared: float = float("nan")
    response: Floats | None = None

    @property
    def matters(self) -> bool:
        """Whether predictions are worse without it, beyond what chance explains."""
        return self.rise > 2 * self.error

    @property
    def path(self) -> str:
        """The response as an SVG path of size 100 × 24; empty if it is not known.

        >>> ColumnSummary("price", "numerical", response=np.array([0.1, 0.3, 0.2])).path
        'M0 23L50 1L100 12'
        """
        if self.response is None:
            return ""
        low, high = float(self.response.min()), float(self.response.max())
        scaled = (self.response - low) / (high - low) if high > low else np.full(len(self.response), 0.5)
        along = np.linspace(0, 100, len(scaled))
        return "M" + "L".join(f"{x:.4g} {23 - 22 * y:.3g}" for x, y in zip(along, scaled, strict=True))


def column_summaries(run: RunRecord, learned: Learned | None) -> list[ColumnSummary]:
    """Every column, the most important first; those of unknown importance last, by the range of their response."""
    importance = {column["name"]: column for column in run.importance.get("columns", [])}
    responses = {} if learned is None else dict(zip(learned.names, learned.response, strict=True))
    responses = {name: response for name, response in responses.items() if np.isfinite(response).all()}
    drift = {} if run.drift is None else dict(zip(run.drift.names, highest(_telling(run.drift)), strict=True))
    fresh, loads = fresh_shares(run), table_loads(run)
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
                    missing=float(means(run.missing[name])) if name in run.missing else float("nan"),
                    drift=float(drift.get(name, np.nan)),
                    distinct=float(run.distinct[name][-1]) if name in run.distinct else float("nan"),
                    fresh=fresh.get(name, float("nan")),
                    response=responses.get(name),
                    **loads.get(name, {}),
                )
            )

    def order(column: ColumnSummary) -> tuple[bool, float, float]:
        reach = 0.0 if column.response is None else float(np.ptp(column.response))
        return np.isnan(column.rise), -np.nan_to_num(column.rise), -reach

    return sorted(found, key=order)


def _telling(drift: DriftSeries) -> Floats:
    """PSI, NaN for segments with few values of the feature: it is large there by chance alone."""
    return np.where(drift.psi_by_chance > MOST_BY_CHANCE, np.nan, drift.psi)


def fresh_shares(run: RunRecord) -> dict[str, float]:
    """The share of rows of the second half of the stream whose category had never been seen before, by column.

    Every value is new once, so this is the increase in the number of distinct values over the number of rows.
    """
    rows = run.segment_rows
    if len(rows) < 2:
        return {}
    half = min(int(np.searchsorted(rows, rows[-1] / 2)), len(rows) - 2)
    passed = float(rows[-1] - rows[half])
    return {
        name: float(np.clip((counts[-1] - counts[half]) / passed, 0.0, 1.0))
        for name, counts in run.distinct.items()
        if len(counts) == len(rows)
    }


def table_loads(run: RunRecord) -> dict[str, dict[str, float]]:
    """`table_rows`, `filled` and `shared` of every column with a table and a known number of distinct values.

    The shares are expected values. If n values are hashed to m rows, a row stays empty with probability (1 − 1/m)ⁿ, and
    a value is alone with probability (1 − 1/m)ⁿ⁻¹. A vocabulary gives each value its own row while there are free ones;
    the rest share one.
    """
    model = run.config.get("model", {})
    vocabulary = model.get("categorical_options", {}).get("mode") == "vocabulary"
    found = {}
    for name, size in model.get("sizes", {}).items():
        if name not in run.distinct or not len(run.distinct[name]):
            continue
        values = float(run.distinct[name][-1])
        if vocabulary:
            filled, shared = min(values / size, 1.0), max(values - size, 0.0) / max(values, 1.0)
        else:
            filled, shared = 1 - (1 - 1 / size) ** values, 1 - (1 - 1 / size) ** max(values - 1, 0.0)
        found[name] = {"table_rows": size, "filled": filled, "shared": shared}
    return found
