"""One training step: score a batch, learn from it, and handle batches that cannot be learned from."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import hypot, isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from daes import native
from daes.backbone import Backbone
from daes.embedding.processes import refuse_several_processes
from daes.evidence import EvidenceInputs
from daes.model import CTRModel, DeviceBatch
from daes.model.whole import WholeModel
from daes.native.threads import MANY_ROWS, submit, wait
from daes.stream.batch import Batch
from daes.training.ahead import Plan, plan, take_in
from daes.training.config import TrainConfig
from daes.training.graphs import GraphRecorder, on_cuda
from daes.training.optimizer import coalesced, make_optimizers

if TYPE_CHECKING:
    from daes.training.processes.gradients import GradientExchange

_log = logging.getLogger("daes.training")

MAX_CONSECUTIVE_BAD = 20
"""More consecutive bad batches end a run even where bad batches are skipped."""


class TrainingError(RuntimeError):
    """Training cannot continue."""


@dataclass(frozen=True)
class BadBatch:
    """A batch that was not learned from."""

    row: int
    """The row of the stream at which the batch starts."""
    reason: str


class TrainingStep:
    """A model, its optimisers, and the policy on bad batches: the step that every kind of training takes.

    `prepare` moves a batch to the model's device; `score`, `learn` and `score_and_learn` take either the result or a
    `Batch`, which they prepare themselves. On a CUDA device, steps on full batches are replayed from a recording
    (`daes.training.graphs`).

    A step is: forward, backward, optimiser; then distributions and vocabularies observe the batch and the evidence
    counts its labels. So a batch is scored and learned from with the statistics of the rows before it, and one forward
    serves both. Only the very first batch is observed before its step.

    Args:
        model: the model to train.
        config: batch size, optimiser, precision, policy on bad batches.
        exchange: averages the gradients of several processes that train one model. A step then neither observes nor
            counts: the caller gives the rows of all processes to `observe` and to `CTRModel.count`.

    >>> from daes.simulation import AdStream
    >>> stream = AdStream(num_rows=500, seed=0)
    >>> step = TrainingStep(CTRModel(stream.schema, "fe", "fnn", sizes=100), TrainConfig())
    >>> batch = step.prepare(next(stream.iter_batches(stream.schema, 500)))
    >>> step.score(batch).shape, step.learn(batch, row=0)
    ((500,), True)
    """

    def __init__(self, model: CTRModel, config: TrainConfig, exchange: "GradientExchange | None" = None) -> None:
        if exchange is None:
            refuse_several_processes("the models", "train them with daes.training.run.train_run, or give an exchange")
        self.exchange = exchange
        self.model = model
        self.config = config
        if _may_be_sparse(model, config):
            model.categorical.sparse = True  # type: ignore[union-attr]
            checks = torch.sparse.check_sparse_tensor_invariants
            if not checks.is_enabled():  # type: ignore[no-untyped-call, unused-ignore]
                # Torch's default, set explicitly, since some versions warn if nobody has.
                checks.disable()  # type: ignore[no-untyped-call, unused-ignore]
        self.optimizers = make_optimizers(model, config)
        self._parameters = list(model.parameters())
        # What a forward pass in `train()` changes in the backbone: running statistics of BatchNorm.
        self._running_statistics = [one for one in model.backbone.buffers() if one.is_floating_point()]
        self.bad_batches: list[BadBatch] = []
        self.observing = True
        """Whether batches that are learned from also update distributions and vocabularies."""
        self.correcting = False
        """Whether the errors of the last rows correct the next scores (`CTRModel.correction`), as in a stream whose
        labels are learned at once."""
        self.loss = nan
        """Mean cross-entropy of the last batch given to `learn`, before its step."""
        self._consecutive_bad = 0
        self.has_observed = False
        """Whether distributions and vocabularies have seen any rows."""
        self._one_forward = _learns_as_it_scores(model)
        self._whole = None if config.amp else WholeModel(model)
        can_record = exchange is None and _can_record(model, config)
        self._recorder = GraphRecorder(model, config.batch_size) if can_record else None

    @property
    def uses_loops(self) -> bool:
        """Whether compiled loops do most of the work of a step, so that further threads of torch help little."""
        return self._whole is not None and self._whole.fits and not self._halves

    @property
    def halves_batches(self) -> bool:
        """Whether the backbone uses two threads of its own where torch has one: two of torch are no faster then."""
        large = self.config.batch_size >= MANY_ROWS and self.model.device.type == "cpu" and not self.config.amp
        return large and self._halves

    @property
    def _halves(self) -> bool:
        backbone = self.model.backbone
        return isinstance(backbone, Backbone) and backbone.halves_batches

    def prepare(self, batch: Batch | DeviceBatch) -> DeviceBatch:
        """The batch's tensors on the model's device; a prepared batch is returned as it is."""
        return batch if isinstance(batch, DeviceBatch) else self.model.prepare(batch)

    def score(self, batch: Batch | DeviceBatch) -> NDArray[np.float32]:
        """Logits (B,) in eval mode; the model does not change."""
        rows = self.prepare(batch)
        with self.model.lock:
            self._set_mode(training=False)
            scores: NDArray[np.float32] = self._call(self._logits, *rows.features).cpu().numpy()
        return scores

    def learn(self, batch: Batch | DeviceBatch, row: int) -> bool:
        """Take a step on the batch, which starts at that row of the stream; False if it cannot be learned from.

        Other threads may call `score` or `CTRModel.predict_proba` meanwhile: they wait for the end of the step.
        """
        rows = self.prepare(batch)
        with self.model.lock:
            _, reason = self._take_step(rows, row)
        return self._close(row, reason)

    def score_and_learn(self, batch: Batch | DeviceBatch, row: int) -> NDArray[np.float32]:
        """`score`, then `learn`, bit for bit; a batch with scores that are not finite is not learned from.

        A model that computes the same in eval and in train mode scores with the forward pass of its step.
        """
        rows = self.prepare(batch)
        if self._one_forward and (self.has_observed or not self.observing):
            with self.model.lock:
                logits, reason = self._take_step(rows, row)
            self._close(row, _not_finite(logits) or reason)
            return logits
        logits = self.score(rows)
        if self.exchange is not None or self.accept(logits, row):  # other processes wait for this one's gradients
            self.learn(rows, row)
        return logits

    def accept(self, logits: NDArray[np.float32], row: int) -> bool:
        """Whether all scores of the batch at that row are finite; otherwise the batch is reported as bad."""
        reason = _not_finite(logits)
        if reason is not None:
            self.skip(row, reason)
        return reason is None

    def _take_step(self, rows: DeviceBatch, row: int) -> tuple[NDArray[np.float32], str | None]:
        """Learn from the rows. Returns their logits before that and, if the model was left unchanged, the reason."""
        inputs = (*rows.features, *rows.targets)
        if self._recorder is not None:
            inputs = self._recorder.place(*inputs)
        # The first rows are observed before their step, since there are no statistics yet.
        first = self.observing and not self.has_observed and self.exchange is None
        if first:
            self.observe(rows)
        self._set_mode(training=True)
        # A batch that is skipped must not change BatchNorm either: a NaN would stay in its running statistics.
        skips = self.config.bad_batch == "skip"
        kept = [(buffer, buffer.clone()) for buffer in self._running_statistics] if skips else []
        # Loss, norm and logits come in one tensor, so that there is one wait for an accelerator.
        if self.exchange is None:
            result = self._call(self._differentiate, *inputs)
        else:
            result = self._differentiate_together(rows, row, self.exchange)
        found = result.cpu().numpy()
        self.loss, norm = float(found[0]), float(found[1])
        reason = None
        if not isfinite(self.loss):
            reason = f"the loss is {self.loss}"
        elif not isfinite(norm) or (self.config.max_norm is not None and norm > self.config.max_norm):
            reason = f"the gradient's norm is {norm:.6g}"
        if reason is None:
            # The first batch was scored without statistics: its errors say nothing about the model.
            noted = None if first else result[2:]
            self._end_step(rows, inputs, noted, observing=self.observing and not first)
        else:
            self.optimizers.zero_grad()
            for buffer, old in kept:
                buffer.copy_(old)
        return found[2:], reason

    def _end_step(
        self, rows: DeviceBatch, inputs: tuple[Tensor, ...], logits: Tensor | None, *, observing: bool
    ) -> None:
        """Apply the gradients; in a single process, distributions then observe the batch and evidence counts it."""
        if self.exchange is not None:
            self.exchange.apply(self.optimizers)
            return
        model, found = self.model, None if self._whole is None else self._whole.found
        done = self._replay_end(inputs, logits, observing) if found is None else None
        in_parallel = done is None and (found is not None or self._counts_independently())
        counting = [submit(len(rows), model.count, rows, logits, found, refit=False)] if in_parallel else []
        try:
            if done is None:
                self.optimizers.step()
            if observing and (done is None or not done.observe):
                self.observe(rows)
        finally:
            wait(counting)
        if in_parallel:
            model.evidence.refit()  # combinations that are chosen anew get new weights, after the optimiser's step
        elif done is None or not done.count:
            model.count(rows, logits, found)

    def _counts_independently(self) -> bool:
        """Whether counting depends on nothing that is learned or observed meanwhile: another thread may do it."""
        model = self.model
        hashed = model.categorical is None or model.categorical.vocabulary is None
        return counts_as_known(model) and hashed and model.device.type == "cpu" and self._recorder is None

    def _replay_end(self, inputs: tuple[Tensor, ...], logits: Tensor | None, observing: bool) -> Plan | None:
        """Replay the optimiser's step and the plan for the batch, from a recording; None if there can be none."""
        recorder = self._recorder
        if recorder is None or recorder.last is None or not self.optimizers.can_record:
            return None
        what = plan(self.model, len(inputs[0]), observing=observing)
        if what is None:
            return None

        def end_step(numerical: Tensor, categorical: Tensor, label: Tensor, logits: Tensor | None = None) -> Tensor:
            with self.optimizers.recording():
                self.optimizers.step()
            take_in(self.model, what, numerical, categorical, label, logits)
            return label

        given = inputs[:3] if logits is None else (*inputs[:3], logits)
        # Gradients lie where the recording that wrote them put them.
        recorder(end_step, *given, key=(what, id(recorder.last)), changes=self.optimizers.changes)
        return what

    def observe(self, rows: DeviceBatch) -> None:
        """Update distributions and vocabularies with rows."""
        self.model.observe(*rows.features)
        self.has_observed = True

    def _set_mode(self, *, training: bool) -> None:
        if self.model.training != training:
            self.model.train(training)

    def _close(self, row: int, reason: str | None) -> bool:
        """Record how a step ended; whether the batch was learned from."""
        if reason is None:
            self._consecutive_bad = 0
            return True
        self.skip(row, reason)
        return False

    def skip(self, row: int, reason: str) -> None:
        """Report a batch that is not learned from.

        Raises:
            TrainingError: if the policy is "stop", or after too many bad batches in a row.
        """
        self.bad_batches.append(BadBatch(row, reason))
        _log.warning("the batch at row %d is not learned from: %s", row, reason)
        self._consecutive_bad += 1
        if self.config.bad_batch == "stop":
            raise TrainingError(f"the batch at row {row} cannot be learned from: {reason}")
        if self._consecutive_bad > MAX_CONSECUTIVE_BAD:
            raise TrainingError(f"{self._consecutive_bad} bad batches in a row, the last at row {row}: {reason}")

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue bit for bit, as tensors and plain values; the model's tensors are shared."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizers": self.optimizers.state_dict(),
            "bad_batches": [[bad.row, bad.reason] for bad in self.bad_batches],
            "consecutive_bad": self._consecutive_bad,
            "has_observed": self.has_observed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that a step of the same model and configuration saved."""
        self._load(state, self.optimizers.load_state_dict)
        self.bad_batches = [BadBatch(row, reason) for row, reason in state["bad_batches"]]
        self._consecutive_bad = state["consecutive_bad"]

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Take model and optimisers from the state of another step; the configuration stays."""
        self._load(state, self.optimizers.start_from)

    def _load(self, state: Mapping[str, Any], load_optimizers: Callable[[Any], None]) -> None:
        with self.model.lock:
            self.model.load_state_dict(state["model"])
        load_optimizers(state["optimizers"])
        self.has_observed = state.get("has_observed", True)

    def _call(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return function(*inputs) if self._recorder is None else self._recorder(function, *inputs)

    @torch.no_grad()
    def _logits(self, numerical: Tensor, categorical: Tensor) -> Tensor:
        found = None if self._whole is None else self._whole.logits(numerical, categorical, correcting=self.correcting)
        return self._forward(numerical, categorical) if found is None else found

    def _differentiate(
        self, numerical: Tensor, categorical: Tensor, label: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Write the gradients of the mean cross-entropy; returns loss, norm of the gradients and logits, (2 + B,)."""
        loss, logits = self._backward(numerical, categorical, label, weight)
        return torch.cat([loss.view(1), self._clip().to(loss).view(1), logits])

    def _differentiate_together(self, rows: DeviceBatch, row: int, exchange: "GradientExchange") -> Tensor:
        """The same over the rows of all processes; this one may have none. The logits are those of its own rows."""
        if len(rows):
            loss, logits = self._backward(*rows.features, *rows.targets)
        else:
            self.optimizers.zero_grad()
            loss, logits = torch.zeros(1, device=self.model.device), torch.zeros(0, device=self.model.device)
        weight = float(len(rows) if rows.weight is None else rows.weight.sum())
        loss = exchange(loss, weight, row, self._running_statistics)
        return torch.cat([loss.view(1), self._clip().to(loss).view(1), logits])

    def _backward(
        self, numerical: Tensor, categorical: Tensor, label: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Write the gradients of the mean cross-entropy; returns the loss and the logits."""
        # Gradients become None, not zero: a recording then writes them instead of adding to them.
        self.optimizers.zero_grad()
        # λ‖Θ‖² is in the optimiser's weight decay, which adds its gradient without the sum over all parameters.
        if self._whole is not None:
            found = self._whole(numerical, categorical, label, weight, correcting=self.correcting)
            if found is not None:
                return found
        with self.model.without_observing():
            logits = self._forward(numerical, categorical)
        loss = self.model.cross_entropy(logits, label, weight)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        return loss.detach(), logits.detach()

    def _forward(self, numerical: Tensor, categorical: Tensor) -> Tensor:
        """Logits in float32, computed in the configured precision."""
        with self._precision():
            logits: Tensor = self.model(numerical, categorical)
        correction = self.model.correction(numerical, categorical) if self.correcting else None
        return logits.float() if correction is None else logits.float() + correction

    def _precision(self) -> AbstractContextManager[Any]:
        if not self.config.amp:
            return nullcontext()
        # A recorded step must not depend on weights that were cast outside of it.
        cached = self._recorder is None or self._recorder.failed
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16, cache_enabled=cached)

    def _clip(self) -> Tensor:
        """Scale all gradients down if their common norm is too large; returns the norm before that."""
        exchange = self.exchange
        if self._whole is not None and exchange is None and self.config.clip_norm is None:
            known = self._whole.norm()
            if known is not None:
                return torch.tensor(known)
        table = None if exchange is None else exchange.shared_table
        gradients = [_values(one) for one in self._parameters if one.grad is not None and one is not table]
        if native.serves(*gradients) and all(one.dtype == torch.float32 for one in gradients):
            norm = torch.tensor(native.norm(gradients))
        else:
            norms = torch._foreach_norm(gradients) if gradients else ()
            norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
        if exchange is not None and exchange.shares:
            norm = torch.tensor(hypot(float(norm), exchange.norm_of_shares))
            gradients += exchange.shares
        if self.config.clip_norm is not None:
            factor = (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor.to(gradient.device))
        return norm


def counts_as_known(model: CTRModel) -> bool:
    """Whether rows are counted by `EvidenceInputs`; a subclass may do anything with them."""
    return type(model).count is CTRModel.count and type(model.evidence) is EvidenceInputs


def _may_be_sparse(model: CTRModel, config: TrainConfig) -> bool:
    """Whether sparse gradients of the tables leave the result the same: Adagrad does not touch rows without a gradient.

    On a CUDA device sparse gradients would make steps wait.
    """
    on_cpu = model.device.type == "cpu"
    return model.categorical is not None and config.optimizer == "adagrad" and not model.l2 and on_cpu


def _learns_as_it_scores(model: CTRModel) -> bool:
    """Whether a forward pass gives the same in eval and in train mode, apart from observing the batch.

    That is not known of modules that are neither PyTorch's nor ours.
    """

    def differs(module: nn.Module) -> bool:
        if isinstance(module, nn.modules.dropout._DropoutNd):
            return module.p > 0
        foreign = type(module).__module__.partition(".")[0] not in ("torch", "daes")
        drops = isinstance(rate := getattr(module, "dropout", None), float) and rate > 0
        return foreign or drops or isinstance(module, nn.modules.batchnorm._NormBase)

    if model.categorical is not None and model.categorical.strict:
        return False  # only scoring refuses unseen ids
    return not any(differs(module) for module in model.modules())


def _not_finite(logits: NDArray[np.float32]) -> str | None:
    """Why logits cannot be used; None if they can."""
    finite = np.isfinite(logits)
    return None if finite.all() else f"{(~finite).sum()} of {len(logits)} scores are not finite"


def _can_record(model: CTRModel, config: TrainConfig) -> bool:
    """Whether steps may be recorded: nothing in them may wait for the device."""
    table = model.categorical
    waits = table is not None and (table.sparse or table.strict)
    return config.cuda_graphs and on_cuda(model) and not waits


def _values(parameter: Tensor) -> Tensor:
    """The entries of a parameter's gradient, to read and to scale; of a sparse gradient, those of its rows."""
    gradient = parameter.grad
    assert gradient is not None
    if not gradient.is_sparse:
        return gradient
    # A row that was looked up twice has two entries until they are summed, which the optimiser would do anyway.
    parameter.grad = coalesced(gradient)
    return parameter.grad._values()


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a step on the device draws from (dropout)."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore a state that `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
