"""What a run looks like while it trains, in a file of its folder."""

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daes.storage.run_folder import RunFolder
from daes.training.monitor import Monitor, plain

if TYPE_CHECKING:
    from daes.training.trainer import StreamTrainer

_log = logging.getLogger("daes.training")

_LEAST_SECONDS = 2.0
_LARGEST_SHARE = 0.02


def reliability_of(trainer: "StreamTrainer") -> dict[str, Any]:
    """The reliability of the predictions, as lists for JSON."""
    return {name: plain(values) for name, values in trainer.metrics.calibration.reliability()._asdict().items()}


def history_by_name(history: list[dict[str, float]]) -> dict[str, list[float]]:
    """Each metric at every record, the layout of `history.json`."""
    return {name: [record[name] for record in history] for name in (history[0] if history else ())}


class ProgressFile:
    """Writes `progress.json` (docs/run-folder.md) when a record is made, as a callback of `StreamTrainer.on_record`.

    It writes every two seconds at most, and spends no more than a fiftieth of the time on it. That the file cannot be
    written does not end training.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.folder: RunFolder | None = None
        """Where the file is; None as long as nothing may be written."""
        self._monitor = monitor
        self._due = 0.0

    def __call__(self, trainer: "StreamTrainer", record: dict[str, float]) -> None:
        started = time.monotonic()
        if self.folder is None or started < self._due:
            return
        content = {
            "time": time.time(),
            "rows": trainer.rows,
            "seconds": trainer.seconds,
            "metrics": record,
            "reliability": reliability_of(trainer),
            "history": history_by_name(trainer.history),
            "monitor": self._monitor.to_dict(),
        }
        try:
            self.folder.write("progress", content)
        except OSError as error:
            _log.warning("progress.json could not be written: %s", error)
        took = time.monotonic() - started
        self._due = time.monotonic() + max(_LEAST_SECONDS, took / _LARGEST_SHARE)

    def remove(self) -> None:
        """The run is complete, and other files say it all."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder.path / "progress.json").unlink(missing_ok=True)
