"""What a server has done: requests, rows, latencies, scores and the labels received for them."""

import time
from collections import OrderedDict
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.metrics import StreamMetrics
from daes.metrics.base import logit

LATENCIES = 5e-5 * 1.25 ** np.arange(56)
"""Upper bounds of the latency bins in seconds, 50 µs to 11 s; percentiles are exact to a quarter."""
SECONDS = 300
"""How far the live page looks back."""
_SCORES = 10_000
_REMEMBERED = 100_000


class UnknownRequest(KeyError):
    """Labels were sent for a request that is not remembered."""


class Traffic:
    """Counts since the start, and counts for each of the last `SECONDS` seconds.

    Args:
        remembered: number of scored rows for which labels are still accepted.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self.started = time.monotonic()
        self.by_status: dict[int, int] = {}
        self.rows = 0
        self.latencies = np.zeros(len(LATENCIES) + 1, np.int64)
        self.latency_sum = 0.0
        self.labels = StreamMetrics(window=10_000)
        self._ring = np.zeros((SECONDS, 3), np.int64)  # requests, errors, rows
        self._latency_ring = np.zeros((SECONDS, len(LATENCIES) + 1), np.int64)
        self._second = int(time.monotonic())
        self._scores = np.empty(_SCORES)
        self._scored = 0
        self._waiting: OrderedDict[str, NDArray[np.float64]] = OrderedDict()
        self._waiting_rows, self._remembered = 0, remembered
        self._lock = Lock()

    def request(self, status: int, seconds: float, rows: int = 0) -> None:
        """Count a request that was answered."""
        bin = int(LATENCIES.searchsorted(seconds))
        with self._lock:
            now = self._current_second()
            self.by_status[status] = self.by_status.get(status, 0) + 1
            self._ring[now] += (1, status >= 500, rows)
            if status < 400:
                self.rows += rows
                self.latencies[bin] += 1
                self.latency_sum += seconds
                self._latency_ring[now, bin] += 1

    def scored(self, scores: NDArray[np.float64]) -> None:
        """Keep the scores of some rows for the histogram."""
        write_ring(self._scores, scores, self._scored)
        self._scored += min(len(scores), _SCORES)

    def remember(self, name: str, scores: NDArray[np.float64]) -> None:
        """Keep the scores of a request until its labels come, or until too many others have followed."""
        with self._lock:
            before = self._waiting.pop(name, None)
            self._waiting[name] = scores
            self._waiting_rows += len(scores) - (0 if before is None else len(before))
            while self._waiting_rows > self._remembered and len(self._waiting) > 1:
                self._waiting_rows -= len(self._waiting.popitem(last=False)[1])

    def label(self, name: str, labels: list[int | None]) -> int:
        """Count the labels of a request's rows, None for an unknown one; returns how many were counted."""
        with self._lock:
            scores = self._waiting.get(name)
            if scores is None:
                raise UnknownRequest(name)
            if len(labels) != len(scores):
                raise ValueError(f"labels must have one entry for each of {len(scores)} rows, got {len(labels)}")
            del self._waiting[name]
            self._waiting_rows -= len(scores)
            known = np.array([label is not None for label in labels], dtype=bool)
            if known.any():
                clicked = np.array([label for label in labels if label is not None], np.float64)
                self.labels.update(logit(scores[known]), clicked)
            return int(known.sum())

    def snapshot(self) -> dict[str, Any]:
        """Everything that the live page shows, as plain values."""
        with self._lock:
            now = self._current_second()
            order = (np.arange(SECONDS) + now + 1) % SECONDS
            ring, latencies = self._ring[order], self._latency_ring[order]
            total, by_status = self.rows, dict(self.by_status)
            metrics = self.labels.compute() if self.labels.count else {}
            reliability = self.labels.calibration.reliability()._asdict() if self.labels.count else {}
        last = slice(-61, -1)
        return {
            "uptime": time.monotonic() - self.started,
            "requests": sum(by_status.values()),
            "by_status": {str(status): count for status, count in sorted(by_status.items())},
            "rows": total,
            "requests_per_second": float(ring[last, 0].mean()),
            "rows_per_second": float(ring[last, 2].mean()),
            "latency": {f"p{level}": percentile(latencies[last].sum(0), level) for level in (50, 90, 99)},
            "series": {
                "requests": ring[:-1, 0].tolist(),
                "errors": ring[:-1, 1].tolist(),
                "rows": ring[:-1, 2].tolist(),
                "p50": [percentile(second, 50) for second in latencies[:-1]],
                "p99": [percentile(second, 99) for second in latencies[:-1]],
            },
            "scores": self._histogram(),
            "labels": {
                "metrics": metrics,
                "reliability": {name: values.tolist() for name, values in reliability.items()},
            },
        }

    def _histogram(self) -> dict[str, Any]:
        """The last scores in 40 bins, up to the largest of them."""
        scores = self._scores[: min(self._scored, _SCORES)]
        if not len(scores):
            return {"edges": [], "counts": [], "mean": None}
        counts, edges = np.histogram(scores, bins=40, range=(0.0, max(float(scores.max()), 1e-6)))
        return {"edges": edges.tolist(), "counts": counts.tolist(), "mean": float(scores.mean())}

    def _current_second(self) -> int:
        """The index of this second in the ring; the seconds that have passed since the last call are cleared."""
        now = int(time.monotonic())
        for second in range(max(self._second + 1, now - SECONDS + 1), now + 1):
            self._ring[second % SECONDS] = 0
            self._latency_ring[second % SECONDS] = 0
        self._second = max(now, self._second)
        return self._second % SECONDS


def percentile(counts: NDArray[np.int64], level: float) -> float | None:
    """The upper bound, in seconds, of the latency bin that holds a percentile; None without requests.

    >>> counts = np.zeros(len(LATENCIES) + 1, np.int64)
    >>> counts[[0, 10]] = 99, 1
    >>> percentile(counts, 50), bool(percentile(counts, 99.9) == LATENCIES[10])
    (5e-05, True)
    """
    total = int(counts.sum())
    if not total:
        return None
    bin = int(np.searchsorted(np.cumsum(counts), total * level / 100))
    return float(LATENCIES[min(bin, len(LATENCIES) - 1)])


def write_ring(ring: NDArray[Any], values: NDArray[Any], written: int) -> None:
    """Write the last values that fit into a ring buffer, to which `written` values were written before."""
    values = values[-len(ring) :]
    start = written % len(ring)
    left = len(ring) - start
    ring[start : start + len(values)] = values[:left]
    if len(values) > left:
        ring[: len(values) - left] = values[left:]
