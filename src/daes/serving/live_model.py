"""The model that a server scores with: the newest good one of a folder."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread

import numpy as np

from daes.serving.compiled import CompiledScores
from daes.serving.drift import LearnedRows
from daes.serving.scorer import Scorer, probe_batch
from daes.serving.versions import LoadedModel, ModelFolder, ModelVersion
from daes.storage.checkpoint import CheckpointError
from daes.storage.saved_model import refuse_other_schema

_log = logging.getLogger("daes.serving")

_LOAD_ERRORS = (ValueError, TypeError, KeyError, RuntimeError, OSError, MemoryError, CheckpointError)


@dataclass(frozen=True)
class Serving:
    """A live model; `rows` is the number of rows it has learned from, `learned` what it knows about them."""

    scorer: Scorer
    version: ModelVersion
    rows: int | None
    learned: LearnedRows


@dataclass(frozen=True)
class RefusedModel:
    """A model that did not go live; `at` is in seconds since 1970."""

    version: ModelVersion
    reason: str
    at: float


class LiveModel:
    """The newest good model of a folder.

    `refresh` looks for a newer model, which replaces the current one if it can be read, has the same columns and gives
    finite scores; otherwise the current one stays and `refused` says why. `follow` does this repeatedly in a thread.

    Args:
        folder: a folder of `daes train`, while it trains or afterwards, or a saved model.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = ModelFolder(folder)
        self.schema = self.folder.schema()
        self.current: Serving | None = None
        self.refused: RefusedModel | None = None
        self.changes = 0
        self.refusals = 0
        self._compiled: CompiledScores | None = None
        self._seen: ModelVersion | None = None
        self._lock = Lock()
        self._stop = Event()
        self._thread: Thread | None = None

    def refresh(self) -> bool:
        """Look for a newer model; returns whether one went live. If the first one is bad, an older one does."""
        with self._lock:
            try:
                newest = self.folder.newest()
            except (OSError, ValueError):  # it is being replaced
                return False
            if newest is None or newest == self._seen:
                return False
            try:
                loaded = self.folder.load_newest() if self.current is None else self.folder.load(newest)
                refuse_other_schema(loaded.model.schema, self.schema)
                self._go_live(loaded)
            except FileNotFoundError:
                return False  # a writer has just removed it: there is a newer one
            except _LOAD_ERRORS as error:
                self._seen = newest
                reason = " ".join(str(error).split()) or type(error).__name__
                self.refused = RefusedModel(newest, reason, time.time())
                self.refusals += 1
                stays = " and the previous model stays" if self.current is not None else ""
                _log.warning("%s is refused%s: %s", newest.path, stays, reason)
                return False
            self._seen = newest
            return True

    def use(self, compiled: CompiledScores) -> None:
        """Score with compiled code from now on; an error if its scores differ from the model's."""
        with self._lock:
            live = self.current
            assert live is not None
            self.current = replace(live, scorer=live.scorer.with_code(compiled))
            self._compiled = compiled

    def follow(self, seconds: float) -> None:
        """Refresh at this interval, in a thread, until `close`."""

        def run() -> None:
            while not self._stop.wait(seconds):
                try:
                    self.refresh()
                except Exception:
                    _log.exception("looking for a newer model failed; trying again")

        self._thread = Thread(target=run, name="daes-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _go_live(self, loaded: LoadedModel) -> None:
        learned = LearnedRows.of(loaded)  # a scorer freezes the model
        scorer = Scorer(loaded.model, compiled=self._compiled, **loaded.missing)
        scores = scorer.score(probe_batch(loaded.model))
        if not np.isfinite(scores).all():
            raise ValueError(f"{int((~np.isfinite(scores)).sum())} of {scores.size} scores of test rows are not finite")
        self.current = Serving(scorer, loaded.version, loaded.rows, learned)
        self.refused = None
        self.changes += 1
        _log.info("%s is live", loaded.version.name)
