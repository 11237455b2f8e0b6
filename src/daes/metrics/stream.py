"""LogLoss, Brier score, normalized entropy and calibration, and all metrics of a stream together."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daes.distribution.base import Floats, State, check_positive
from daes.metrics.auc import AUC, WindowAUC
from daes.metrics.base import Metric, Rows, SumMetric, check_rows, logit_bin, no_weight, one_class, ratio, sum_product


class _MeanMetric(SumMetric):
    """The weighted mean of a value per row."""

    def __init__(self) -> None:
        super().__init__(2)

    @abstractmethod
    def _sum(self, rows: Rows) -> float:
        """The weighted sum of the values."""

    def _add(self, rows: Rows) -> None:
        self.totals += float(rows.weights.sum()), self._sum(rows)

    def compute(self) -> float:
        weight, total = self.totals.tolist()
        return ratio(total, weight)

    @property
    def undefined(self) -> str | None:
        return no_weight(self.totals[0], self.count)


class LogLoss(_MeanMetric):
    """Weighted mean of −log p(true label), in nats. A certain and wrong prediction (logit ±inf) makes it inf.

    >>> metric = LogLoss()
    >>> metric.update([0.0, 0.0], [0, 1])
    >>> round(metric.compute(), 6)
    0.693147
    """

    def _sum(self, rows: Rows) -> float:
        return _loss(rows)


class BrierScore(_MeanMetric):
    """Weighted mean of (p − label)².

    >>> metric = BrierScore()
    >>> metric.update([0.0, 0.0], [0, 1])
    >>> metric.compute()
    0.25
    """

    def _sum(self, rows: Rows) -> float:
        return sum_product(rows.weights, np.square(rows.predictions - rows.labels))


class NormalizedEntropy(SumMetric):
    """LogLoss over that of always predicting the mean label ȳ of the same rows: LogLoss / H(ȳ).

    1 is the value of predicting the click rate for every row; lower is better (He et al. 2014, "Practical Lessons from
    Predicting Clicks on Ads at Facebook"). Undefined if only one class was seen, where H(ȳ) = 0.

    >>> from daes.metrics import logit
    >>> metric = NormalizedEntropy()
    >>> metric.update(logit([0.25, 0.25, 0.25, 0.25]), [0, 0, 0, 1])
    >>> round(metric.compute(), 6)
    1.0
    """

    def __init__(self) -> None:
        super().__init__(3)

    def _add(self, rows: Rows) -> None:
        self.totals += sum_product(rows.weights, ~rows.labels), sum_product(rows.weights, rows.labels), _loss(rows)

    def compute(self) -> float:
        if self.undefined:
            return float("nan")
        others, clicks, loss = self.totals
        weight = others + clicks
        return float(loss / -(clicks * np.log(clicks / weight) + others * np.log(others / weight)))

    @property
    def undefined(self) -> str | None:
        others, clicks, _ = self.totals.tolist()
        return one_class(clicks, others, self.count)


class Reliability(NamedTuple):
    """Rows grouped by prediction. A bin without rows has weight 0 and NaN means; all arrays are (bins,)."""

    lower: Floats
    upper: Floats
    weight: Floats
    mean_prediction: Floats
    mean_label: Floats


class Calibration(SumMetric):
    """Mean prediction over mean label: 1 is calibrated, 1.1 predicts 10 % too many clicks.

    `reliability` groups the rows by prediction. The bins have equal width in the logit over ±8 (the outer two also take
    the logits beyond), so that they resolve click rates of 0.1 % as well as 50 %.

    >>> metric = Calibration()
    >>> metric.update([0.0, 0.0, 0.0, 0.0], [0, 0, 0, 1])
    >>> metric.compute(), metric.ece()
    (2.0, 0.25)
    """

    _settings = ("bins",)
    _limit = 8.0

    def __init__(self, bins: int = 32) -> None:
        check_positive(bins=bins)
        self.bins = int(bins)
        super().__init__(3, self.bins)

    def _add(self, rows: Rows) -> None:
        index = logit_bin(rows.logits, self.bins, self._limit)
        columns = (rows.weights, rows.weights * rows.predictions, rows.weights * rows.labels)
        for total, column in zip(self.totals, columns, strict=True):
            total += np.bincount(index, column, self.bins)

    def compute(self) -> float:
        _, predicted, clicked = self.totals.sum(axis=1).tolist()
        return ratio(predicted, clicked)

    @property
    def undefined(self) -> str | None:
        return None if self.totals[2].any() else f"no click in {self.count} rows"

    def ece(self) -> float:
        """Expected calibration error: the mean over rows of |mean prediction − mean label| of the row's bin."""
        weight, predicted, clicked = self.totals
        return ratio(float(np.abs(predicted - clicked).sum()), float(weight.sum()))

    def reliability(self) -> Reliability:
        """Mean prediction and mean label of each bin; `lower` and `upper` are the bin's probabilities."""
        weight, predicted, clicked = self.totals
        edges = 1.0 / (1.0 + np.exp(-np.linspace(-self._limit, self._limit, self.bins + 1)))
        edges[[0, -1]] = 0.0, 1.0
        seen = np.where(weight > 0, weight, np.nan)
        return Reliability(edges[:-1], edges[1:], weight.copy(), predicted / seen, clicked / seen)


class StreamMetrics:
    """All metrics of a stream, over all rows and over the last `window` rows (`window=None`: over all rows only).

    `compute` returns `rows`, `auc`, `logloss`, `normalized_entropy`, `brier`, `calibration` and `ece`, and all but
    `rows` again as `window_…`. AUC is exact in the window and within `auc.bounds()` over all rows. A metric that is not
    defined yet is NaN, and `undefined` says why.

    >>> metrics = StreamMetrics(window=1000)
    >>> metrics.update(logits=[-2.0, -1.0, 0.0], labels=[0, 0, 0])
    >>> metrics.compute()["window_auc"], metrics.undefined()["window_auc"]
    (nan, 'labels of one class only in 3 rows: no click')
    >>> metrics.update(logits=[-1.5, 1.0], labels=[1, 1])
    >>> round(metrics.compute()["window_auc"], 4), round(metrics.compute()["auc"], 4)
    (0.6667, 0.6667)
    """

    def __init__(self, window: int | None = 100_000) -> None:
        self.auc = AUC()
        self.logloss = LogLoss()
        self.normalized_entropy = NormalizedEntropy()
        self.brier = BrierScore()
        self.calibration = Calibration()
        self.window = None if window is None else WindowAUC(window)

    @property
    def count(self) -> int:
        """Number of rows seen."""
        return self.auc.count

    def update(self, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add the next rows, each array of shape (B,). A bad row is an error, and then no row is added."""
        rows = check_rows(logits, labels, weights)
        for metric in self._members().values():
            metric.absorb(rows)

    def compute(self) -> dict[str, float]:
        """Every metric by name."""
        return {"rows": float(self.count)} | {name: compute() for name, compute, _ in self._results()}

    def undefined(self) -> dict[str, str]:
        """Why metrics are undefined, by name, for those that are."""
        return {name: reason for name, _, metric in self._results() if (reason := metric.undefined)}

    def merge(self, other: "StreamMetrics") -> None:
        """Add the rows of other metrics, for example those of another process."""
        mine, theirs = self._members(), other._members()
        if mine.keys() != theirs.keys():
            raise ValueError("other must have a window exactly if this one has, got one of them without")
        for name, metric in mine.items():
            metric.merge(theirs[name])

    def state_dict(self) -> State:
        """Everything needed to continue bit for bit."""
        return {name: metric.state_dict() for name, metric in self._members().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that metrics of the same settings saved."""
        members = self._members()
        if state.keys() != members.keys():
            raise ValueError(f"state must have the entries {', '.join(members)}, got {', '.join(state)}")
        for name, metric in members.items():
            metric.load_state_dict(state[name])

    def _members(self) -> dict[str, Metric]:
        names = ("auc", "logloss", "normalized_entropy", "brier", "calibration", "window")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _results(self) -> Iterator[tuple[str, Callable[[], float], Metric]]:
        """Each result by name, what computes it, and the metric that says whether it is defined."""
        overall = (self.auc, self.logloss, self.normalized_entropy, self.brier, self.calibration)
        yield from _results("", *overall)
        if self.window is not None:
            recent = (LogLoss(), NormalizedEntropy(), BrierScore(), Calibration())
            rows = self.window.rows()
            for metric in recent:
                metric.absorb(rows)
            yield from _results("window_", self.window, *recent)


def _results(
    prefix: str, auc: Metric, logloss: LogLoss, entropy: NormalizedEntropy, brier: BrierScore, calibration: Calibration
) -> Iterator[tuple[str, Callable[[], float], Metric]]:
    yield f"{prefix}auc", auc.compute, auc
    yield f"{prefix}logloss", logloss.compute, logloss
    yield f"{prefix}normalized_entropy", entropy.compute, entropy
    yield f"{prefix}brier", brier.compute, brier
    yield f"{prefix}calibration", calibration.compute, calibration
    yield f"{prefix}ece", calibration.ece, logloss


def _loss(rows: Rows) -> float:
    # A row of weight 0 adds 0 even if its loss is infinite.
    weighted = np.zeros(len(rows))
    return float(np.multiply(rows.weights, rows.losses, out=weighted, where=rows.weights > 0).sum())
