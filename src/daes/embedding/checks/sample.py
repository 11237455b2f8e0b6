"""Methods in different states and rows for them, shared by the checks."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from daes.checking import seeded
from daes.embedding.base import Context, NumericalEmbedding

Make = Callable[[], NumericalEmbedding]
"""Makes the method under check; every call returns a new, unfitted one with the same options."""

Check = Callable[[Make], None]
"""Raises an AssertionError with a message if the method breaks its contract."""

NUM_CONTEXTS = 4


class Sample(NamedTuple):
    """Rows for a method: values (B, q), labels (B,), and a context for each row."""

    values: Tensor
    labels: Tensor
    context: Tensor
    shared: Context


def make_sample(method: NumericalEmbedding, num_rows: int = 200, *, missing: bool = True, seed: int = 0) -> Sample:
    """Skewed columns, every third one of counts, with missing values."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(num_rows, method.num_features, generator=generator).exp() * 10
    values[:, 1::3] = values[:, 1::3].floor()
    if missing:
        values[torch.rand(values.shape, generator=generator) < 0.1] = torch.nan
    labels = (torch.rand(num_rows, generator=generator) < 0.3).float()
    vectors = torch.randn(NUM_CONTEXTS, getattr(method, "context_dim", method.dim), generator=generator)
    index = torch.randint(NUM_CONTEXTS, (num_rows,), generator=generator)
    return Sample(values, labels, vectors[index], Context(vectors, index))


def new(make: Make, seed: int = 0) -> NumericalEmbedding:
    """A method whose parameters are determined by the seed."""
    with seeded(seed):
        return make()


def ready(make: Make) -> NumericalEmbedding:
    """A method that was fitted to a sample, in `eval()`."""
    method = new(make)
    sample = make_sample(method)
    return method.fit(sample.values, sample.labels).eval()


def started(make: Make) -> NumericalEmbedding:
    """A method ready for training: fitted if it is offline, otherwise new."""
    method = new(make)
    if method.offline:
        sample = make_sample(method)
        method.fit(sample.values, sample.labels)
    return method.train()


class FlatOutputs(nn.Module):
    """All outputs of a method per row, fields and plain inputs: (B, q'·d + plain_dim)."""

    def __init__(self, method: NumericalEmbedding) -> None:
        super().__init__()
        self.method = method

    def forward(self, values: Tensor, context: Tensor | Context | None = None) -> Tensor:
        fields, plain = self.method.outputs(values, context)
        return fields.flatten(1) if plain is None else torch.cat([fields.flatten(1), plain], 1)


def outputs(method: NumericalEmbedding, values: Tensor, context: Tensor | Context | None = None) -> Tensor:
    """`FlatOutputs` as a function, without gradients."""
    with torch.no_grad():
        result: Tensor = FlatOutputs(method)(values, context)
        return result


def train_step(method: NumericalEmbedding, sample: Sample) -> None:
    """One step of gradient descent towards targets that differ between outputs."""
    result = FlatOutputs(method)(sample.values, sample.context)
    targets = torch.linspace(-1.0, 1.0, result.numel(), dtype=result.dtype, device=result.device).view_as(result)
    gradients = torch.autograd.grad((result - targets).square().mean(), list(method.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(method.parameters(), gradients, strict=True):
            parameter.sub_(gradient, alpha=0.1)
