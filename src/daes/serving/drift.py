"""Whether the rows to score are like those that the model learned from."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from daes.distribution.base import Floats
from daes.distribution.binned import MOST_BY_CHANCE, DriftBins
from daes.distribution.drift import psi_by_chance
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.vocabulary import FIRST, UNSEEN
from daes.formatting import listed
from daes.model import CTRModel
from daes.serving.traffic import write_ring
from daes.serving.versions import LoadedModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema

_log = logging.getLogger("daes.serving")

ALARM_PSI = 0.25
"""A PSI this far above its value by chance is an alarm: the usual threshold for a population that has shifted."""
ALARM_SHARE = 0.1
"""So is a share of missing values that differs by this much, or a share of unseen ids that is this much higher."""
_SIGMAS = 4.0
_LEAST_ROWS = 500
_SAMPLE = 10_000


@dataclass(frozen=True)
class LearnedRows:
    """What a model knows about the rows that it learned from.

    Args:
        model: the model.
        bins: bins of the numerical features, cut at the quantiles of its reservoirs; None if it keeps none.
        missing: the share of missing values in each column, numerical ones first, (q + p,); NaN where unknown.
        unseen: the share of rows with a new id in each categorical column, (p,); NaN where unknown.
        seen: which rows of the categorical table were learned from; None if that is not counted.
    """

    model: CTRModel
    bins: DriftBins | None
    missing: Floats
    unseen: Floats
    seen: NDArray[np.bool_] | None

    @classmethod
    def of(cls, loaded: LoadedModel) -> Self:
        """Read the statistics of a model that is not frozen yet."""
        model = loaded.model
        values = _sample_of(model) if loaded.sample is None else loaded.sample
        seen, absent, unseen = _categories(model)
        bins = None if values is None else DriftBins(values)
        return cls(model, bins, np.append(_missing_numbers(model), absent), unseen, seen)

    def compare(self, batch: Batch) -> dict[str, Any]:
        """The drift of some rows, as plain values by column; None where something is not known."""
        schema, rows, q = self.model.schema, len(batch), self.model.schema.num_numerical
        psi = ks = by_chance = np.full(q, np.nan)
        if self.bins is not None:
            counts = self.bins.count(batch.numerical)
            psi, ks = self.bins.psi(counts), self.bins.ks(counts)  # NaN where either side has no value
            filled, seen = self.bins.filled, counts.sum(1)
            by_chance = psi_by_chance(filled, seen, self.bins.expected.sum(1))
            few = psi_by_chance(filled, seen) > MOST_BY_CHANCE
            psi = np.where(few, np.nan, psi)  # the rows have too few values to tell
        missing = np.append(1 - np.isfinite(batch.numerical).mean(0), (batch.categorical == 0).mean(0))
        numerical = {"psi": psi, "ks": ks, "psi_by_chance": by_chance}
        categorical = {"unseen": self._unseen(batch), "unseen_learned": self.unseen}
        found = {
            "numerical": _by_column(schema.numerical, numerical, missing[:q], self.missing[:q]),
            "categorical": _by_column(schema.categorical, categorical, missing[q:], self.missing[q:]),
        }
        return {"rows": rows, "alarms": _alarms(found, rows) if rows >= _LEAST_ROWS else [], **found}

    @torch.no_grad()
    def _unseen(self, batch: Batch) -> Floats:
        """The share of ids in each column that the model has no row for, or has never counted."""
        table = self.model.categorical
        if table is None or (self.seen is None and table.vocabulary is None):
            return np.full(self.model.schema.num_categorical, np.nan)
        rows = table.rows(torch.from_numpy(batch.categorical)).numpy()
        if table.vocabulary is not None:
            new = rows - np.array(table.offsets) == UNSEEN
        else:
            assert self.seen is not None
            new = ~self.seen[rows]
        share: Floats = (new & (batch.categorical != 0)).mean(0)
        return share


class DriftWatch:
    """Compares the last rows that were scored with those that the model learned from.

    `observe` only copies rows into a ring buffer, so that it hardly slows scoring down. A thread compares them whenever
    the ring has been filled anew; `report` does so on request.

    Args:
        schema: the columns of the rows.
        learned: returns what the live model has learned from, None while there is no model.
        window: number of rows to compare.
        fresh: seconds for which a report is reused.
    """

    def __init__(
        self, schema: Schema, learned: Callable[[], LearnedRows | None], *, window: int = 10_000, fresh: float = 2.0
    ) -> None:
        self.window, self._fresh, self._learned = window, fresh, learned
        self._numerical = np.empty((window, schema.num_numerical), np.float32)
        self._categorical = np.empty((window, schema.num_categorical), np.int64)
        self._rows = 0
        self._report: dict[str, Any] = {}
        # When the report was made, after how many rows, and against what.
        self._report_of: tuple[float, int, LearnedRows | None] = (0.0, -1, None)
        self._lock, self._report_lock = Lock(), Lock()
        self._full, self._ending = Event(), False
        self._thread = Thread(target=self._run, name="daes-drift", daemon=True)
        self._thread.start()

    def observe(self, batch: Batch) -> None:
        """Take in rows that were scored."""
        with self._lock:
            write_ring(self._numerical, batch.numerical, self._rows)
            write_ring(self._categorical, batch.categorical, self._rows)
            filled = self._rows % self.window + len(batch) >= self.window
            self._rows += min(len(batch), self.window)
            if filled:
                self._full.set()

    def report(self) -> dict[str, Any]:
        """The drift of the last rows, as plain values: see docs/serving.md."""
        with self._report_lock:
            at, rows, learned = self._report_of
            outdated = learned is not self._learned() or rows != self._rows
            if rows < 0 or (outdated and time.monotonic() - at > self._fresh):
                self._update_report()
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
            with self._report_lock:
                self._update_report()

    def _update_report(self) -> None:
        learned = self._learned()
        if learned is None:
            return
        with self._lock:
            rows = min(self._rows, self.window)
            batch = Batch(self._numerical[:rows].copy(), self._categorical[:rows].copy())
            self._report_of = time.monotonic(), self._rows, learned
        alarms = self._report.get("alarms", [])
        report: dict[str, Any] = {"rows": 0, "alarms": [], "numerical": {}, "categorical": {}}
        if rows:
            report = learned.compare(batch)
        self._report = {"window": self.window, **report}
        if report["alarms"] and not alarms:
            _log.warning("the rows to score differ from those learned from: %s", listed(report["alarms"]))
        elif alarms and not report["alarms"]:
            _log.info("the rows to score are like those learned from again")


def _sample_of(model: CTRModel) -> Floats | None:
    """Values of the numerical features (N, q), NaN where there are fewer: from reservoirs, or the knots if frozen."""
    if model.numerical is None or model.numerical.distributions is None:
        return None
    if model.distributions is None:
        values: Floats = model.numerical.distributions.knots.double().cpu().numpy().T
        return values
    # The slot of a value does not depend on it, so the first slots are a sample of all.
    slots = model.distributions.slots[:, : min(_SAMPLE, model.distributions.reservoir_size)].double().cpu().numpy().T
    filled = model.distributions.count.cpu().numpy()
    return np.where(np.arange(len(slots))[:, None] < filled, slots, np.nan)


def _missing_numbers(model: CTRModel) -> Floats:
    known = None if model.numerical is None else model.numerical.distributions
    if not isinstance(known, FeatureDistributions):
        return np.full(model.schema.num_numerical, np.nan)
    count, skipped = known.count.cpu().numpy(), known.skipped.cpu().numpy()
    share: Floats = skipped / np.maximum(count + skipped, 1)
    return share


def _categories(model: CTRModel) -> tuple[NDArray[np.bool_] | None, Floats, Floats]:
    """Which rows of the table have been seen, and each column's share of missing values and of new ids.

    The probability that the next id is new is estimated from the ids seen once: n₁ / n (Good and Turing).
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


def _by_column(names: Sequence[str], measures: dict[str, Floats], missing: Floats, learned: Floats) -> dict[str, Any]:
    """The measures of each column and its share of missing values, now and in training; None where unknown."""
    measures = {**measures, "missing": missing, "missing_learned": learned}
    return {
        name: {kind: None if np.isnan(values[index]) else float(values[index]) for kind, values in measures.items()}
        for index, name in enumerate(names)
    }


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
