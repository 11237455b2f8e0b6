"""Checks of gradients, of precision, and of contexts."""

from copy import deepcopy

import torch
from torch import Tensor
from torch.func import functional_call

from daes.checking import ensure, ensure_close, ensure_finite, ensure_same
from daes.embedding.base import Context, NumericalEmbedding
from daes.embedding.checks.sample import FlatOutputs, Make, make_sample, outputs, ready, started


def check_gradients_reach_every_parameter(make: Make) -> None:
    """A batch with present and missing values gives every parameter a gradient, for each feature."""
    method = ready(make)
    sample = make_sample(method)
    result = FlatOutputs(method)(sample.values, sample.context)
    (result * torch.linspace(-1.0, 1.0, result.numel()).view_as(result)).sum().backward()
    for name, parameter in method.named_parameters():
        gradient = parameter.grad
        if gradient is None:
            raise AssertionError(f"{name} must get a gradient, got None")
        ensure_finite(gradient, f"the gradient of {name}")
        by_feature = len(gradient) == method.num_features and gradient.dim() > 1
        parts = gradient.flatten(1) if by_feature else gradient.reshape(1, -1)
        ensure(bool(parts.any(1).all()), f"{name} must get a gradient that is not 0 everywhere")


def check_gradients_are_exact(make: Make) -> None:
    """Gradients of parameters and context match finite differences in float64."""
    method = FlatOutputs(ready(make).double())
    sample = make_sample(method.method, 6, seed=1)
    names = [name for name, _ in method.named_parameters()]

    def result(context: Tensor, *parameters: Tensor) -> Tensor:
        replaced = dict(zip(names, parameters, strict=True))
        found: Tensor = functional_call(method, replaced, (sample.values.double(), context))
        return found

    inputs = [sample.context.double(), *(parameter.detach() for parameter in method.parameters())]
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    # The fast mode compares along random directions, so its cost does not grow with the number of parameters.
    torch.autograd.gradcheck(result, tuple(inputs), fast_mode=True, atol=1e-5)


def check_context_forms(make: Make) -> None:
    """One context vector per row and a `Context` of shared vectors give the same outputs and gradients."""
    method = ready(make)
    sample = make_sample(method)
    leaf = sample.shared.vectors.clone().requires_grad_()
    rows = torch.arange(len(sample.values))
    forms = [leaf[sample.shared.index], Context(leaf, sample.shared.index), Context(leaf[sample.shared.index], rows)]
    results = [FlatOutputs(method)(sample.values, form) for form in forms]
    inputs = [leaf, *method.parameters()]
    gradients = [torch.autograd.grad(result.square().sum(), inputs, allow_unused=True) for result in results]
    for result, gradient in zip(results[1:], gradients[1:], strict=True):
        ensure_close(result, results[0], "outputs with a shared context and with one per row")
        for shared, plain in zip(gradient, gradients[0], strict=True):
            if shared is not None and plain is not None:
                ensure_close(shared, plain, "gradients with a shared context and with one per row", tolerance=1e-4)


def check_float64(make: Make) -> None:
    """Cast to float64, a method returns float64, the same as in float32 up to rounding."""
    _check_cast(ready(make), torch.float64, tolerance=1e-3)


def check_bfloat16(make: Make) -> None:
    """Cast to bfloat16, a method keeps the precision of its statistics: eight bits do not suffice for them."""
    method = ready(make)
    half = deepcopy(method).to(torch.bfloat16)
    for (name, buffer), kept in zip(method.named_buffers(), half.buffers(), strict=True):
        ensure_same(kept, buffer, f"the statistic {name} before and after the cast")
    _check_cast(method, torch.bfloat16, tolerance=0.05)


def check_autocast(make: Make) -> None:
    """Under autocast to bfloat16, a method can be trained and returns the same as without, up to rounding."""
    method = ready(make)
    sample = make_sample(method)
    expected = outputs(method, sample.values, sample.context)
    with torch.autocast("cpu", torch.bfloat16):
        result = outputs(method, sample.values, sample.context)
        ensure_close(result.float(), expected, "outputs with autocast and without", tolerance=0.05)
        shared = outputs(method, sample.values, sample.shared)
        ensure_close(shared.float(), expected, "outputs with autocast, of a shared context", tolerance=0.05)
    trained = started(make)
    with torch.autocast("cpu", torch.bfloat16):
        loss = FlatOutputs(trained)(sample.values, sample.context).square().sum()
    loss.backward()
    for name, parameter in trained.named_parameters():
        ensure(parameter.grad is not None, f"{name} must get a gradient under autocast")


def _check_cast(method: NumericalEmbedding, dtype: torch.dtype, *, tolerance: float) -> None:
    """Outputs have the dtype and are close to those in float32, and training works with either form of context."""
    sample = make_sample(method)
    expected = outputs(method, sample.values, sample.context)
    method = deepcopy(method).to(dtype)
    context = sample.context.to(dtype)
    result = outputs(method, sample.values, context)
    ensure(result.dtype == dtype, f"the output must be {dtype}, got {result.dtype}")
    ensure_close(result.float(), expected, f"outputs in {dtype} and in float32", tolerance=tolerance)
    for form in (context, Context(sample.shared.vectors.to(dtype), sample.shared.index)):
        FlatOutputs(method.train())(sample.values, form).square().sum().backward()
    for name, parameter in method.named_parameters():
        if parameter.grad is None:
            raise AssertionError(f"{name} must get a gradient in {dtype}")
        ensure_finite(parameter.grad, f"the gradient of {name} in {dtype}")
