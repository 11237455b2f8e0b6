"""Drift, missing values, clicks, knots and speed along the stream that a model is trained on."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.distribution.base import Floats, check_positive
from daes.distribution.binned import DriftBins
from daes.distribution.distinct import DistinctCounts
from daes.distribution.drift import ks_by_chance, psi_by_chance
from daes.embedding.distributions import FeatureDistributions
from daes.metrics.base import sigmoid
from daes.storage.run_folder import plain
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.training.trainer import StreamTrainer

Ints = NDArray[np.int64]

_RESERVOIR = 10_000
_SAMPLE_ROWS = 1_024
"""The largest number of rows of a batch that are counted for PSI and KS."""
_NUM_KNOTS = 11
"""How many of an embedding's knots are kept, evenly spaced, the first and the last included."""


@dataclass
class _Segment:
    """Sums over some consecutive batches; those of neighbours add up."""

    rows: int
    seconds: float
    """Training time from the start of the run to the end of the segment."""
    counts: Ints
    """(q, C+1) of `DriftBins`; (q, 0) until there is a reference."""
    missing: Ints
    """(q + p,)."""
    scores: Floats
    """Number of rows scored, clicks, sum of predictions, sum of losses."""
    knots: Floats | None
    distinct: Floats | None = None
    """(p,) distinct categories from the start of the stream to the end of the segment; None until then."""

    def add(self, later: "_Segment") -> None:
        self.rows += later.rows
        self.seconds = later.seconds
        self.counts = self.counts + later.counts
        self.missing = self.missing + later.missing
        self.scores = self.scores + later.scores
        self.knots = later.knots
        self.distinct = later.distinct


class Monitor:
    """A callback of `StreamTrainer` that cuts the stream into segments and keeps a summary of each, in fixed memory.

    A segment initially has `segment_rows` rows, rounded up to whole batches. When there are more than `most_segments`,
    neighbours are joined and segments are twice as long from then on: a long stream has between half of `most_segments`
    and `most_segments` of them. Give the monitor to the trainer as a callback and as `extra`, so that it is in the
    checkpoints.

    Drift is measured against the first `reference_rows` rows, also after segments were joined. Of larger batches only
    1,024 evenly spaced rows are counted, so that monitoring costs little.

    Args:
        schema: names the columns.
        distributions: the sample that the model keeps of its features (`CTRModel.distributions`); if None, the monitor
            keeps a small one of its own.
        reference_rows: number of rows that PSI and KS compare with.
        segment_rows: initial number of rows of a segment.
        most_segments: largest number of segments; even.

    >>> from daes.model import CTRModel
    >>> from daes.simulation import AdStream
    >>> from daes.training.config import TrainConfig
    >>> stream = AdStream(num_rows=6000, seed=0)
    >>> monitor = Monitor(stream.schema, reference_rows=2000, segment_rows=500, most_segments=8)
    >>> model = CTRModel(stream.schema, "daes", "fnn", sizes=100)
    >>> trainer = StreamTrainer(model, TrainConfig(batch_size=250), callbacks=[monitor], extra={"monitor": monitor})
    >>> _ = trainer.run(stream)
    >>> monitor.to_dict()["rows"]
    [1000, 2000, 3000, 4000, 5000, 6000]
    """

    apart = True
    """See `BatchCallback`."""

    def __init__(
        self,
        schema: Schema,
        distributions: FeatureDistributions | None = None,
        *,
        reference_rows: int = 10_000,
        segment_rows: int = 1_000,
        most_segments: int = 200,
    ) -> None:
        check_positive(reference_rows=reference_rows, segment_rows=segment_rows)
        if most_segments < 2 or most_segments % 2:
            raise ValueError(f"most_segments must be even and positive, got {most_segments}")
        self.schema = schema
        self.reference_rows = reference_rows
        self.segment_rows = segment_rows
        self.most_segments = most_segments
        self.bins: DriftBins | None = None
        self._segments: list[_Segment] = []
        self._first: list[tuple[int, NDArray[np.float32]]] = []
        self._reference_seen = 0
        self._intervals = 0
        self._categories = DistinctCounts(schema.num_categorical)
        self._waiting: list[tuple[Batch, NDArray[np.float32]]] = []
        self._seconds = 0.0
        self._own: FeatureDistributions | None = None
        if distributions is None and schema.numerical:
            # Its knots are not read during training, so they need hardly ever be refreshed.
            distributions = self._own = FeatureDistributions(
                schema.num_numerical, num_knots=1, reservoir_size=_RESERVOIR, tolerance=0.99
            )
        self._distributions = distributions

    def __call__(self, trainer: StreamTrainer, batch: Batch, logits: NDArray[np.float32]) -> None:
        """Add a batch that was just scored and learned from."""
        if self._full() and not self._waiting and len(self._segments) == self.most_segments:
            self._join()
        waiting = sum(len(rows) for rows, _ in self._waiting)
        # Small batches are processed together: one by one they would cost more than their steps.
        if self._waiting and waiting + len(batch) > _SAMPLE_ROWS:
            self._process_waiting()
            waiting = 0
        self._waiting.append((batch, logits))
        self._seconds = trainer.seconds
        waiting += len(batch)
        begun = self._segments[-1].rows if self._segments and not self._full() else 0
        ends = begun + waiting >= self.segment_rows
        if ends or (self.bins is None and self._reference_seen + waiting >= self.reference_rows):
            self._process_waiting()
        if ends:
            self._segments[-1].knots = self._knots(trainer)
            self._segments[-1].distinct = self._categories.estimate()

    def _full(self) -> bool:
        """Whether the next rows begin a new segment."""
        return bool(self._segments) and self._segments[-1].rows >= self.segment_rows

    def _process_waiting(self) -> None:
        """Update everything with the batches in `_waiting`."""
        batch, logits = self._waiting[0]
        if len(self._waiting) > 1:
            batch = Batch.concat([rows for rows, _ in self._waiting])
            logits = np.concatenate([scores for _, scores in self._waiting])
        self._waiting = []
        if self.bins is None:
            counts = np.zeros((self.schema.num_numerical, 0), np.int64)
        else:
            counts = self.bins.count(batch.numerical[:: -(-len(batch) // _SAMPLE_ROWS)])
        new = _Segment(
            rows=len(batch),
            seconds=self._seconds,
            counts=counts,
            missing=np.append(np.isnan(batch.numerical).sum(axis=0), (batch.categorical == 0).sum(axis=0)),
            scores=_scores(batch, logits),
            knots=None,
        )
        if self._full() or not self._segments:
            self._segments.append(new)
        else:
            self._segments[-1].add(new)
        self._categories.update(batch.categorical)
        if self._own is not None:
            self._own.observe(torch.from_numpy(batch.numerical))
        if self.schema.numerical and self.bins is None:
            self._first.append((len(self._segments) - 1, batch.numerical))
            self._reference_seen += len(batch)
            if self._reference_seen >= self.reference_rows:
                self._fix_reference()

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, with one entry per segment: the layout of `monitor.json`, see docs/run-folder.md."""
        if self._waiting or (self.bins is None and self._first):
            copy = deepcopy(self)
            if copy._waiting:
                copy._process_waiting()
            if copy.bins is None and copy._first:
                copy._fix_reference()
            return copy.to_dict()
        segments = self._segments
        sizes, seconds = [segment.rows for segment in segments], [segment.seconds for segment in segments]
        rows, passed = np.cumsum(sizes), np.diff(seconds, prepend=0.0)
        drift = self._drift()
        missing = np.array([segment.missing / segment.rows for segment in segments])
        scores = np.array([segment.scores for segment in segments]).reshape(-1, 4).T
        with np.errstate(invalid="ignore"):
            clicks, predictions, losses = scores[1:] / np.where(scores[0] > 0, scores[0], np.nan)
        features = {
            name: {kind: plain(values[:, place]) for kind, values in drift.items()}
            for place, name in enumerate(self.schema.numerical)
        }
        columns = (*self.schema.numerical, *self.schema.categorical)
        return {
            "reference_rows": self._reference_seen,
            "segment_rows": self.segment_rows,
            "rows": plain(rows),
            "seconds": plain(seconds),
            "rows_per_second": plain(np.array(sizes) / np.where(passed > 0, passed, np.nan)),
            "click_rate": plain(clicks),
            "mean_prediction": plain(predictions),
            "logloss": plain(losses),
            "features": features,
            "missing": _by_name(columns, missing) if segments else {},
            "distinct": self._distinct_dict(),
            "knots": self._knots_dict(rows),
            "quantiles": self._quantiles_dict(rows),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue bit for bit."""
        return {
            "segment_rows": self.segment_rows,
            "bins": None if self.bins is None else self.bins.state_dict(),
            "first": [[segment, values] for segment, values in self._first],
            "reference_seen": self._reference_seen,
            "intervals": self._intervals,
            "values": None if self._own is None else dict(self._own.state_dict()),
            "segments": [dict(vars(segment)) for segment in self._segments],
            "categories": self._categories.state_dict(),
            "waiting": [[batch.arrays(), logits] for batch, logits in self._waiting],
            "seconds": self._seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that a monitor with the same settings saved."""
        self.segment_rows = state["segment_rows"]
        self.bins = None if state["bins"] is None else DriftBins.from_state(state["bins"])
        self._first = [(segment, values) for segment, values in state["first"]]
        self._reference_seen, self._intervals = state["reference_seen"], state["intervals"]
        self._segments = [_Segment(**segment) for segment in state["segments"]]
        self._categories.load_state_dict(state["categories"])
        self._waiting = [(Batch(**arrays), logits) for arrays, logits in state["waiting"]]
        self._seconds = state["seconds"]
        if self._own is not None:
            self._own.load_state_dict(state["values"])

    def _fix_reference(self) -> None:
        """Cut the bins at the quantiles of the first rows, and count those rows."""
        self.bins = DriftBins(np.concatenate([values for _, values in self._first]))
        for segment in self._segments:
            segment.counts = np.zeros_like(self.bins.expected)
        for place, values in self._first:
            self._segments[place].counts += self.bins.count(values)
        self._first = []

    def _join(self) -> None:
        if self.bins is None and self._first:
            self._fix_reference()
        for left, right in zip(self._segments[::2], self._segments[1::2], strict=True):
            left.add(right)
        self._segments = self._segments[::2]
        self.segment_rows *= 2

    def _knots(self, trainer: StreamTrainer) -> Floats | None:
        knots = getattr(trainer.model.numerical, "knots", None)
        if knots is None:
            return None
        self._intervals = knots.shape[1] - 1
        values: Floats = knots[:, self._picked()].double().cpu().numpy()
        return values

    def _picked(self) -> NDArray[np.intp]:
        return np.unique(np.linspace(0, self._intervals, _NUM_KNOTS).round().astype(np.intp))

    def _knots_dict(self, rows: Ints) -> dict[str, Any] | None:
        kept = [place for place, segment in enumerate(self._segments) if segment.knots is not None]
        if not kept:
            return None
        knots = np.stack([np.asarray(self._segments[place].knots) for place in kept])
        features = _by_name(self.schema.numerical, knots)
        return {"rows": plain(rows[kept]), "levels": plain(self._picked() / self._intervals), "features": features}

    def _distinct_dict(self) -> dict[str, Any]:
        """Distinct categories of each column up to the end of each segment."""
        if not self._segments:
            return {}
        ends = [segment.distinct for segment in self._segments]
        counts = np.stack([self._categories.estimate() if end is None else end for end in ends])
        return _by_name(self.schema.categorical, counts)

    def _quantiles_dict(self, rows: Ints) -> dict[str, Any] | None:
        """Quantiles of the whole stream, estimated from a sample; also for methods without knots."""
        if self._distributions is None or not len(rows):
            return None
        levels = np.linspace(0, 1, 101)
        features = _by_name(self.schema.numerical, self._distributions.quantile(levels)[None])
        return {"rows": plain(rows[-1:]), "levels": plain(levels), "features": features}

    def _drift(self) -> dict[str, Floats]:
        """PSI and KS of each segment, (S, q), and what to expect of them for a feature without drift."""
        if self.bins is None:
            return {}
        counts = np.stack([segment.counts for segment in self._segments])
        sizes = counts.sum(axis=2), self.bins.expected.sum(axis=1)
        return {
            "psi": self.bins.psi(counts),
            "ks": self.bins.ks(counts),
            "psi_by_chance": psi_by_chance(self.bins.filled, *sizes),
            "ks_by_chance": ks_by_chance(*sizes),
        }


def _scores(batch: Batch, logits: NDArray[np.float32]) -> Floats:
    """The number of rows with a label and a finite score, their clicks, and sums of their predictions and losses."""
    if batch.label is None:
        return np.zeros(4)
    usable = np.isfinite(logits)
    z, y = logits[usable].astype(np.float64), batch.label[usable]
    losses = np.logaddexp(0.0, np.where(y == 1, -z, z))
    return np.array([z.size, y.sum(), sigmoid(z).sum(), losses.sum()])


def _by_name(names: Sequence[str], values: NDArray[Any]) -> dict[str, Any]:
    """The columns of an array (S, columns, …) as lists for JSON, by name."""
    return {name: plain(values[:, place]) for place, name in enumerate(names)}
