"""Requests that wait for the scorer are scored together."""

import asyncio
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.serving.live_model import Serving
from daes.stream.batch import Batch


class Overloaded(RuntimeError):
    """More rows are waiting than may."""


@dataclass(frozen=True)
class ScoredRows:
    """The scores of a request, (B,), and the model that they are from."""

    scores: NDArray[np.float64]
    served: Serving


@dataclass(frozen=True)
class _Waiting:
    batch: Batch
    loop: asyncio.AbstractEventLoop
    result: "asyncio.Future[ScoredRows]"


class MicroBatcher:
    """A thread that scores one batch after another: all requests that came in while it scored the one before.

    A request that finds the thread idle is scored at once, or after `wait` seconds together with those that have come
    by then.

    Args:
        live: the model to score with, asked for once a batch.
        most_rows: rows of a batch; a larger request is a batch of its own.
        wait: seconds that the first request of a batch waits for others.
        most_waiting: rows that may wait; beyond, a request is refused with `Overloaded`.
        on_scored: called in the thread with every batch and its scores, after they were handed out.
    """

    def __init__(
        self,
        live: Callable[[], Serving | None],
        *,
        most_rows: int = 4096,
        wait: float = 0.0,
        most_waiting: int = 100_000,
        on_scored: Callable[[Batch, NDArray[np.float64]], None] | None = None,
    ) -> None:
        self._live = live
        self._most_rows, self._wait, self._most_waiting = most_rows, wait, most_waiting
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
        """Score a batch of at least one row, together with those of others."""
        with self._lock:
            if self._rows and self._rows + len(batch) > self._most_waiting:
                raise Overloaded(f"{self._rows} rows are waiting, {self._most_waiting} may")
            self._rows += len(batch)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[ScoredRows] = loop.create_future()
        self._queue.put(_Waiting(batch, loop, result))
        return await result

    def close(self) -> None:
        """Score what waits, then end the thread."""
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        left: _Waiting | None = None
        while True:
            first = left or self._queue.get()
            if first is None:
                return
            together, left, ends = self._gather(first)
            self._score(together)
            if ends:
                return

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], _Waiting | None, bool]:
        """What to score at once, the request that did not fit, and whether it is time to end."""
        together, rows = [first], len(first.batch)
        deadline = time.monotonic() + self._wait
        while rows < self._most_rows:
            try:
                left = deadline - time.monotonic()
                another = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if another is None:
                return together, None, True
            if rows + len(another.batch) > self._most_rows:
                return together, another, False
            together.append(another)
            rows += len(another.batch)
        return together, None, False

    def _score(self, together: Sequence[_Waiting]) -> None:
        batch = together[0].batch if len(together) == 1 else Batch.concat([one.batch for one in together])
        answers: list[Any]
        scores = None
        try:
            served = self._live()
            if served is None:
                raise RuntimeError("there is no model yet")
            scores = served.scorer.score(batch)
            ends = np.cumsum([len(one.batch) for one in together])[:-1]
            answers = [ScoredRows(part, served) for part in np.split(scores, ends)]
        except Exception as error:
            answers = [error] * len(together)
        with self._lock:
            self._rows -= len(batch)
        for loop in {one.loop for one in together}:
            own = [(one.result, answer) for one, answer in zip(together, answers, strict=True) if one.loop is loop]
            try:
                loop.call_soon_threadsafe(_hand_out, own)
            except RuntimeError:  # the loop has ended, and with it those that waited
                continue
        if scores is not None and self._on_scored is not None:
            self._on_scored(batch, scores)


def _hand_out(answers: Sequence[tuple["asyncio.Future[ScoredRows]", Any]]) -> None:
    for result, answer in answers:
        if result.done():  # nobody waits any more
            continue
        if isinstance(answer, Exception):
            result.set_exception(answer)
        else:
            result.set_result(answer)
