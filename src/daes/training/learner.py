"""One step: score a batch, learn from a batch, and what happens to a batch that cannot be learned from."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.training.config import TrainConfig
from daes.training.graphs import StepGraphs, on_cuda
from daes.training.optimizer import make_optimizers

MOST_BAD_IN_A_ROW = 20
"""So many bad batches one after the other end a run even where bad batches are skipped."""


class TrainingError(RuntimeError):
    """Training cannot go on."""


@dataclass(frozen=True)
class BadBatch:
    """A batch that was not learned from."""

    row: int
    """The stream's row that the batch starts at."""
    reason: str


class Learner:
    """A model, its optimisers, and the policy on bad batches.

    Args:
        model: what learns.
        config: how.

    >>> from daes.simulation import AdStream
    >>> stream = AdStream(num_rows=500, seed=0)
    >>> learner = Learner(CTRModel(stream.schema, "fe", "fnn", sizes=100), TrainConfig())
    >>> batch = next(stream.iter_batches(stream.schema, 500))
    >>> learner.score(batch).shape, learner.learn(batch, row=0)
    ((500,), True)
    """

    def __init__(self, model: CTRModel, config: TrainConfig) -> None:
        self.model = model
        self.config = config
        self.optimizers = make_optimizers(model, config.optimizer, config.learning_rate)
        self.bad_batches: list[BadBatch] = []
        self.observing = True
        """Whether what is learned from also enters the estimates of distributions and the vocabularies."""
        self._bad_in_a_row = 0
        self.loss = nan
        """Mean cross-entropy of the batch that was last tried, before its step."""
        self._kept: list[Tensor] = []
        self._graphs = StepGraphs(model, self._forward, self._clip) if _can_record(model, config) else None

    @torch.no_grad()
    def score(self, batch: Batch) -> NDArray[np.float32]:
        """Logits (B,) in eval mode; nothing of the model changes."""
        self.model.eval()
        tensors, graphs = self.model.tensors(batch), self._recorder(batch)
        logits = None if graphs is None else graphs.score(*tensors)
        scores: NDArray[np.float32] = (self._forward(*tensors) if logits is None else logits).cpu().numpy()
        return scores

    def learn(self, batch: Batch, row: int) -> bool:
        """Take a step on the batch, which starts at that row of the stream; whether it could be learned from."""
        self.model.train()
        self._kept = [buffer.clone() for buffer in self._statistics()] if self.config.bad_batch == "skip" else []
        tensors = self.model.tensors(batch)
        if self.observing:
            self.model.observe(*tensors)
        with self.model.without_observing():
            found = self._replayed(tensors, batch)
            # Loss and norm are read together, so that an accelerator is waited for once.
            self.loss, norm = (self._differentiate(tensors, batch) if found is None else found).tolist()
        if not isfinite(self.loss):
            return self.refuse(row, f"the loss is {self.loss}")
        if not isfinite(norm) or (self.config.max_norm is not None and norm > self.config.max_norm):
            return self.refuse(row, f"the gradient's norm is {norm:.6g}")
        self.optimizers.step()
        self._kept = []
        self._bad_in_a_row = 0
        return True

    def _differentiate(self, tensors: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        """Leave the gradients of the mean cross-entropy; the loss and the gradients' norm."""
        self.optimizers.zero_grad()
        # λ‖Θ‖² is in the optimiser's weight decay, which adds its gradient without the sum over all parameters.
        loss = self.model.cross_entropy(self._forward(*tensors), batch)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        return torch.stack([loss.detach(), self._clip().to(loss)])

    def _replayed(self, tensors: tuple[Tensor, Tensor], batch: Batch) -> Tensor | None:
        """The same by a recorded step; None if there is none."""
        graphs = self._recorder(batch)
        if graphs is None or batch.label is None:
            return None
        label = torch.from_numpy(batch.label).to(self.model.device, non_blocking=True)
        weight = None if batch.weight is None else torch.from_numpy(batch.weight).to(label)
        return graphs.learn(*tensors, label, weight)

    def _recorder(self, batch: Batch) -> StepGraphs | None:
        """What records steps; batches that are not full are too rare to be worth it."""
        return self._graphs if len(batch) == self.config.batch_size else None

    def refuse(self, row: int, reason: str) -> bool:
        """Report a bad batch; ends the run where the policy says so, or where too many come in a row."""
        self.optimizers.zero_grad()
        # BatchNorm has seen the batch by now, and a NaN would stay in its running statistics for ever.
        for kept, buffer in zip(self._kept, self._statistics() if self._kept else (), strict=True):
            buffer.copy_(kept)
        self._kept = []
        self.bad_batches.append(BadBatch(row, reason))
        self._bad_in_a_row += 1
        if self.config.bad_batch == "stop":
            raise TrainingError(f"the batch at row {row} cannot be learned from: {reason}")
        if self._bad_in_a_row > MOST_BAD_IN_A_ROW:
            raise TrainingError(f"{self._bad_in_a_row} bad batches in a row, the last at row {row}: {reason}")
        return False

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, as tensors and plain values; the model's tensors are shared."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizers": self.optimizers.state_dict(),
            "bad_batches": [[bad.row, bad.reason] for bad in self.bad_batches],
            "bad_in_a_row": self._bad_in_a_row,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that a learner of the same model and configuration saved."""
        self.model.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        self.bad_batches = [BadBatch(row, reason) for row, reason in state["bad_batches"]]
        self._bad_in_a_row = state["bad_in_a_row"]

    def _statistics(self) -> list[Tensor]:
        """What a batch changes even where no step is taken: the running statistics of BatchNorm."""
        return [buffer for buffer in self.model.backbone.buffers() if buffer.is_floating_point()]

    def _clip(self) -> Tensor:
        """The norm of all gradients together, which are scaled down where it is too large."""
        gradients = [_gradient(parameter) for parameter in self.model.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.config.clip_norm is not None:
            factor = (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor.to(gradient.device))
        return norm

    def _forward(self, numerical: Tensor, categorical: Tensor) -> Tensor:
        """Logits in float32, computed in the precision that the configuration asks for."""
        with self._precision():
            logits: Tensor = self.model(numerical, categorical)
        return logits.float()

    def _precision(self) -> AbstractContextManager[Any]:
        if not self.config.amp:
            return nullcontext()
        # A recorded step must not depend on weights that were cast outside of it.
        return torch.autocast(
            self.model.device.type, dtype=torch.bfloat16, cache_enabled=self._graphs is None or self._graphs.given_up
        )


def _can_record(model: CTRModel, config: TrainConfig) -> bool:
    """Whether steps may be recorded: with the loss as it is, and where nothing has to wait for the device."""
    table = model.categorical
    waits = table is not None and (table.sparse or table.strict)
    own_loss = model.cross_entropy is not CTRModel.cross_entropy
    return config.cuda_graphs and on_cuda(model) and not (waits or own_loss)


def _gradient(parameter: Tensor) -> Tensor:
    """The numbers of a parameter's gradient, to read and to scale; of a sparse one, those of the rows it has."""
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return parameter.grad
    # A row that was looked up twice has two entries until they are added up, which the optimiser would do anyway.
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad._values()
