"""Steps recorded once and replayed.

A step on a small batch is some hundred small kernels: on a CUDA device launching them takes far longer than running
them. A CUDA graph launches them all at once.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from daes.model import CTRModel, mean_cross_entropy
from daes.stream.batch import Batch

_SETTLING = 3
"""Steps taken as usual before one is recorded: by then whatever is made at first use is there."""
_WARM_UPS = 2


class StepGraphs:
    """Scoring and learning on batches of one shape as CUDA graphs.

    What is recorded is the pure part of a step: logits, loss, gradients, their norm. Observing comes before it and the
    optimiser after it, both as usual; what they change they change in place, where the graph reads it. Should a tensor
    of the model move all the same, the step is recorded anew. A model that cannot be recorded is given up on with a
    warning and trained as usual.

    Recording itself leaves no trace: running statistics and random numbers are set back afterwards.

    Args:
        model: what learns.
        forward: (numerical, categorical) → logits in float32.
        clip: scales gradients as configured; their norm.
    """

    def __init__(
        self, model: CTRModel, forward: Callable[[Tensor, Tensor], Tensor], clip: Callable[[], Tensor]
    ) -> None:
        self.model = model
        self._forward, self._clip = forward, clip
        self._steps = 0
        self._given_up = False
        self._inputs: _Inputs | None = None
        self._addresses: list[int] = []
        self._score: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        self._learn: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
        self._gradients: list[tuple[nn.Parameter, Tensor]] = []

    def ready(self, batch: Batch) -> bool:
        """Whether `score` or `learn`, by the mode the model is in, can be called with this batch."""
        learning = self.model.training
        if self._given_up or (learning and batch.label is None):
            return False
        if learning:
            self._steps += 1
        if self._steps <= _SETTLING:
            return False
        fits = self._inputs is not None and self._inputs.fits(batch) and self._addresses == _addresses(self.model)
        if not fits or (self._learn if learning else self._score) is None:
            try:
                self._record(batch)
            except RuntimeError as error:
                self._given_up = True
                warnings.warn(f"steps are not recorded as CUDA graphs: {error}", RuntimeWarning, stacklevel=2)
        return not self._given_up

    def score(self, batch: Batch) -> Tensor:
        """Logits (B,); they are overwritten by the next call."""
        assert self._inputs is not None
        assert self._score is not None
        self._inputs.fill(batch)
        graph, logits = self._score
        graph.replay()
        return logits

    def learn(self, batch: Batch, observing: bool) -> Tensor:
        """Observe the batch, if asked to, and leave the gradients; loss and norm (2,)."""
        assert self._inputs is not None
        self._inputs.fill(batch)
        if observing:
            self.model.observe(self._inputs.numerical, self._inputs.categorical)
            if self._addresses != _addresses(self.model):
                self._record(batch)
        assert self._learn is not None
        graph, found = self._learn
        graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return found

    def _record(self, batch: Batch) -> None:
        """Record the step of the mode that the model is in; all of them anew, if anything has moved."""
        if self._inputs is None or not self._inputs.fits(batch) or self._addresses != _addresses(self.model):
            self._inputs, self._addresses = _Inputs(batch, self.model.device), _addresses(self.model)
            self._score = self._learn = None
        self._inputs.fill(batch)
        with _without_observing(self.model):
            if self.model.training:
                self._learn = self._capture(self._differentiate)
                self._gradients = [(p, p.grad) for p in self.model.parameters() if p.grad is not None]
            else:
                self._score = self._capture(self._logits)

    def _capture(self, step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        device = self.model.device
        buffers = list(self.model.backbone.buffers())
        before = [buffer.clone() for buffer in buffers]
        random = torch.cuda.get_rng_state(device)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
        try:
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    step()
            torch.cuda.current_stream(device).wait_stream(stream)
            # Other threads may go on using the device meanwhile.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                found = step()
        finally:
            torch.cuda.synchronize(device)
            for buffer, old in zip(buffers, before, strict=True):
                buffer.copy_(old)
            torch.cuda.set_rng_state(random, device)
        return graph, found

    def _logits(self) -> Tensor:
        assert self._inputs is not None
        with torch.no_grad():
            return self._forward(self._inputs.numerical, self._inputs.categorical)

    def _differentiate(self) -> Tensor:
        inputs = self._inputs
        assert inputs is not None
        assert inputs.label is not None
        self.model.zero_grad(set_to_none=True)
        logits = self._forward(inputs.numerical, inputs.categorical)
        loss = mean_cross_entropy(logits, inputs.label, inputs.weight)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        return torch.stack([loss.detach(), self._clip().to(loss)])


class _Inputs:
    """A batch at a fixed place on the device."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self._names = _present(batch)
        self._tensors = {name: torch.from_numpy(getattr(batch, name)).to(device) for name in self._names}
        self.numerical, self.categorical = self._tensors["numerical"], self._tensors["categorical"]
        self.label, self.weight = self._tensors.get("label"), self._tensors.get("weight")

    def fits(self, batch: Batch) -> bool:
        return self._names == _present(batch) and len(batch) == len(self.numerical)

    def fill(self, batch: Batch) -> None:
        for name, tensor in self._tensors.items():
            tensor.copy_(torch.from_numpy(getattr(batch, name)), non_blocking=True)


def _present(batch: Batch) -> list[str]:
    return [name for name in ("numerical", "categorical", "label", "weight") if getattr(batch, name) is not None]


def _addresses(model: CTRModel) -> list[int]:
    """Where the tensors are that a recorded step reads."""
    return [tensor.data_ptr() for tensors in (model.parameters(), model.buffers()) for tensor in tensors]


@contextmanager
def _without_observing(model: CTRModel) -> Iterator[None]:
    numbers = model.numerical
    vocabulary = None if model.categorical is None else model.categorical.vocabulary
    before = (numbers is not None and numbers.observe_in_forward, vocabulary is not None and vocabulary.training)
    try:
        if numbers is not None:
            numbers.observe_in_forward = False
        if vocabulary is not None:
            vocabulary.train(False)
        yield
    finally:
        if numbers is not None:
            numbers.observe_in_forward = before[0]
        if vocabulary is not None:
            vocabulary.train(before[1])
