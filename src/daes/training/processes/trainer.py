"""One pass over a stream by several processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.embedding import DividedEmbedding
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.processes import ProcessesDisagreeError
from daes.model import CTRModel, DeviceBatch
from daes.stream.batch import Batch
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.optimizer import Adagrad
from daes.training.processes.checksum import model_checksum
from daes.training.processes.gradients import GradientExchange
from daes.training.processes.group import Processes
from daes.training.processes.memory import SharedMemory
from daes.training.processes.tables import DividedState
from daes.training.step import TrainingStep, random_state, set_random_state
from daes.training.trainer import StreamTrainer, TrainResult, as_warning

_GROWTH = 50
"""While the stream is short, rows are exchanged whenever it has grown by this part of itself: one in so many."""


@dataclass(frozen=True)
class _Taken:
    """A batch that a step was taken on, and what this process has made of its part of it."""

    batch: Batch
    logits: NDArray[np.float32]
    learned: bool
    observed: bool


class ProcessTrainer(StreamTrainer):
    """Trains one model in several processes, each of which takes its part of every batch, see `part_of`.

    A step is that of one process with the whole batch: gradients are the mean over its rows. What is counted and not
    learned by gradients (distributions, vocabularies, evidence) and what only watches (metrics, callbacks, records)
    wants the whole stream, and its scores. So the processes tell each other the scores of their parts, after every
    `TrainConfig.sync_every` rows and after every fiftieth part of the stream while that is less.
    All rows are then taken in, in the order of the stream and once: statistics are, bit for bit, those of one process
    that has read the same rows, and equal in all processes, which is checked at every exchange. In between, rows are
    encoded and scored with the statistics of the last exchange. With an exchange after every step (`sync_every=1`) all
    is as in one process, but for the rounding of gradients.

    The first process alone has metrics; the others get them at the end. Processes that share memory have one table and
    one set of statistics: each changes its share of the rows, and those but the first take in a part of the columns.

    Checkpoints are written after an exchange. There the processes have one state and one position, so that any number
    of processes can go on from it, one included.

    The model's table may be divided (`DividedEmbedding`). Each process then has a part of its rows and of their Adagrad
    sums, and steps are those with a whole table. Training waits for its checkpoints, which are those of a whole table.

    Args:
        model: the model, with the same parameters in all processes.
        config: how to train; `batch_size` is that of all processes together.
        arguments: of `StreamTrainer`. Callbacks are called after every exchange with the rows of all processes; give
            them, `extra` and the store to the first process alone.
    """

    def __init__(self, model: CTRModel, config: TrainConfig, processes: Processes, **arguments: Any) -> None:
        if config.label_delay:
            raise ValueError(f"label_delay must be 0 with several processes, got {config.label_delay}")
        divided = model.categorical if isinstance(model.categorical, DividedEmbedding) else None
        if divided is not None and (config.optimizer != "adagrad" or model.l2 or model.device.type != "cpu"):
            raise ValueError(
                "divided tables are learned by adagrad without l2, on the CPU, "
                f"got {config.optimizer}, l2={model.l2:g}, {model.device.type}"
            )
        self.processes = processes
        super().__init__(model, config, **arguments)
        self.seed = config.seed + (processes.rank << 32)  # each has dropout of its own
        self._divided = None if divided is None else DividedState(self.step, divided, processes)
        self.exchanges = 0
        """How often scores were exchanged, by this process."""
        self._taken: list[_Taken] = []
        self._exchanged_at = 0
        self._asked_to_stop: int | None = None
        self._random: list[dict[str, torch.Tensor]] = []

    def _make_step(self) -> TrainingStep:
        self._exchange_of_gradients = GradientExchange(self.model, self.processes)
        return TrainingStep(self.model, self.config, self._exchange_of_gradients)

    def run(self, source: Source, *, resume: bool = True, save_first: bool = False, wait: bool = True) -> TrainResult:
        """As of `StreamTrainer`, called in all processes; the source has all rows, in each of them."""
        self._exchanged_at = int(source.position()["row"])
        if resume and not self.rows:
            self.restore(source)
        memory = self.processes.memory if self.model.device.type == "cpu" else None
        if memory is None:
            return super().run(source, resume=False, save_first=save_first, wait=wait)
        self._share(memory)
        try:
            return super().run(source, resume=False, save_first=save_first, wait=wait)
        except BaseException:
            memory.leave()
            raise
        finally:
            self._take_back(memory)

    def _share(self, memory: SharedMemory) -> None:
        """Put what the processes of one machine change together into memory that they share."""
        self._check_equal([{"checksum": one} for one in self.processes.gather(model_checksum(self.model))])
        # The first process watches all rows, as nobody else does; meanwhile the others take them into the statistics.
        others = self.processes.count - 1
        part = (self.processes.rank - 1) % self.processes.count, others
        shared: list[Tensor] = self.model.evidence.divide(*part, self.processes.wait)
        numbers = None if self.model.numerical is None else self.model.numerical.distributions
        if isinstance(numbers, FeatureDistributions):
            shared += numbers.divide(*part)
        _, tables = self.model.parameter_groups()
        (optimizer, *more) = self.step.optimizers.parts
        if tables and self._divided is None and isinstance(optimizer, Adagrad) and not more:
            shared += [
                one
                for parameter, total in zip(optimizer.parameters, optimizer.sums, strict=True)
                if parameter is tables[0]
                for one in (parameter, total)
            ]
            self._exchange_of_gradients.shared = True
        with self.processes.telling():
            memory.share(shared)

    def _take_back(self, memory: SharedMemory) -> None:
        """Let this process have all of it for itself again."""
        memory.take_back()
        self._exchange_of_gradients.shared = False
        self.model.evidence.divide(0, 1, lambda: None)
        if isinstance(numbers := getattr(self.model.numerical, "distributions", None), FeatureDistributions):
            numbers.divide(0, 1)

    def stop(self, number: int) -> None:
        """End `run` in all processes after the next exchange, with a checkpoint."""
        self._asked_to_stop = number

    def _advance(self, row: int, batch: Batch) -> None:
        """Take part in a step, also without rows."""
        own = self.step.prepare(batch[slice(*part_of(0, len(batch), self.processes.rank, self.processes.count))])
        bad, logits = len(self.bad_batches), np.empty(0, np.float32)
        first = self.step.observing and not self.step.has_observed
        self._fetch(own)
        if len(own):
            logits = self.step.score(own) if first else self.step.score_and_learn(own, row)
        if first:  # observed before its step, by all, as in one process
            self.processes.wait()  # until all have scored with what was known before
            self._observe(self.step.prepare(batch))
            self.processes.wait()
            self._fetch(own)  # a vocabulary has other rows for them now
        if first or not len(own):
            self.step.learn(own, row)
        self._taken.append(_Taken(batch, logits, learned=len(self.bad_batches) == bad, observed=first))
        self._set_waiting()
        here = int(self._position["row"])
        if first or here - self._exchanged_at >= min(self.config.sync_every, self._exchanged_at / _GROWTH):
            self._exchange()

    def _fetch(self, own: DeviceBatch) -> None:
        """Get what the model needs of a divided table for these rows; called in all processes, also without rows."""
        if self._divided is not None:
            with self.processes.telling():
                self._divided.table.fetch(own.categorical)

    def _save_if_due(self, new: int) -> None:
        if self._divided is None:
            super()._save_if_due(new)
        elif self.processes.gather(self._save_is_due(new))[0]:
            with as_warning():
                self.save()

    def save(self, *, wait: bool = True) -> None:
        """As of `StreamTrainer`; with a divided table in all processes at once, which always wait."""
        if self._divided is None:
            super().save(wait=wait)
        elif self.processes.first:
            with self._divided.asking():
                super().save()
        else:
            self._divided.answer()

    def _finish(self) -> None:
        self._exchange()
        self.processes.meet("end", int(self._position["row"]))
        watched = {"metrics": self.metrics.state_dict(), "history": self.history, "seconds": self.seconds}
        watched = self.processes.gather(watched if self.processes.first else None)[0]
        self.metrics.load_state_dict(watched["metrics"])
        self.history, self.seconds = watched["history"], watched["seconds"]

    def _record_is_due(self, new: int) -> bool:
        return self.processes.first and super()._record_is_due(new)

    def _exchange(self) -> None:
        """Exchange the scores since the last exchange; update statistics and metrics with all processes' rows."""
        if not self._taken:
            return
        self.processes.meet("exchange", int(self._position["row"]))
        told = self.processes.gather(self._to_tell())
        self._check_equal(told)
        lengths = [len(one.batch) for one in self._taken]
        rows = Batch.concat([one.batch for one in self._taken])
        logits = _in_order([one["logits"] for one in told], lengths)
        learned = np.repeat(np.all([one["learned"] for one in told], axis=0), lengths)
        with self.model.lock:
            prepared = self.step.prepare(rows if learned.all() else rows[learned])
            first = self._taken[0].observed  # and exchanged alone
            if self.step.observing and not first:
                self._observe(prepared)
            scores = torch.from_numpy(logits if learned.all() else logits[learned]).to(self.model.device)
            self.model.count(prepared, logits=None if first else scores)
        self.processes.wait()
        if rows.label is not None and self.processes.first:
            # A batch of which a score is not finite is not evaluated, as in one process.
            numbers = np.repeat(np.arange(len(lengths)), lengths)
            judged = ~np.isin(numbers, numbers[~np.isfinite(logits)])
            self.metrics.update(
                logits[judged], rows.label[judged], None if rows.weight is None else rows.weight[judged]
            )
        self._stop_signal = next((one["stop"] for one in told if one["stop"] is not None), None)
        self._random = [{name: torch.from_numpy(part) for name, part in one["random"].items()} for one in told]
        self.batches += len(lengths) - 1
        self._taken = []
        self._set_waiting()
        self._exchanged_at = int(self._position["row"])
        self.exchanges += 1
        self._take_in(rows, logits)
        self._save_if_due(len(rows))
        self._stop_if_asked()

    def _set_waiting(self) -> None:
        """Let recent errors age by the rows that were learned from and not exchanged yet."""
        if self.model.evidence.recent is not None:
            self.model.evidence.recent.waiting = sum(len(one.batch) for one in self._taken if one.learned)

    def _to_tell(self) -> dict[str, Any]:
        return {
            "logits": np.concatenate([one.logits for one in self._taken]),
            "learned": [one.learned for one in self._taken],
            "stop": self._asked_to_stop,
            # As arrays: pickle writes a file of its own for a tensor.
            "random": {name: part.numpy() for name, part in random_state(self.model.device).items()},
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
        """That of one process, and the random numbers of the others.

        Rows of a divided table come from the other processes while it is written, see `save`.
        """
        state = super().state_dict()
        step = state["step"] if self._divided is None else self._divided.whole(state["step"])
        return {**state, "step": step, "random_of_processes": self._random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of any number of processes, bit for bit if there were as many."""
        super().load_state_dict(self._with_own_rows(state))
        self._exchanged_at = int(self._position["row"])
        found = state.get("random_of_processes", [state["random"]])
        if len(found) == self.processes.count:
            set_random_state(found[self.processes.rank], self.model.device)
        else:
            torch.manual_seed(self.seed + self.rows)

    def start_from(self, state: Mapping[str, Any]) -> None:
        """As of `StreamTrainer`, from the state of any number of processes."""
        super().start_from(self._with_own_rows(state))

    def _with_own_rows(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return state if self._divided is None else {**state, "step": self._divided.own(state["step"])}


def part_of(start: int, stop: int, rank: int, count: int) -> tuple[int, int]:
    """The rows of a batch from `start` to `stop` that process `rank` of `count` takes: of about equal size, in order.

    >>> [part_of(100, 110, rank, 3) for rank in range(3)]
    [(100, 103), (103, 106), (106, 110)]
    """
    rows = stop - start
    return start + rows * rank // count, start + rows * (rank + 1) // count


def _in_order(told: list[NDArray[np.float32]], lengths: list[int]) -> NDArray[np.float32]:
    """The scores of batches of these lengths, put together from the parts of all processes."""
    found = np.empty(sum(lengths), np.float32)
    for rank, own in enumerate(told):
        start = taken = 0
        for length in lengths:
            first, last = part_of(start, start + length, rank, len(told))
            found[first:last] = own[taken : taken + last - first]
            start, taken = start + length, taken + last - first
    return found
