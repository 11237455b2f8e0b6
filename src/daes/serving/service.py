"""The state of a server: the live model, the batcher, and all statistics."""

import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.serving.batching import MicroBatcher
from daes.serving.drift import DriftWatch, LearnedRows
from daes.serving.live_model import LiveModel
from daes.serving.traffic import Traffic
from daes.stream.batch import Batch


@dataclass(frozen=True)
class Limits:
    """Maxima of requests.

    Args:
        body_bytes: size of a request.
        rows: rows to score in a request.
        seconds: time from its first byte to the answer.
        waiting_rows: rows of all requests that wait to be scored.
    """

    body_bytes: int = 8 << 20
    rows: int = 10_000
    seconds: float = 10.0
    waiting_rows: int = 100_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")


class Service:
    """A live model that follows its folder, the thread that scores requests with it, and statistics of both.

    Args:
        folder: a folder of `daes train`, while it trains or afterwards, or a saved model.
        limits: maxima of requests.
        follow: seconds between checks for a newer model.
        batch_wait: seconds that a request waits to be scored together with others.
        drift_window: number of recent rows that are compared with the training rows.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        limits: Limits | None = None,
        follow: float = 1.0,
        batch_wait: float = 0.0,
        drift_window: int = 10_000,
    ) -> None:
        self.limits = limits or Limits()
        self.traffic = Traffic()
        self.model = LiveModel(folder)
        self.model.refresh()
        if self.model.current is None and self.model.refused is not None:
            raise ValueError(f"{self.model.refused.version.path} cannot be served: {self.model.refused.reason}")
        self.drift = DriftWatch(self.model.schema, self._learned, window=drift_window)
        self.batcher = MicroBatcher(
            lambda: self.model.current, wait=batch_wait, max_waiting=self.limits.waiting_rows, on_scored=self._scored
        )
        self.model.follow(follow)
        self._ids, self._prefix = count(), token_hex(4)

    def new_id(self) -> str:
        return f"{self._prefix}-{next(self._ids):x}"

    def state(self) -> dict[str, Any]:
        """Which model is live, when it was written, and which model was refused."""
        live, refused = self.model.current, self.model.refused
        state: dict[str, Any] = {"ready": live is not None, "model": None, "refused": None}
        if live is not None:
            state["model"] = {
                "version": live.version.name,
                "written": live.version.written.isoformat(timespec="seconds"),
                "age": max(0.0, time.time() - live.version.modified / 1e9),
                "rows": live.rows,
                "method": live.scorer.model.config["embedding"],
                "backbone": live.scorer.model.config["backbone"],
                "compiled": live.scorer.is_compiled,
            }
        if refused is not None:
            state["refused"] = {"version": refused.version.name, "reason": refused.reason, "at": refused.at}
        return state

    def status(self) -> dict[str, Any]:
        """Everything that the live page shows, as plain values."""
        return {
            **self.state(),
            "changes": self.model.changes,
            "refusals": self.model.refusals,
            "traffic": self.traffic.snapshot(),
            "drift": self.drift.report(),
        }

    def close(self) -> None:
        self.model.close()
        self.batcher.close()
        self.drift.close()

    def _learned(self) -> LearnedRows | None:
        live = self.model.current
        return None if live is None else live.learned

    def _scored(self, batch: Batch, scores: NDArray[np.float64]) -> None:
        self.drift.observe(batch)
        self.traffic.scored(scores)
