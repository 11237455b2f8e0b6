"""One pass over a stream by several processes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.embedding.processes import ProcessesDisagreeError
from daes.model import CTRModel, DeviceBatch
from daes.stream.bad_rows import BadRows
from daes.stream.batch import Batch
from daes.stream.source import BatchError, Source
from daes.training.config import TrainConfig
from daes.training.processes.checksum import model_checksum
from daes.training.processes.gradients import GradientExchange
from daes.training.processes.group import Processes
from daes.training.processes.reading import DividedReading
from daes.training.step import (
    MAX_CONSECUTIVE_BAD,
    BadBatch,
    TrainingError,
    TrainingStep,
    random_state,
    set_random_state,
)
from daes.training.trainer import StreamTrainer, TrainResult

_GROWTH = 50
"""While the stream is short, rows are exchanged whenever it has grown by this part of itself: one in so many."""


@dataclass(frozen=True)
class _Part:
    """What a process has made of its part of a batch; `whole` is that batch, where this process has it."""

    rows: Batch
    whole: Batch | None
    logits: NDArray[np.float32]
    learned: bool
    observed: bool


class ProcessTrainer(StreamTrainer):
    """Trains one model in several processes, each of which takes its part of every batch (`Dataset.part`).

    A step is that of one process with the whole batch: gradients are the mean over its rows. What is counted and not
    learned by gradients (distributions, vocabularies, evidence) and what only watches (metrics, callbacks, records)
    wants the whole stream. So the processes exchange the rows that they have scored and learned from, with their
    scores, after every `TrainConfig.sync_every` rows and after every fiftieth part of the stream while that is less.
    Each takes all of them in, in the order of the stream and once: statistics are, bit for bit, those of one process
    that has read the same rows, and equal in all processes, which is checked at every exchange. In between, rows are
    encoded and scored with the statistics of the last exchange. With an exchange after every step (`sync_every=1`) all
    is as in one process, but for the rounding of gradients.

    Checkpoints are written after an exchange. There the processes have one state and one position, so that any number
    of processes can go on from it, one included.

    Args:
        model: the model, with the same parameters in all processes.
        config: how to train; `batch_size` is that of all processes together.
        processes: who takes part.
        bad_rows: the rows that this process has left out: after an exchange also those of the others.
        arguments: of `StreamTrainer`. Callbacks are called after every exchange with the rows of all processes; give
            them, `extra` and the store to the first process alone.
    """

    def __init__(
        self,
        model: CTRModel,
        config: TrainConfig,
        processes: Processes,
        *,
        bad_rows: BadRows | None = None,
        **arguments: Any,
    ) -> None:
        if config.label_delay:
            raise ValueError(f"label_delay must be 0 with several processes, got {config.label_delay}")
        self.processes = processes
        super().__init__(model, config, **arguments)
        self.seed = config.seed + (processes.rank << 32)  # each has dropout of its own
        self.exchanges = 0
        """How often rows were exchanged, by this process."""
        self._bad_rows = BadRows() if bad_rows is None else bad_rows
        self._bad_rows_told = 0
        self._source: Source | None = None
        self._parts: list[_Part] = []
        self._exchanged_at = 0
        self._refused: list[BadBatch] = []
        self._consecutive_refused = 0
        self._asked_to_stop: int | None = None
        self._random: list[dict[str, torch.Tensor]] = []

    def _make_step(self) -> TrainingStep:
        return TrainingStep(self.model, self.config, GradientExchange(self.model, self.processes))

    def run(self, source: Source, *, resume: bool = True, save_first: bool = False) -> TrainResult:
        """As of `StreamTrainer`, called in all processes; the source has this process's parts of the batches."""
        self._exchanged_at = int(source.position()["row"])
        self._source = source
        return super().run(source, resume=resume, save_first=save_first)

    def stop(self, number: int) -> None:
        """End `run` in all processes after the next exchange, with a checkpoint."""
        self._asked_to_stop = number

    def _without(self, error: BatchError) -> Iterator[tuple[int, Batch]]:
        """No rows take the place of a part that cannot be read, since the others have theirs."""
        row = int(error.position["row"])
        self._refused.append(BadBatch(row, str(error)))
        self._consecutive_refused += 1
        if self._consecutive_refused > MAX_CONSECUTIVE_BAD:
            raise TrainingError(f"{self._consecutive_refused} bad batches in a row, the last at row {row}: {error}")
        yield row, Batch.empty(self.model.schema)

    def _advance(self, row: int, batch: Batch) -> None:
        """Take part in a step, also without rows."""
        bad, logits = len(self.bad_batches), np.empty(0, np.float32)
        first = self.step.observing and not self.step.has_observed
        if len(batch):
            self._consecutive_refused = 0
            logits = self.step.score(batch) if first else self.step.score_and_learn(batch, row)
        if first:  # observed before its step, by all, as in one process
            everyone = self.processes.gather(batch.arrays())
            self._observe(self.step.prepare(Batch.concat([Batch(**one) for one in everyone])))
        if first or not len(batch):
            self.step.learn(batch, row)
        whole = self._source.whole if isinstance(self._source, DividedReading) else None
        self._parts.append(_Part(batch, whole, logits, learned=len(self.bad_batches) == bad, observed=first))
        here = int(self._position["row"])
        if here - self._exchanged_at >= min(self.config.sync_every, self._exchanged_at / _GROWTH):
            self._exchange()

    def _finish(self) -> None:
        self._exchange()
        self.processes.meet("end", int(self._position["row"]))

    def _exchange(self) -> None:
        """Tell the other processes what became of the rows since the last exchange, and take in those of all."""
        if not self._parts:
            return
        self.processes.meet("exchange", int(self._position["row"]))
        known = _known_rows(self._parts)  # in all processes or in none
        told = self.processes.gather(self._to_tell(known))
        self._check_equal(told)
        rows, logits, numbers, learned = _in_order(told, known)
        with self.model.lock:
            prepared = self.step.prepare(rows[learned])
            if self.step.observing and not self._parts[0].observed:  # the first batch is exchanged alone
                self._observe(prepared)
            self.model.count(prepared)
        # A batch of which a score is not finite is not evaluated, as in one process.
        judged = ~np.isin(numbers, numbers[~np.isfinite(logits)])
        if rows.label is not None:
            self.metrics.update(
                logits[judged], rows.label[judged], None if rows.weight is None else rows.weight[judged]
            )
        for bad in sorted((bad for one in told for bad in one["refused"]), key=lambda bad: bad.row):
            self.step.bad_batches.append(bad)
        for one in told:
            if one["bad_rows"] is not None:
                self._bad_rows.load_state_dict(one["bad_rows"])
        self._stop_signal = next((one["stop"] for one in told if one["stop"] is not None), None)
        self._random = [one["random"] for one in told]
        self.batches += len(self._parts) - 1
        self._parts, self._refused = [], []
        self._exchanged_at = int(self._position["row"])
        self.exchanges += 1
        self._take_in(rows, logits)
        self._save_if_due(len(rows))
        self._stop_if_asked()

    def _to_tell(self, known: Batch | None) -> dict[str, Any]:
        lengths = [len(part.rows) for part in self._parts]
        # Counted first: a thread that reads ahead may add more meanwhile, which are then told the next time.
        told, self._bad_rows_told = self._bad_rows_told, self._bad_rows.count
        return {
            "rows": Batch.concat([part.rows for part in self._parts]).arrays() if known is None else None,
            "logits": np.concatenate([part.logits for part in self._parts]),
            "batch": np.repeat(np.arange(len(self._parts)), lengths),
            "learned": np.repeat([part.learned for part in self._parts], lengths),
            "refused": self._refused,
            "bad_rows": self._bad_rows.state_dict() if self._bad_rows_told != told else None,
            "stop": self._asked_to_stop,
            "random": random_state(self.model.device),
            "checksum": model_checksum(self.model, self.exchanges),
        }

    def _check_equal(self, told: list[dict[str, Any]]) -> None:
        for number, one in enumerate(told):
            differing = [name for name, value in told[0]["checksum"].items() if one["checksum"][name] != value]
            if differing:
                raise ProcessesDisagreeError(
                    f"processes 0 and {number} have different models before row {int(self._position['row']):,} "
                    f"({', '.join(differing[:3])}): they need processors, devices and versions of torch of one kind"
                )

    def _observe(self, rows: DeviceBatch) -> None:
        with self.model.lock:
            self.model.train()
            self.step.observe(rows)

    def state_dict(self) -> dict[str, Any]:
        """That of one process, and the random numbers of the others."""
        return {**super().state_dict(), "random_of_processes": self._random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of any number of processes, bit for bit if there were as many."""
        super().load_state_dict(state)
        found = state.get("random_of_processes", [state["random"]])
        if len(found) == self.processes.count:
            set_random_state(found[self.processes.rank], self.model.device)
        else:
            torch.manual_seed(self.seed + self.rows)


def _known_rows(parts: list[_Part]) -> Batch | None:
    """All rows of the batches, where this process has them and need not be told."""
    found = [part.whole for part in parts if part.whole is not None]
    return Batch.concat(found) if len(found) == len(parts) else None


def _in_order(
    told: list[dict[str, Any]], known: Batch | None = None
) -> tuple[Batch, NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """Rows, scores, number of the batch, and whether it was learned from, in the order of the stream."""
    numbers = np.concatenate([one["batch"] for one in told])
    # Those of one batch stay in the order of the processes, which is that of their parts.
    order = np.argsort(numbers, kind="stable")
    rows = Batch.concat([Batch(**one["rows"]) for one in told])[order] if known is None else known
    logits, learned = (np.concatenate([one[name] for one in told])[order] for name in ("logits", "learned"))
    return rows, logits, numbers[order], learned.astype(bool)
