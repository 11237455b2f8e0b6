"""Functions recorded once as CUDA graphs and replayed.

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

from daes.embedding.distributions import FeatureDistributions
from daes.evidence.sample import RowSample
from daes.model import CTRModel

_WARM_UPS = 2
_MAX_RECORDINGS = 40
"""A model that has to be recorded more often is trained without recordings."""


@dataclass(frozen=True)
class Recording:
    """A function as a graph: where it reads its inputs, what it computes, and the gradients it writes."""

    inputs: tuple[Tensor, ...]
    graph: torch.cuda.CUDAGraph
    output: Tensor
    gradients: list[tuple[nn.Parameter, Tensor]]

    def replay(self, inputs: tuple[Tensor, ...]) -> Tensor:
        for place, tensor in zip(self.inputs, inputs, strict=True):
            if place is not tensor:
                place.copy_(tensor, non_blocking=True)
        self.graph.replay()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        return self.output


class GraphRecorder:
    """Calls functions of a model, from recordings where possible: one recording per function and input shapes.

    A function takes tensors, returns a tensor and may write gradients; both are overwritten by the next call. Anything
    else it may change only in place and on the device, and only buffers of the model or tensors named in the call.
    Functions are recorded again after a tensor of the model was reallocated or frozen. Full batches are recorded,
    shorter ones being rare. A function that cannot be recorded, because it waits for the device or has hooks, is simply
    called.

    A recording does not run Python: an option that is changed after recording (a dropout rate, say) has no effect.
    Whatever recording itself changes, random numbers included, is restored.

    Args:
        model: the model whose parameters and buffers the functions read.
        batch_size: rows of a full batch.
    """

    def __init__(self, model: CTRModel, batch_size: int) -> None:
        self.model = model
        self.batch_size = batch_size
        self.failed = False
        """Whether a recording failed: from then on functions are simply called."""
        self.last: Recording | None = None
        """The recording that wrote the present gradients; None if they were not written by one."""
        self._recordings: dict[Any, Recording] = {}
        self._places: dict[Any, Tensor] = {}
        self._addresses: list[Any] = []
        self._recorded = 0

    def __getstate__(self) -> dict[str, Any]:
        # A graph can be neither copied nor saved.
        return {**self.__dict__, "_recordings": {}, "_places": {}, "last": None}

    def _may_record(self, inputs: tuple[Tensor, ...]) -> bool:
        full = len(inputs[0]) == self.batch_size
        return full and not self.failed and on_cuda(self.model) and not _has_hooks(self.model)

    def place(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Copy the inputs of a recorded function to where recordings read them: calls with the copies copy nothing."""
        if not self._may_record(inputs):
            return inputs
        placed = []
        for number, tensor in enumerate(inputs):
            key = number, tensor.shape, tensor.dtype
            if key not in self._places:
                with torch.inference_mode(False):
                    self._places[key] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            placed.append(self._places[key].copy_(tensor, non_blocking=True))
        return tuple(placed)

    def __call__(
        self,
        function: Callable[..., Tensor],
        *inputs: Tensor,
        key: tuple[Any, ...] = (),
        changes: Callable[[], list[Tensor]] = list,
    ) -> Tensor:
        """`function(*inputs)`.

        Args:
            function: a function with a name.
            inputs: the tensors it takes, as returned by `place`.
            key: what a recording depends on besides the function and the shapes of its inputs.
            changes: the tensors that the function changes besides the buffers of the model.
        """
        if not self._may_record(inputs):
            self.last = None
            return function(*inputs)
        addresses = _addresses(self.model)
        if addresses != self._addresses:
            self._recordings, self._addresses = {}, addresses
        key = (function.__name__, *key, *((tensor.shape, tensor.dtype) for tensor in inputs))
        if key not in self._recordings:
            try:
                self._recordings[key] = self._record(function, inputs, changes())
            except RuntimeError as error:
                self.failed, self._recordings, self.last = True, {}, None
                warnings.warn(f"steps are not recorded as CUDA graphs: {error}", RuntimeWarning, stacklevel=3)
                return function(*inputs)
        recording = self._recordings[key]
        if recording.gradients:
            self.last = recording
        return recording.replay(inputs)

    def _record(self, function: Callable[..., Tensor], inputs: tuple[Tensor, ...], changes: list[Tensor]) -> Recording:
        self._recorded += 1
        if self._recorded > _MAX_RECORDINGS:
            raise RuntimeError(f"they would have to be recorded more than {_MAX_RECORDINGS} times")
        places = self.place(*inputs)
        before = [(parameter, parameter.grad) for parameter in self.model.parameters()]
        with _restoring(self.model, changes):
            graph, output = self._capture(lambda: function(*places))
        gradients = [(p, p.grad) for p, old in before if p.grad is not None and p.grad is not old]
        return Recording(places, graph, output, gradients)

    def _capture(self, function: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        device = self.model.device
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream(device)
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                function()
            # A failed capture is hard to clean up after, so the usual cause of failure is looked for first.
            with _forbidding_synchronization():
                function()
        before.wait_stream(stream)
        try:
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                output = function()
        except RuntimeError:
            torch.cuda.set_stream(before)
            raise
        return graph, output


def on_cuda(model: CTRModel) -> bool:
    """Whether the model is on a device that can record."""
    return model.device.type == "cuda"


def _modules(model: nn.Module) -> Iterator[nn.Module]:
    """All modules, as `nn.Module.modules` but without names, which take most of its time."""
    found = [model]
    while found:
        module = found.pop()
        yield module
        found += [child for child in module._modules.values() if child is not None]


def _addresses(model: nn.Module) -> list[Any]:
    """The addresses of all tensors that a recording reads, and which of them have gradients."""
    tensors: list[Tensor] = []
    for module in _modules(model):
        tensors += [tensor for tensor in module._parameters.values() if tensor is not None]
        tensors += [tensor for tensor in module._buffers.values() if tensor is not None]
        if isinstance(module, FeatureDistributions | RowSample):
            tensors += module.recorded()
    return [(tensor.data_ptr(), tensor.requires_grad) for tensor in tensors]


def _has_hooks(model: nn.Module) -> bool:
    return any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        for module in _modules(model)
    )


@contextmanager
def _restoring(model: CTRModel, changes: list[Tensor]) -> Iterator[None]:
    """Restore buffers, the given tensors and the random state afterwards, also after a failure."""
    device = model.device
    buffers = [*model.buffers(), *changes]
    before = [buffer.clone() for buffer in buffers]
    generator = torch.cuda.default_generators[device.index or 0]
    state, random = generator.clone_state(), torch.cuda.get_rng_state(device)
    try:
        yield
    except RuntimeError:
        # A generator that took part in a failed capture stays in capture mode; its clone did not take part.
        generator.graphsafe_set_state(state)
        raise
    finally:
        torch.cuda.synchronize(device)
        with torch.no_grad():
            for buffer, old in zip(buffers, before, strict=True):
                buffer.copy_(old)
        torch.cuda.set_rng_state(random, device)


@contextmanager
def _forbidding_synchronization() -> Iterator[None]:
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
