"""Optimisers of a model whose tables may have sparse gradients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from daes import native
from daes.embedding import DividedEmbedding
from daes.model import CTRModel
from daes.training.config import TrainConfig


def coalesced(gradient: Tensor) -> Tensor:
    """A sparse gradient with one entry per row; sorts only if needed."""
    if not gradient.is_coalesced() and gradient.device.type == "cpu":
        rows = gradient._indices()[0].numpy()  # autograd does not record that they are sorted
        gradient._coalesced_(bool((rows[1:] > rows[:-1]).all()))
    return gradient.coalesce()


class Adagrad:
    """Adagrad: s ← s + g², θ ← θ − η·g / (√s + ε), for dense gradients and for the rows of sparse ones.

    The same as `torch.optim.Adagrad` in fewer operations, whose number determines the time of a step on a small batch.
    It is not a subclass of `torch.optim.Optimizer`, because the first one in a process takes seconds to load torch's
    compiler.

    Args:
        parameters: what to learn; a parameter without a gradient does not change.
        lr: the step size η.
        weight_decay: λ of the term λθ that is added to dense gradients.
        eps: ε.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float = 0.0, eps: float = 1e-10
    ) -> None:
        self.parameters = list(parameters)
        self.sums = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.param_groups: list[dict[str, Any]] = [
            {"lr": lr, "weight_decay": weight_decay, "eps": eps, "params": self.parameters}
        ]
        self._steps = [torch.ones((), device=parameter.device) for parameter in self.parameters]

    def place(self, parameter: Tensor) -> int:
        """The index of a parameter among `parameters` and `sums`."""
        return next(place for place, one in enumerate(self.parameters) if one is parameter)

    def of(self, parameters: Sequence[nn.Parameter], sums: Sequence[Tensor]) -> "Adagrad":
        """The same of other parameters, with sums of their own: the settings are common to both."""
        found = Adagrad([], 0.0)
        found.parameters, found.sums, found.param_groups = list(parameters), list(sums), self.param_groups
        found._steps = [torch.ones((), device=parameter.device) for parameter in parameters]
        return found

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients."""
        dense: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for parameter, total, step in zip(self.parameters, self.sums, self._steps, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse:
                self._step_rows(parameter, coalesced(gradient), total)
            else:
                dense.append((parameter, gradient, total, step))
        if not dense:
            return
        parameters, gradients, totals, steps = (list(column) for column in zip(*dense, strict=True))
        if parameters[0].device.type == "cpu":
            settings = self._settings()
            torch._fused_adagrad_(parameters, gradients, totals, steps, lr_decay=0.0, maximize=False, **settings)
        else:
            self._step_dense(parameters, gradients, totals)

    def _step_rows(self, parameter: Tensor, gradient: Tensor, total: Tensor) -> None:
        (group,) = self.param_groups
        rows, values = gradient.indices()[0], gradient.values()
        if native.serves(parameter, total, rows, values) and parameter.dtype == torch.float32 and parameter.ndim == 2:
            native.adagrad_rows(parameter, total, rows, values, group["lr"], group["eps"])
            return
        sums = total.index_select(0, rows).addcmul_(values, values)
        total.index_copy_(0, rows, sums)
        parameter.index_add_(0, rows, values.div(sums.sqrt_().add_(group["eps"])), alpha=-group["lr"])

    def _step_dense(self, parameters: list[Tensor], gradients: list[Tensor], sums: list[Tensor]) -> None:
        (group,) = self.param_groups
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        torch._foreach_addcmul_(sums, gradients, gradients)
        spread = torch._foreach_sqrt(sums)
        torch._foreach_add_(spread, group["eps"])
        torch._foreach_addcdiv_(parameters, gradients, spread, value=-group["lr"])

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.param_groups[0].items() if name != "params"}

    def state_dict(self) -> dict[str, Any]:
        """The sums, whose tensors are shared, and the settings."""
        return {"sums": list(self.sums), "param_groups": [self._settings()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that an optimiser of the same parameters saved."""
        shapes = [tuple(total.shape) for total in self.sums]
        if (found := [tuple(total.shape) for total in state["sums"]]) != shapes:
            raise ValueError(f"state must be of parameters of the shapes {shapes}, got {found}")
        for mine, theirs in zip(self.sums, state["sums"], strict=True):
            mine.copy_(theirs)
        self.param_groups[0].update(state["param_groups"][0])


class Optimizers:
    """One optimiser for dense gradients and, if it cannot take them, another one for sparse gradients."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self._parameters: list[Tensor] = [one for group in self._groups() for one in group["params"]]

    def _groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Apply all gradients."""
        for part in self.parts:
            part.step()

    @property
    def can_record(self) -> bool:
        """Whether a step does the same operations on the same tensors each time; torch's create some in the first."""
        return all(isinstance(part, Adagrad | torch.optim.SGD) or part.state for part in self.parts)

    def changes(self) -> list[Tensor]:
        """All tensors that a step changes: parameters, and the optimisers' statistics of their gradients."""
        found = list(self._parameters)
        for part in self.parts:
            if isinstance(part, Adagrad):
                found += part.sums
            else:
                found += [one for state in part.state.values() for one in state.values() if isinstance(one, Tensor)]
        return found

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within it a step may be recorded as a CUDA graph, which torch's fused optimisers must know."""
        groups = [group for group in self._groups() if "capturable" in group]
        for part in self.parts:
            part._warned_capturable_if_run_uncaptured = True  # steps to be recorded are first run without recording
        for group in groups:
            group["capturable"] = True
        try:
            yield
        finally:
            for group in groups:
                group["capturable"] = False

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of all parts."""
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, state: list[Mapping[str, Any]]) -> None:
        """Continue from a state that the same optimisers saved."""
        if len(state) != len(self.parts):
            raise ValueError(f"state must hold {len(self.parts)} optimisers, got {len(state)}")
        for part, own in zip(self.parts, state, strict=True):
            part.load_state_dict(dict(own))

    def start_from(self, state: list[Mapping[str, Any]]) -> None:
        """Take the statistics of other optimisers of the same kinds, and keep the settings (step size, decay)."""
        settings = [dict(group) for group in self._groups()]
        self.load_state_dict(state)
        for group, own in zip(self._groups(), settings, strict=True):
            group.update(own)


# Fused kernels read a table once per step, not once per operation; with large tables that is most of a step.
_TORCH_OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "adam": (partial(torch.optim.Adam, fused=True), torch.optim.SparseAdam),
    "adamw": (partial(torch.optim.AdamW, fused=True), torch.optim.SparseAdam),
    "sgd": (torch.optim.SGD, torch.optim.SGD),
}
"""Torch's optimisers for dense and for sparse gradients."""


def make_optimizers(model: CTRModel, config: TrainConfig) -> Optimizers:
    """Optimisers for a model's parameters.

    The gradient of the paper's λ‖Θ‖² is 2λΘ: weight decay of 2λ, which needs no sum over the parameters.
    """
    name, rate = config.optimizer, config.rate
    dense, sparse = model.parameter_groups()
    if sparse and model.l2:
        raise ValueError(f"l2 needs dense gradients, since every parameter decays at every step, got {model.l2}")
    if name == "adamw" and model.l2:
        # AdamW decays parameters separately from the gradient, which is not the gradient of λ‖Θ‖².
        raise ValueError(f"l2 is part of the loss and needs adam, adagrad or sgd, got {model.l2} with adamw")
    decay = {"weight_decay": 2 * model.l2}
    if name == "adagrad":
        made = Adagrad([*dense, *sparse], lr=rate, **decay)
        tables = [] if model.categorical is None else [model.categorical.weight]
        tables += [] if model.numerical is None else model.numerical.tables
        for table in tables:
            made.sums[made.place(table)].fill_((config.table_start / config.batch_size) ** 2)
        return Optimizers([made])
    kind, sparse_kind = _TORCH_OPTIMIZERS[name]
    parts = [kind(dense, lr=rate, **decay)] if dense else []
    parts += [sparse_kind(sparse, lr=rate)] if sparse else []
    return Optimizers(parts)


def count_parameters(model: nn.Module) -> int:
    """The number of entries of all parameters; those of a divided table are counted in all processes."""
    counts = (part.elsewhere for part in model.modules() if isinstance(part, DividedEmbedding))
    return sum(parameter.numel() for parameter in model.parameters()) + sum(counts)
