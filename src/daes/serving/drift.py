"""Whether the rows to score are those that the model learned from."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from daes.distribution.binned import DriftBins
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.vocabulary import FIRST, UNSEEN
from daes.formatting import listed
from daes.model import CTRModel
from daes.serving.versions import LoadedModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema

_log = logging.getLogger("daes.serving")

ALARM_PSI = 0.25
"""A PSI by so much above what chance gives is an alarm: the usual threshold for a population that has shifted."""
ALARM_SHARE = 0.1
"""So is a share of missing values or of unseen ids that is by so much higher or lower (unseen: higher)."""
_SIGMAS = 4.0
_LEAST_ROWS = 500
_SAMPLE = 10_000


@dataclass(frozen=True)
class LearnedRows:
    """What a model knows of the rows that it learned from.

    Args:
        schema: its columns.
        bins: of the numerical features, cut at the quantiles of its reservoirs; None if it keeps nothing of them.
        missing: the part of missing values of each column, numbers first, (q + p,); NaN where it is not known.
        unseen: the part of rows whose id is new, of each categorical column, (p,); NaN where it is not known.
        seen: which rows of the categorical table were learned from; None if that is not counted.
    """

    schema: Schema
    bins: DriftBins | None
    missing: NDArray[np.float64]
    unseen: NDArray[np.float64]
    seen: NDArray[np.bool_] | None
    model: CTRModel

    @classmethod
    def of(cls, loaded: LoadedModel) -> Self:
        """Read the statistics of a model that is not frozen yet."""
        model = loaded.model
        values = _sample_of(model) if loaded.sample is None else loaded.sample
        seen, absent, unseen = _categories(model)
        return cls(
            schema=model.schema,
            bins=None if values is None else DriftBins(values),
            missing=np.append(_missing_numbers(model), absent),
            unseen=unseen,
            seen=seen,
            model=model,
        )

    def compare(self, batch: Batch) -> dict[str, Any]:
        """The drift of some rows, as plain values by column."""
        rows, numbers = len(batch), self.schema.num_numerical
        finite = np.isfinite(batch.numerical)
        missing = np.append(1 - finite.mean(0), (batch.categorical == 0).mean(0))
        found: dict[str, Any] = {"numerical": {}, "categorical": {}}
        for place, name in enumerate(self.schema.numerical):
            absent = {"missing": float(missing[place]), "missing_learned": _known(self.missing[place])}
            found["numerical"][name] = {"psi": None, "ks": None, "psi_by_chance": None, **absent}
        if self.bins is not None:
            counts = self.bins.count(batch.numerical)
            psi, ks, filled = self.bins.psi(counts), self.bins.ks(counts), self.bins.filled
            learned, now = self.bins.expected.sum(1), counts.sum(1)
            for place, column in enumerate(found["numerical"].values()):
                if learned[place] and now[place]:
                    chance = (int(filled[place]) - 1) * (1 / int(learned[place]) + 1 / int(now[place]))
                    column |= {"psi": float(psi[place]), "ks": float(ks[place]), "psi_by_chance": chance}
        unseen = self._unseen(batch)
        for place, name in enumerate(self.schema.categorical):
            found["categorical"][name] = {
                "unseen": _known(unseen[place]),
                "unseen_learned": _known(self.unseen[place]),
                "missing": float(missing[numbers + place]),
                "missing_learned": _known(self.missing[numbers + place]),
            }
        return {"rows": rows, "alarms": _alarms(found, rows) if rows >= _LEAST_ROWS else [], **found}

    @torch.no_grad()
    def _unseen(self, batch: Batch) -> NDArray[np.float64]:
        """The share of ids per column that the model has no row for, or never counted."""
        table = self.model.categorical
        if table is None or (self.seen is None and table.vocabulary is None):
            return np.full(self.schema.num_categorical, np.nan)
        rows = table.rows(torch.from_numpy(batch.categorical)).numpy()
        if table.vocabulary is not None:
            new = rows - np.array(table.offsets) == UNSEEN
        else:
            assert self.seen is not None
            new = ~self.seen[rows]
        share: NDArray[np.float64] = (new & (batch.categorical != 0)).mean(0)
        return share


class DriftWatch:
    """Compares the last rows that were scored with those that the model learned from.

    `observe` only copies rows into a ring, so that scoring hardly notices. They are compared when the ring was filled
    anew, in a thread, and when `report` is asked for.

    Args:
        schema: the columns of the rows.
        learned: what the model that is live has learned from, None while there is none.
        window: how many rows are compared.
        fresh: seconds for which a report is given again.
    """

    def __init__(
        self, schema: Schema, learned: Callable[[], LearnedRows | None], *, window: int = 10_000, fresh: float = 2.0
    ) -> None:
        self.window, self._fresh, self._learned = window, fresh, learned
        self._numerical = np.empty((window, schema.num_numerical), np.float32)
        self._categorical = np.empty((window, schema.num_categorical), np.int64)
        self._rows = 0
        self._report: dict[str, Any] = {}
        self._made: tuple[float, int, LearnedRows | None] = (0.0, -1, None)  # when, of which rows, against what
        self._lock, self._making = Lock(), Lock()
        self._full, self._ending = Event(), False
        self._thread = Thread(target=self._run, name="daes-drift", daemon=True)
        self._thread.start()

    def observe(self, batch: Batch) -> None:
        """Take in rows that were scored."""
        rows = min(len(batch), self.window)
        with self._lock:
            start = self._rows % self.window
            first = min(rows, self.window - start)
            for ring, values in ((self._numerical, batch.numerical), (self._categorical, batch.categorical)):
                ring[start : start + first] = values[:first]
                ring[: rows - first] = values[first:rows]
            self._rows += rows
            if start + rows >= self.window:
                self._full.set()

    def report(self) -> dict[str, Any]:
        """The drift of the last rows, as plain values: see docs/serving.md."""
        with self._making:
            at, rows, learned = self._made
            other = learned is not self._learned() or rows != self._rows
            if rows < 0 or (other and time.monotonic() - at > self._fresh):
                self._make()
            return self._report

    def close(self) -> None:
        self._ending = True
        self._full.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while True:
            self._full.wait()
            self._full.clear()
            if self._ending:
                return
            with self._making:
                self._make()

    def _make(self) -> None:
        learned = self._learned()
        if learned is None:
            return
        with self._lock:
            rows = min(self._rows, self.window)
            batch = Batch(self._numerical[:rows].copy(), self._categorical[:rows].copy())
            self._made = time.monotonic(), self._rows, learned
        alarms = self._report.get("alarms", [])
        report: dict[str, Any] = {"rows": 0, "alarms": [], "numerical": {}, "categorical": {}}
        if rows:
            report = learned.compare(batch)
        self._report = {"window": self.window, **report}
        if report["alarms"] and not alarms:
            _log.warning("the rows to score are not those that were learned from: %s", listed(report["alarms"]))
        elif alarms and not report["alarms"]:
            _log.info("the rows to score are those that were learned from again")


def _sample_of(model: CTRModel) -> NDArray[np.float64] | None:
    """Values of the numerical features (N, q), NaN where there are fewer: of reservoirs, or knots if it is frozen."""
    if model.numerical is None or model.numerical.distributions is None:
        return None
    if model.distributions is None:
        values: NDArray[np.float64] = model.numerical.distributions.knots.double().cpu().numpy().T
        return values
    # Which slot a value lies in does not depend on it: some slots are a sample of all.
    slots = model.distributions.slots[:, : min(_SAMPLE, model.distributions.reservoir_size)].double().cpu().numpy().T
    filled = model.distributions.count.cpu().numpy()
    return np.where(np.arange(len(slots))[:, None] < filled, slots, np.nan)


def _missing_numbers(model: CTRModel) -> NDArray[np.float64]:
    known = None if model.numerical is None else model.numerical.distributions
    if not isinstance(known, FeatureDistributions):
        return np.full(model.schema.num_numerical, np.nan)
    count, skipped = known.count.cpu().numpy(), known.skipped.cpu().numpy()
    share: NDArray[np.float64] = skipped / np.maximum(count + skipped, 1)
    return share


def _categories(model: CTRModel) -> tuple[NDArray[np.bool_] | None, NDArray[np.float64], NDArray[np.float64]]:
    """Which rows of the table have been seen, and each column's part of missing values and of new ids.

    How likely the next id is to be new, the ids seen once tell: n₁ / n (Good and Turing).
    """
    table, views = model.categorical, model.evidence.row_counts[:, 0].cpu().numpy()
    total = float(model.evidence.total[0])
    if table is None or not views.size or not total:
        nothing = np.full(model.schema.num_categorical, np.nan)
        return None, nothing, nothing
    ends = [*table.offsets[1:], len(views)]
    missing, unseen = [], []
    for start, end in zip(table.offsets, ends, strict=True):
        ids = views[start + FIRST : end]
        missing.append(views[start] / total)
        new = views[start + UNSEEN] if table.vocabulary is not None else ((ids > 0) & (ids < 1.5)).sum()
        unseen.append(new / total)
    return views > 0, np.array(missing), np.array(unseen)


def _alarms(found: dict[str, Any], rows: int) -> list[str]:
    alarms = []
    for name, column in found["numerical"].items():
        if column["psi"] is not None and column["psi"] - column["psi_by_chance"] > ALARM_PSI:
            alarms.append(f"{name}: PSI {column['psi']:.2f}")
    for name, column in {**found["numerical"], **found["categorical"]}.items():
        now, before = column["missing"], column["missing_learned"]
        if before is not None and _differs(abs(now - before), before, rows):
            alarms.append(f"{name}: {now:.0%} missing, {before:.0%} in training")
        now, before = column.get("unseen"), column.get("unseen_learned")
        if now is not None and before is not None and _differs(now - before, before, rows):
            alarms.append(f"{name}: {now:.0%} unseen ids, {before:.0%} in training")
    return alarms


def _differs(difference: float, share: float, rows: int) -> bool:
    spread: float = (share * (1 - share) / rows) ** 0.5
    return difference > max(ALARM_SHARE, _SIGMAS * spread)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
