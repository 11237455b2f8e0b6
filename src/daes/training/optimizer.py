"""Optimisers for a model whose tables may have sparse gradients."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from daes.model import CTRModel


class TableAdagrad(torch.optim.Optimizer):
    """Adagrad for tables with sparse gradients: s ← s + g², θ ← θ − η·g / (√s + ε), on the rows of a batch alone.

    The same as `torch.optim.Adagrad`, which makes several sparse tensors per step on the way.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, eps: float = 1e-10) -> None:
        super().__init__(parameters, {"lr": lr, "eps": eps})
        for parameter in parameters:
            self.state[parameter]["sum"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad.coalesce()
                rows, values = gradient.indices()[0], gradient.values()
                total = self.state[parameter]["sum"]
                sums = total.index_select(0, rows).addcmul_(values, values)
                total.index_copy_(0, rows, sums)
                parameter.index_add_(0, rows, values.div(sums.sqrt_().add_(group["eps"])), alpha=-group["lr"])


# Fused kernels read a table once per step, not once per operation; with large tables that is most of a step.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, fused=True),
    "adamw": partial(torch.optim.AdamW, fused=True),
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
}


class Optimizers:
    """One optimiser for dense gradients and, if the model has any, one for sparse gradients."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for part in self.parts:
            part.zero_grad()

    def step(self) -> None:
        """Apply all gradients."""
        for part in self.parts:
            part.step()

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
        """Take what other optimisers of the same kinds have gathered, and keep the settings (step size, decay)."""
        settings = [
            [{name: value for name, value in group.items() if name != "params"} for group in part.param_groups]
            for part in self.parts
        ]
        self.load_state_dict(state)
        for part, own in zip(self.parts, settings, strict=True):
            for group, kept in zip(part.param_groups, own, strict=True):
                group.update(kept)


def make_optimizers(model: CTRModel, name: str, learning_rate: float) -> Optimizers:
    """Optimisers of a model's parameters.

    The gradient of the paper's λ‖Θ‖² is 2λΘ, which is weight decay 2λ and needs no sum over the parameters.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {name!r}")
    dense, sparse = model.parameter_groups()
    if sparse and model.l2:
        raise ValueError(f"l2 needs dense gradients, since every parameter decays at every step, got {model.l2}")
    if name == "adamw" and model.l2:
        # AdamW decays parameters separately from the gradient, which is not the gradient of λ‖Θ‖².
        raise ValueError(f"l2 is part of the loss and needs adam, adagrad or sgd, got {model.l2} with adamw")
    decay = {"weight_decay": 2 * model.l2}
    parts = [OPTIMIZERS[name](dense, lr=learning_rate, **decay)] if dense else []
    if sparse:
        parts.append(_sparse_optimizer(name)(sparse, lr=learning_rate))
    return Optimizers(parts)


def _sparse_optimizer(name: str) -> Callable[..., torch.optim.Optimizer]:
    return {"sgd": torch.optim.SGD, "adagrad": TableAdagrad}.get(name, torch.optim.SparseAdam)


def count_parameters(model: nn.Module) -> int:
    """The number of learned numbers, over all parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
