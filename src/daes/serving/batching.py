"""Micro-batching: requests that wait for the scorer are scored together."""

import asyncio
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daes.serving.live_model import Serving
from daes.stream.batch import Batch


class Overloaded(RuntimeError):
    """Too many rows are waiting."""


@dataclass(frozen=True)
class ScoredRows:
    """The scores of a request, (B,), and the model that computed them."""

    scores: NDArray[np.float64]
    served: Serving


class _Waiting(NamedTuple):
    batch: Batch
    result: "asyncio.Future[ScoredRows]"


class MicroBatcher:
    """A thread that scores one batch after another; each holds all requests that arrived during the previous one.

    A request that finds the thread idle is scored at once, or after `wait` seconds together with those that have
    arrived by then.

    Args:
        live: returns the model to score with, once per batch.
        max_rows: maximum number of rows in a batch; a larger request is a batch of its own.
        wait: seconds that the first request of a batch waits for others.
        max_waiting: maximum number of rows that wait; beyond it, a request is refused with `Overloaded`.
        on_scored: called in the thread with every batch and its scores, after these were handed out.
    """

    def __init__(
        self,
        live: Callable[[], Serving | None],
        *,
        max_rows: int = 4096,
        wait: float = 0.0,
        max_waiting: int = 100_000,
        on_scored: Callable[[Batch, NDArray[np.float64]], None] | None = None,
    ) -> None:
        self._live = live
        self._max_rows, self._wait, self._max_waiting = max_rows, wait, max_waiting
        self._on_scored = on_scored
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._rows = 0
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="daes-score", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that wait or are being scored."""
        return self._rows

    async def score(self, batch: Batch) -> ScoredRows:
        """Score a batch of at least one row, together with those of other requests."""
        with self._lock:
            if self._rows and self._rows + len(batch) > self._max_waiting:
                raise Overloaded(f"{self._rows} rows are waiting, {self._max_waiting} is the maximum")
            self._rows += len(batch)
        result: asyncio.Future[ScoredRows] = asyncio.get_running_loop().create_future()
        self._queue.put(_Waiting(batch, result))
        return await result

    def close(self) -> None:
        """Score the requests that wait, then end the thread."""
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        left: list[_Waiting | None] = []
        while (first := left.pop() if left else self._queue.get()) is not None:
            requests, left = self._gather(first)
            self._score(requests)

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], list[_Waiting | None]]:
        """The requests to score together, and what was taken from the queue after them, if anything."""
        requests, rows = [first], len(first.batch)
        deadline = time.monotonic() + self._wait
        while rows < self._max_rows:
            try:
                left = deadline - time.monotonic()
                another = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if another is None or rows + len(another.batch) > self._max_rows:
                return requests, [another]
            requests.append(another)
            rows += len(another.batch)
        return requests, []

    def _score(self, requests: Sequence[_Waiting]) -> None:
        batch = requests[0].batch if len(requests) == 1 else Batch.concat([one.batch for one in requests])
        answers: list[Any]
        scores = None
        try:
            served = self._live()
            if served is None:
                raise RuntimeError("there is no model yet")
            scores = served.scorer.score(batch)
            ends = np.cumsum([len(one.batch) for one in requests])[:-1]
            answers = [ScoredRows(part, served) for part in np.split(scores, ends)]
        except Exception as error:
            answers = [error] * len(requests)
        with self._lock:
            self._rows -= len(batch)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[ScoredRows], Any]]] = {}
        for one, answer in zip(requests, answers, strict=True):
            by_loop.setdefault(one.result.get_loop(), []).append((one.result, answer))
        for loop, own in by_loop.items():
            with suppress(RuntimeError):  # the loop has ended, and with it those that waited
                loop.call_soon_threadsafe(_hand_out, own)
        if scores is not None and self._on_scored is not None:
            self._on_scored(batch, scores)


def _hand_out(answers: Sequence[tuple["asyncio.Future[ScoredRows]", Any]]) -> None:
    for result, answer in answers:
        if result.done():  # nobody waits for it any more
            continue
        if isinstance(answer, Exception):
            result.set_exception(answer)
        else:
            result.set_result(answer)
