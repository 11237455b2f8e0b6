"""Steps recorded once and replayed.

A step on a small batch is some hundred small kernels: on a CUDA device launching them takes far longer than running
them. A CUDA graph launches them all at once.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from daes.model import CTRModel, mean_cross_entropy

_WARM_UPS = 2
_MOST_RECORDINGS = 20
"""A model that has to be recorded more often is not worth it."""


@dataclass(frozen=True)
class _Recording:
    """A step as a graph: where it reads its inputs, what it computes, and the gradients it leaves."""

    inputs: tuple[Tensor, ...]
    graph: torch.cuda.CUDAGraph
    output: Tensor
    gradients: list[tuple[nn.Parameter, Tensor]]

    def replay(self, inputs: tuple[Tensor, ...]) -> Tensor:
        for place, tensor in zip(self.inputs, inputs, strict=True):
            place.copy_(tensor, non_blocking=True)
        self.graph.replay()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        return self.output


class StepGraphs:
    """Scoring and learning as CUDA graphs, one for each shape of inputs.

    What is recorded is the pure part of a step: logits, loss, gradients, their norm. Observing comes before it and the
    optimiser after it, both as usual; what they change they change in place, where the graph reads it. Should a tensor
    of the model move all the same, or be frozen, steps are recorded anew. A step that cannot be recorded, because
    something in it has to wait for the device or has hooks, is taken as usual.

    What a graph does not see is Python: an option that is changed by hand after recording (a dropout rate, say) has no
    effect. Recording itself leaves no trace: buffers and random numbers are set back afterwards.

    Args:
        model: what learns.
        forward: (numerical, categorical) → logits in float32.
        clip: scales gradients as configured; their norm.
    """

    def __init__(
        self, model: CTRModel, forward: Callable[[Tensor, Tensor], Tensor], clip: Callable[[], Tensor]
    ) -> None:
        self.model = model
        self.given_up = False
        """Whether a recording failed: then all steps are taken as usual from there on."""
        self._forward, self._clip = forward, clip
        self._recordings: dict[Any, _Recording] = {}
        self._tensors: list[Any] = []
        self._recorded = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recordings": {}}  # a graph can be neither copied nor saved

    def score(self, numerical: Tensor, categorical: Tensor) -> Tensor | None:
        """Logits (B,), overwritten by the next call; None if the step cannot be recorded."""
        return self._replay("score", self._logits, (numerical, categorical))

    def learn(self, numerical: Tensor, categorical: Tensor, label: Tensor, weight: Tensor | None) -> Tensor | None:
        """Leave the gradients; loss and norm (2,), overwritten by the next call. None if it cannot be recorded."""
        inputs = (numerical, categorical, label) if weight is None else (numerical, categorical, label, weight)
        return self._replay("learn", self._differentiate, inputs)

    def _replay(self, name: str, step: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Tensor | None:
        if self.given_up or not on_cuda(self.model) or _has_hooks(self.model):
            return None
        tensors = _tensors(self.model)
        if tensors != self._tensors:
            self._recordings, self._tensors = {}, tensors
        key = (name, *((tensor.shape, tensor.dtype) for tensor in inputs))
        if key not in self._recordings:
            try:
                self._recordings[key] = self._record(step, inputs)
            except RuntimeError as error:
                self.given_up, self._recordings = True, {}
                warnings.warn(f"steps are not recorded as CUDA graphs: {error}", RuntimeWarning, stacklevel=3)
                return None
        return self._recordings[key].replay(inputs)

    def _record(self, step: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> _Recording:
        self._recorded += 1
        if self._recorded > _MOST_RECORDINGS:
            raise RuntimeError(f"they would have to be recorded more than {_MOST_RECORDINGS} times")
        with torch.inference_mode(False):
            places = tuple(tensor.clone() for tensor in inputs)
        with _setting_back(self.model):
            graph, output = self._capture(lambda: step(*places))
        learns = step == self._differentiate
        gradients = [(p, p.grad) for p in self.model.parameters() if learns and p.grad is not None]
        return _Recording(places, graph, output, gradients)

    def _capture(self, step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        device = self.model.device
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream(device)
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                step()
            # A capture that fails leaves much behind, so what would make it fail is looked for first.
            with _refusing_to_wait():
                step()
        before.wait_stream(stream)
        try:
            # Other threads may go on using the device meanwhile.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                output = step()
        except RuntimeError:
            torch.cuda.set_stream(before)
            raise
        return graph, output

    @torch.no_grad()
    def _logits(self, numerical: Tensor, categorical: Tensor) -> Tensor:
        return self._forward(numerical, categorical)

    def _differentiate(
        self, numerical: Tensor, categorical: Tensor, label: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        # Gradients that are not there yet are written by the graph, not added to.
        self.model.zero_grad(set_to_none=True)
        loss = mean_cross_entropy(self._forward(numerical, categorical), label, weight)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        return torch.stack([loss.detach(), self._clip().to(loss)])


def on_cuda(model: CTRModel) -> bool:
    """Whether the model is where steps can be recorded."""
    return model.device.type == "cuda"


def _tensors(model: CTRModel) -> list[Any]:
    """Where the tensors are that a recorded step reads, and which of them learn."""
    parameters = [(parameter.data_ptr(), parameter.requires_grad) for parameter in model.parameters()]
    return [parameters, [buffer.data_ptr() for buffer in model.buffers()]]


def _has_hooks(model: nn.Module) -> bool:
    return any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        for module in model.modules()
    )


@contextmanager
def _setting_back(model: CTRModel) -> Iterator[None]:
    """Buffers and random numbers as they were, also after a failure."""
    device = model.device
    buffers = list(model.buffers())
    before = [buffer.clone() for buffer in buffers]
    generator = torch.cuda.default_generators[device.index or 0]
    state, random = generator.clone_state(), torch.cuda.get_rng_state(device)
    try:
        yield
    except RuntimeError:
        # A generator that was part of a failed capture goes on believing in it; this one was not.
        generator.graphsafe_set_state(state)
        raise
    finally:
        torch.cuda.synchronize(device)
        with torch.no_grad():
            for buffer, old in zip(buffers, before, strict=True):
                buffer.copy_(old)
        torch.cuda.set_rng_state(random, device)


@contextmanager
def _refusing_to_wait() -> Iterator[None]:
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
