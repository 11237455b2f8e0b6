"""The results of a run as files of its folder: progress.json while it trains, model, metrics and more at the end."""

import logging
import time
from dataclasses import asdict
from typing import Any

from daes.embedding import DividedEmbedding
from daes.model import CTRModel
from daes.storage.dead_letters import DeadLetters
from daes.storage.durable import write_text
from daes.storage.run_folder import RunFolder, plain
from daes.stream.dataset import Dataset
from daes.stream.messages import MessageSource, parse_offsets
from daes.stream.source import Source
from daes.training.importance import RecentRows, feature_importance
from daes.training.label_join import LabelJoin
from daes.training.monitor import Monitor
from daes.training.step import TrainingError
from daes.training.trainer import StreamTrainer, TrainResult

_log = logging.getLogger("daes.training")

_LEAST_SECONDS = 2.0
_LARGEST_SHARE = 0.02
_LISTED_BAD_ROWS = 20
_FEWEST_REFERENCE_ROWS = 1_000
_MOST_REFERENCE_ROWS = 10_000


class RunResults:
    """What is recorded of a run besides its checkpoints, and the files it is written to (docs/run-folder.md).

    Args:
        data: the rows of the run.
        model: its model.
        window: rows at the end of the stream on which the importance of columns is measured. Drift is measured against
            as many at its start, between 1,000 and 10,000.
    """

    def __init__(self, data: Dataset, model: CTRModel, window: int) -> None:
        self.folder: RunFolder | None = None
        """Where the files are; None as long as nothing may be written."""
        # The window is a tenth of a stream of known length: a longer reference would have much of what it is compared
        # with, and hide its drift.
        reference_rows = min(max(window, _FEWEST_REFERENCE_ROWS), _MOST_REFERENCE_ROWS)
        self.monitor = Monitor(data.schema, model.distributions, reference_rows=reference_rows)
        self.recent = RecentRows(data.schema.num_numerical + data.schema.num_categorical, window)
        self.bad_rows = data.bad_rows
        self._data = data
        self._letters: DeadLetters | None = None
        # Rows of a live stream may then be waited for; others come at once, and a short run needs no such file.
        self._due = 0.0 if data.is_live else time.monotonic() + _LEAST_SECONDS

    def open_dead_letters(self, source: Source, trainer: StreamTrainer) -> None:
        """Write messages that cannot be read, from the source's position on, to a file; for other data, do nothing."""
        messages, join = self._data.source, trainer.waiting
        if not isinstance(messages, MessageSource) or self.folder is None:
            return
        letters = self._letters = DeadLetters(self.folder.dead_letters)
        positions = {messages.consumer.name: parse_offsets(str(source.position()["offsets"]))[0]}
        if isinstance(join, LabelJoin):
            positions[join.labels.name] = join.labels.offsets()
            join.labels.on_dead_letter = letters.add
        letters.open(positions)
        messages.on_dead_letter = letters.add
        trainer.extra["dead_letters"] = letters

    def write_progress(self, trainer: StreamTrainer, record: dict[str, float]) -> None:
        """Write progress.json, as a callback of `StreamTrainer.on_record`.

        It is written every two seconds at most, taking up to a fiftieth of the time, and for data that are not live not
        in the first two. If it cannot be written, training continues.
        """
        started = time.monotonic()
        if self.folder is None or started < self._due:
            return
        content = {
            "time": time.time(),
            "rows": trainer.rows,
            "seconds": trainer.seconds,
            "metrics": record,
            "reliability": _reliability(trainer),
            "history": _by_name(trainer.history),
            "monitor": self.monitor.to_dict(),
        }
        try:
            self.folder.write("progress", content)
        except OSError as error:
            _log.warning("progress.json could not be written: %s", error)
        took = time.monotonic() - started
        self._due = time.monotonic() + max(_LEAST_SECONDS, took / _LARGEST_SHARE)

    def write(self, trainer: StreamTrainer, result: TrainResult, world_size: int) -> None:
        """Write the model and all results, once the last checkpoint is durable."""
        folder, store, model, rows = self.folder, trainer.store, trainer.model, self.recent.sample()
        assert folder is not None
        assert store is not None
        if isinstance(model.categorical, DividedEmbedding):
            store.close()
            last = store.load()  # only the checkpoint has the rows of all processes
            assert last is not None
            model.categorical = model.categorical.with_rows(last.state["step"]["model"]["categorical.weight"])
        # Measured while the last checkpoint is being written.
        importance = None if rows is None else feature_importance(model, rows, seed=trainer.config.seed)
        store.close()
        try:
            model.save_pretrained(folder.model)
            folder.write("metrics", self._metrics(trainer, result, world_size))
            folder.write("history", _by_name(result.history))
            folder.write("monitor", self.monitor.to_dict())
            if self.bad_rows.count:
                write_text(folder.bad_rows, self.bad_rows.to_csv())
            if importance is not None:
                folder.write("importance", asdict(importance))
            (folder.path / "progress.json").unlink(missing_ok=True)
        except OSError as error:
            raise TrainingError(
                f"{error.filename or folder.path} could not be written: {error.strerror or error}; training is done "
                f"and the model is safe in {folder.checkpoints}: resuming the run writes the rest"
            ) from error

    def _metrics(self, trainer: StreamTrainer, result: TrainResult, world_size: int) -> dict[str, Any]:
        first = self.bad_rows.first[:_LISTED_BAD_ROWS]
        return {
            "rows": result.rows,
            "batches": result.batches,
            "seconds": result.seconds,
            "rows_per_second": result.rows_per_second,
            "world_size": world_size,
            "metrics": result.metrics,
            "undefined": trainer.metrics.undefined(),
            "bad_batches": [asdict(bad) for bad in result.bad_batches],
            "bad_rows": {"count": self.bad_rows.count, "first": [asdict(bad) for bad in first]},
            "dead_letters": 0 if self._letters is None else self._letters.count,
            **({"labels": trainer.waiting.describe()} if isinstance(trainer.waiting, LabelJoin) else {}),
            "reliability": _reliability(trainer),
        }


def _reliability(trainer: StreamTrainer) -> dict[str, Any]:
    """The reliability of the predictions, as lists for JSON."""
    return {name: plain(values) for name, values in trainer.metrics.calibration.reliability()._asdict().items()}


def _by_name(history: list[dict[str, float]]) -> dict[str, list[float]]:
    """Each metric at every record, the layout of `history.json`."""
    return {name: [record[name] for record in history] for name in (history[0] if history else ())}
