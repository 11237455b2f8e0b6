"""Area under the ROC curve: exact for an array, in constant memory for a stream, exact for a window of a stream.

`exact_auc` equals scikit-learn's `roc_auc_score`, but needs no scikit-learn, accepts infinite logits, and returns NaN
for a single class.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.distribution.base import Floats, State, check_positive
from daes.metrics.base import Metric, Rows, SumMetric, check_rows, logit_bin, one_class, ratio, sum_product

_SPARE = 1 << 20
"""Largest number of rows for which a window has spare space at its end."""


def exact_auc(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The probability that a click scores above a non-click, ties counting one half.

        AUC = Σ_{i click, j not} w_i w_j ([s_i > s_j] + [s_i = s_j] / 2)  /  Σ_{i click, j not} w_i w_j

    One sort; only the order of the scores matters. NaN if only one class has weight, because there is no pair.

    **Shape.** Each array is (B,).

    >>> exact_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    >>> exact_auc([1.0, 2.0, 3.0], [1, 1, 1])
    nan
    """
    return _auc(check_rows(scores, labels, weights))


class AUC(SumMetric):
    """AUC over the whole stream in constant memory: one histogram of logits per class.

    The `bins` have equal width in the logit over ±16 (the outer two also take the logits beyond), so click rates
    near 1e-5 are resolved as finely as those near 0.5. Pairs in different bins are counted exactly; pairs in one bin
    count one half, as ties do. With p_b and n_b the shares of clicks and of non-clicks in bin b, the error is at most

        Σ_b p_b n_b / 2

    and `bounds` returns the interval that contains the exact AUC. With smooth densities f, g of the two classes' logits
    and bins of width h the bound is h/2·∫fg: for the default h = 1/4096 and normal logits of standard deviation 1, at
    most 3.5e-5. The error of the estimate itself is smaller, of order h², because within a narrow bin a click is above
    a non-click about as often as below.

    >>> metric = AUC()
    >>> metric.update([-2.0, -1.0, -1.5, 1.0], [0, 0, 1, 1])
    >>> metric.compute(), metric.bounds()
    (0.75, (0.75, 0.75))
    """

    _settings = ("bins",)
    _limit = 16.0

    def __init__(self, bins: int = 131_072) -> None:
        check_positive(bins=bins)
        self.bins = int(bins)
        super().__init__(2, self.bins)

    def _add(self, rows: Rows) -> None:
        index = logit_bin(rows.logits, self.bins, self._limit) + self.bins * rows.labels
        # Only the rows' own bins are touched; a bincount would add the whole histogram for each batch.
        np.add.at(self.totals.reshape(-1), index, rows.weights)

    def compute(self) -> float:
        lower, upper = self.bounds()
        return (lower + upper) / 2

    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the exact AUC of the rows seen; NaN if only one class was seen."""
        others, clicks = self.totals
        pairs = float(others.sum() * clicks.sum())
        below = np.concatenate([[0.0], np.cumsum(others)[:-1]])
        certain = sum_product(clicks, below)
        return ratio(certain, pairs), ratio(certain + sum_product(clicks, others), pairs)

    @property
    def undefined(self) -> str | None:
        others, clicks = self.totals.sum(axis=1).tolist()
        return one_class(clicks, others, self.count)


class WindowAUC(Metric):
    """Exact AUC over the last `size` rows. `rows` returns those rows, oldest first.

    Merging keeps the windows of both, interleaved by age, and adds up `size`: across processes, the window consists of
    the last rows of each.

    >>> metric = WindowAUC(size=4)
    >>> metric.update([9.0, 9.0, 0.1, 0.4, 0.35, 0.8], [0, 0, 0, 0, 1, 1])
    >>> metric.compute()
    0.75
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        check_positive(size=size)
        self.size = int(size)
        self._end = 0
        self._restart(np.empty((3, 0)))

    def _add(self, rows: Rows) -> None:
        columns = _columns(rows[-self.size :])
        width = columns[0].size
        if self._end + width > self._kept.shape[1]:  # move the window to the front; rare, because of the spare space
            stays = self.size - width
            self._kept[:, :stays] = self._kept[:, self._end - stays : self._end].copy()
            self._end = stays
        for kept, column in zip(self._kept, columns, strict=True):
            kept[self._end : self._end + width] = column
        self._end += width

    def rows(self) -> Rows:
        """The rows in the window, oldest first. They are not copied: read them before the next update."""
        logits, labels, weights, predictions, losses = self._window()
        rows = Rows(logits, labels == 1, weights)
        vars(rows).update(predictions=predictions, losses=losses)  # computed when the rows were added
        return rows

    def compute(self) -> float:
        return _auc(self.rows())

    @property
    def undefined(self) -> str | None:
        rows = self.rows()
        return one_class(sum_product(rows.weights, rows.labels), sum_product(rows.weights, ~rows.labels), len(rows))

    def _restart(self, window: Floats) -> None:
        self._end = window.shape[1]
        self._kept: Floats = np.empty((5, self.size + min(self.size, _SPARE)))
        """Logits, labels, weights, predictions and losses of each row, of which the last `size` are the window."""
        for kept, column in zip(self._kept, _columns(Rows(window[0], window[1] == 1, window[2])), strict=True):
            kept[: self._end] = column

    def _window(self) -> Floats:
        return self._kept[:, max(self._end - self.size, 0) : self._end]

    def _merge(self, other: Self) -> None:
        mine, theirs = self._window()[:3], other._window()[:3]
        age = np.concatenate([np.arange(window.shape[1], 0, -1) for window in (mine, theirs)])
        oldest_first = np.argsort(-age, kind="stable")
        self.size += other.size
        self._restart(np.concatenate([mine, theirs], axis=1)[:, oldest_first])

    def _state(self) -> State:
        return {"size": self.size, "window": self._window()[:3].copy()}

    def _load(self, state: Mapping[str, Any]) -> None:
        if state["size"] != self.size:  # no setting, since windows of different sizes can be merged
            raise ValueError(f"state must have size={self.size}, got {state['size']}")
        window = np.array(state["window"], dtype=np.float64)
        if window.ndim != 2 or window.shape[0] != 3 or window.shape[1] > self.size:
            raise ValueError(f"state must have a window of shape (3, at most {self.size}), got {window.shape}")
        check_rows(*window)
        self._restart(window)


def _columns(rows: Rows) -> tuple[Floats | NDArray[np.bool_], ...]:
    """The columns of rows that a window keeps."""
    return rows.logits, rows.labels, rows.weights, rows.predictions, rows.losses


def _auc(rows: Rows) -> float:
    if not len(rows):
        return float("nan")
    if (rows.weights == 1).all():  # counting is several times as fast
        clicked, other = np.sort(rows.logits[rows.labels]), np.sort(rows.logits[~rows.labels])
        below = other.searchsorted(clicked)
        tied = clicked[np.take(other, below, mode="clip") == clicked] if other.size else clicked[:0]
        ties = other.searchsorted(tied, side="right").sum() - other.searchsorted(tied).sum()
        return ratio(float((2 * below.sum() + ties) / 2), float(clicked.size * other.size))
    order = np.argsort(rows.logits)
    scores = rows.logits[order]
    ties_start = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    clicks = np.add.reduceat((rows.weights * rows.labels)[order], ties_start)
    others = np.add.reduceat((rows.weights * ~rows.labels)[order], ties_start)
    below = np.concatenate([[0.0], np.cumsum(others)[:-1]])
    return ratio(sum_product(clicks, below + others / 2), float(clicks.sum() * others.sum()))
