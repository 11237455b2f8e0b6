"""One pass over a stream by several processes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from daes.embedding import DividedEmbedding
from daes.embedding.processes import ProcessesDisagreeError
from daes.evidence.division import Division, part_of
from daes.model import CTRModel, DeviceBatch
from daes.stream.batch import Batch
from daes.stream.source import Source
from daes.training.config import TrainConfig
from daes.training.optimizer import Adagrad
from daes.training.processes.checksum import check_equal, model_checksum, rows_checksum
from daes.training.processes.gradients import GradientExchange
from daes.training.processes.group import Processes
from daes.training.processes.memory import SharedMemory
from daes.training.processes.scores import exchange_scores, in_finite_batches
from daes.training.processes.tables import DividedState
from daes.training.step import TrainingStep, counts_as_known, random_state, set_random_state
from daes.training.trainer import StreamTrainer, TrainResult, as_warning

_GROWTH = 50
"""While the stream is short, scores are exchanged whenever it has grown by 1/50."""


@dataclass(frozen=True)
class _Unexchanged:
    """A batch that a step was taken on, since the last exchange."""

    batch: Batch
    logits: NDArray[np.float32]
    """Those of this process's part of it."""
    learned: bool
    observed: bool


class ProcessTrainer(StreamTrainer):
    """Trains one model in several processes, each of which takes its part of every batch, see `part_of`.

    A step equals that of one process with the whole batch: gradients are the mean over all its rows. Statistics that
    are counted rather than learned (distributions, vocabularies, evidence), metrics, callbacks and records need the
    whole stream and its scores. So the processes exchange the scores of their parts, after every
    `TrainConfig.sync_every` rows, or whenever the stream has grown by 1/50 if that is less, and after every step that
    is no longer than the half-life of recent errors, which would be too old later. All rows are then processed once,
    in the order of the stream: statistics are, bit for bit, those of one process that has read the same rows.
    Every exchange checks that they are equal in all processes. In between, rows are encoded and scored with the
    statistics of the last exchange. With an exchange after every step (`sync_every=1`) the result differs from that of
    one process only by the rounding of gradients.

    Only the first process has metrics; the others get them at the end. Processes that share memory have one copy of the
    parameters and of the statistics: each changes its share of the parameters and looks up its share of the exchanged
    rows, and all but the first update the statistics of some columns.

    Checkpoints are written after an exchange, when all processes have the same state and position, so that any number
    of processes can continue from them, also a single one.

    The model's table may be divided (`DividedEmbedding`): each process then has a part of its rows and of their Adagrad
    sums. Steps and checkpoints equal those with a whole table; training waits until a checkpoint is written.

    Args:
        model: the model, with the same parameters in all processes.
        config: how to train; `batch_size` is that of all processes together.
        processes: the processes.
        arguments: further arguments of `StreamTrainer`. Callbacks are called after every exchange with the rows of all
            processes; give them, `extra` and the store to the first process only.
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
        self.seed = config.seed + (processes.rank << 32)  # each draws its own dropout
        self._divided = None if divided is None else DividedState(self.step, divided, processes)
        self.exchanges = 0
        """How often this process has exchanged scores."""
        self._unexchanged: list[_Unexchanged] = []
        self._exchanged_at = 0
        self._asked_to_stop: int | None = None
        self._random: list[dict[str, torch.Tensor]] = []
        self._shared = set[int]()  # addresses of tensors in shared memory

    def _make_step(self) -> TrainingStep:
        self._gradients = GradientExchange(self.model, self.processes)
        return TrainingStep(self.model, self.config, self._gradients)

    def run(self, source: Source, *, resume: bool = True, save_first: bool = False, wait: bool = True) -> TrainResult:
        """As `StreamTrainer.run`, called in all processes; the source has all rows in each of them."""
        self._exchanged_at = int(source.position()["row"])
        if resume and not self.rows:
            self.restore(source)
        memory = self.processes.memory if self.model.device.type == "cpu" else None
        with nullcontext() if memory is None else self._sharing(memory):
            return super().run(source, resume=False, save_first=save_first, wait=wait)

    @contextmanager
    def _sharing(self, memory: SharedMemory) -> Iterator[None]:
        """Within it, tensors that the processes of one machine update together are in memory that they share."""
        check_equal(self.processes.gather(model_checksum(self.model)), int(self._position["row"]))
        watching = any(self.processes.gather(bool(self.extra)))
        try:
            shared = self._divide(watching=watching)
            with self.processes.communicating():
                memory.share(shared)
            self._shared = {one.data_ptr() for one in shared}
            yield
        except BaseException:
            memory.leave()
            raise
        finally:
            memory.unshare()
            self._shared = set()
            self._gradients.unite()
            self.model.evidence.divide(None)
            if self.model.distributions is not None:
                self.model.distributions.divide(0, 1)

    def _divide(self, *, watching: bool) -> list[torch.Tensor]:
        """Divide learning and counting among the processes; the tensors that all of them write."""
        processes = self.processes
        columns, features = statistics_of(processes.rank, processes.count, watching=watching)
        division = Division(
            processes.rank, processes.count, columns, processes.barrier, processes.send_buffer, processes.gather_rows
        )
        shared = self.model.evidence.divide(division if counts_as_known(self.model) else None)
        if self.model.distributions is not None:
            shared += self.model.distributions.divide(*features)
        _, tables = self.model.parameter_groups()
        (optimizer, *more) = self.step.optimizers.parts
        if tables and self._divided is None and isinstance(optimizer, Adagrad) and not more:
            shared += self._gradients.divide(optimizer)
        return shared

    def stop(self, number: int) -> None:
        """End `run` in all processes after the next exchange, with a checkpoint."""
        self._asked_to_stop = number

    def _advance(self, row: int, batch: Batch) -> None:
        """Take part in a step, even without rows of its own."""
        own = self.step.prepare(batch[slice(*part_of(0, len(batch), self.processes.rank, self.processes.count))])
        bad, logits = len(self.bad_batches), np.empty(0, np.float32)
        first = self.step.observing and not self.step.has_observed
        self._fetch(own)
        if len(own):
            logits = self.step.score(own) if first else self.step.score_and_learn(own, row)
        if first:  # observed before its step, by all, as in one process
            self.processes.barrier()  # all have scored before any statistics change
            self._observe(self.step.prepare(batch))
            self.processes.barrier()
            self._fetch(own)  # a vocabulary has other rows for them now
        if first or not len(own):
            self.step.learn(own, row)
        self._unexchanged.append(_Unexchanged(batch, logits, learned=len(self.bad_batches) == bad, observed=first))
        self._set_waiting()
        if first or int(self._position["row"]) - self._exchanged_at >= self._most_unexchanged:
            self._exchange()

    @property
    def _most_unexchanged(self) -> float:
        """Number of rows after which scores are exchanged."""
        recent = self.model.evidence.recent
        if recent is not None and self.config.batch_size <= recent.half_life:
            return 0
        return min(self.config.sync_every, self._exchanged_at / _GROWTH)

    def _fetch(self, own: DeviceBatch) -> None:
        """Fetch the rows of a divided table that this batch looks up; called in all processes, also without rows."""
        if self._divided is not None:
            with self.processes.communicating():
                self._divided.table.fetch(own.categorical)

    def _save_if_due(self, new: int) -> None:
        if self._divided is None:
            super()._save_if_due(new)
        elif self.processes.gather(self._save_is_due(new))[0]:
            with as_warning():
                self.save()

    def save(self, *, wait: bool = True) -> None:
        """As `StreamTrainer.save`; with a divided table, called in all processes, which always wait."""
        if self._divided is None:
            super().save(wait=wait)
        elif self.processes.first:
            with self._divided.asking():
                super().save()
        else:
            self._divided.answer()

    def _finish(self) -> None:
        self._exchange()
        self.processes.gather_numbers("end", int(self._position["row"]))
        own = (self.metrics.state_dict(), self.history, self.seconds) if self.processes.first else None
        metrics, self.history, self.seconds = self.processes.gather(own)[0]
        self.metrics.load_state_dict(metrics)

    def _record_is_due(self, new: int) -> bool:
        return self.processes.first and super()._record_is_due(new)

    def _exchange(self) -> None:
        """Exchange the scores since the last exchange; update statistics and metrics with the rows of all processes."""
        if not self._unexchanged:
            return
        lengths = [len(one.batch) for one in self._unexchanged]
        rows = Batch.concat([one.batch for one in self._unexchanged])
        self._agree(rows)
        scores, steps = [one.logits for one in self._unexchanged], [one.learned for one in self._unexchanged]
        told = exchange_scores(self.processes, scores, steps, lengths, random_state(self.model.device))
        self._random = told.random
        self._take_in(rows, told.logits, np.repeat(told.learned, lengths))
        metrics = self._evaluate_all(rows, told.logits, lengths) if self.processes.first else None
        self.processes.barrier()
        self.batches += len(lengths) - 1
        self._unexchanged = []
        self._set_waiting()
        self._exchanged_at = int(self._position["row"])
        self.exchanges += 1
        self._count(rows, told.logits, metrics)
        self._save_if_due(len(rows))
        self._stop_if_asked()

    def _take_in(self, rows: Batch, logits: NDArray[np.float32], learned: NDArray[np.bool_]) -> None:
        """Update distributions, vocabularies and evidence with the rows that were learned from."""
        if not learned.all():
            rows, logits = rows[learned], logits[learned]
        first = self._unexchanged[0].observed  # the first batch is exchanged alone
        observes = self.step.observing and not first
        table = self.model.categorical
        # Counting begins with a wait for all, so that it comes first; but a vocabulary has other rows afterwards.
        later = self.model.evidence.division is not None and (table is None or table.vocabulary is None)
        with self.model.lock:
            prepared = self.step.prepare(rows)
            if observes and not later:
                self._observe(prepared)
            self._count_in_evidence(prepared, None if first else torch.from_numpy(logits).to(self.model.device))
            if observes and later:
                self._observe(prepared)

    def _evaluate_all(
        self, rows: Batch, logits: NDArray[np.float32], lengths: Sequence[int]
    ) -> dict[str, float] | None:
        """Add the rows to the metrics, in the first process while the others count; these, if a record is due."""
        if rows.label is None:
            return None
        usable = in_finite_batches(logits, lengths)  # as in one process, others are not evaluated
        weight = None if rows.weight is None else rows.weight[usable]
        self.metrics.update(logits[usable], rows.label[usable], weight)
        return self.metrics.compute() if self._record_is_due(len(rows)) else None

    def _set_waiting(self) -> None:
        """Let recent errors age by the rows that were learned from but not yet exchanged."""
        if self.model.evidence.recent is not None:
            self.model.evidence.recent.waiting = sum(len(one.batch) for one in self._unexchanged if one.learned)

    def _agree(self, rows: Batch) -> None:
        """Raise unless all processes have read the same rows and have the same model; learn whether one is to stop."""
        checksum = model_checksum(self.model, self.exchanges, self._shared)
        stop = -1 if self._asked_to_stop is None else self._asked_to_stop
        row, of_all = int(self._position["row"]), crc32(repr(checksum).encode())
        everyone = self.processes.gather_numbers("exchange", row, of_all, stop, rows_checksum(rows))
        for number, other in enumerate(everyone[:, 2]):
            if other != everyone[0, 2]:
                raise ProcessesDisagreeError(
                    f"processes 0 and {number} do not read the same data: they have other rows before row {row:,}"
                )
        if (everyone[:, 0] != of_all).any():
            check_equal(self.processes.gather(checksum), row)
        self._stop_signal = next((int(one) for one in everyone[:, 1] if one >= 0), None)

    def _count_in_evidence(self, rows: DeviceBatch, logits: torch.Tensor | None) -> None:
        """Count labelled rows, which processes that share memory do together."""
        division = self.model.evidence.division
        if division is None:
            self.model.count(rows, logits=logits)
        elif rows.label is not None and len(rows):
            own = slice(*division.part_of(len(rows)))
            places = self.model.rows(rows.categorical[own])
            scores = None if logits is None else logits[own]
            self.model.evidence.update_together(rows.numerical[own], places, rows.label, scores)

    def _observe(self, rows: DeviceBatch) -> None:
        with self.model.lock:
            if not self.model.training:
                self.model.train()
            self.step.observe(rows)

    def state_dict(self) -> dict[str, Any]:
        """The state of one process, and the random states of all.

        Rows of a divided table are fetched from the other processes while it is written, see `save`.
        """
        state = super().state_dict()
        step = state["step"] if self._divided is None else self._divided.whole(state["step"])
        return {**state, "step": step, "random_of_processes": self._random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of any number of processes; bit for bit if the number is the same."""
        super().load_state_dict(self._with_own_rows(state))
        self._measure()  # rows that a single process had scored
        self._exchanged_at = int(self._position["row"])
        found = state.get("random_of_processes", [state["random"]])
        if len(found) == self.processes.count:
            self._random = list(found)  # a run that has no more rows saves them again
            set_random_state(found[self.processes.rank], self.model.device)
        else:
            torch.manual_seed(self.seed + self.rows)

    def start_from(self, state: Mapping[str, Any]) -> None:
        """As `StreamTrainer.start_from`, from the state of any number of processes."""
        super().start_from(self._with_own_rows(state))

    def _with_own_rows(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return state if self._divided is None else {**state, "step": self._divided.own(state["step"])}


def statistics_of(rank: int, count: int, *, watching: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """The share of process `rank` of `count` in the columns of the evidence, and in the features that are followed.

    A share (r, n) has numbers r, r + n, …; it is empty if r is n. The first process computes metrics. Of two it also
    follows all features, unless it watches the stream for a report; the others do the rest.

    >>> statistics_of(0, 2, watching=False), statistics_of(1, 2, watching=False)
    (((1, 1), (0, 1)), ((0, 1), (1, 1)))
    >>> statistics_of(0, 3, watching=False), statistics_of(2, 3, watching=False)
    (((2, 2), (2, 2)), ((1, 2), (1, 2)))
    """
    columns = (rank - 1) % count, count - 1
    return columns, columns if watching or count > 2 else (rank, 1)
