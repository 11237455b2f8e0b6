"""Backbones in different states and inputs for them, shared by the checks."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from daes.backbone.base import Backbone
from daes.checking import seeded

NUM_FIELDS, DIM, PLAIN_DIM = 5, 4, 3


class Make(Protocol):
    """Makes the backbone under check; may be the class."""

    def __call__(self, num_fields: int, dim: int, /, *, plain_dim: int) -> Backbone: ...


Check = Callable[[Make], None]
"""Raises an AssertionError with a message if the backbone breaks its contract."""


def takes_plain(make: Make) -> bool:
    """Whether the backbone takes plain inputs."""
    return new(make, plain_dim=0).takes_plain


def new(make: Make, num_fields: int = NUM_FIELDS, dim: int = DIM, *, plain_dim: int, seed: int = 0) -> Backbone:
    """A backbone whose parameters are determined by the seed."""
    with seeded(seed):
        return make(num_fields, dim, plain_dim=plain_dim)


def fresh(make: Make, seed: int = 0) -> Backbone:
    """A new backbone in `train()`, with plain inputs if it takes them."""
    return new(make, plain_dim=PLAIN_DIM if takes_plain(make) else 0, seed=seed).train()


def trained(make: Make, seed: int = 0) -> Backbone:
    """A backbone after two steps of training, in `eval()`."""
    backbone = fresh(make, seed)
    optimizer = torch.optim.Adam(backbone.parameters(), lr=0.01)
    with seeded(seed):
        for step in range(2):
            optimizer.zero_grad()
            backbone(*make_inputs(backbone, 16, seed=step)).square().sum().backward()
            optimizer.step()
    return backbone.eval()


def make_inputs(backbone: Backbone, num_rows: int, *, seed: int = 0) -> tuple[Tensor, ...]:
    """Random fields, and plain inputs if the backbone expects them, in the dtype of its parameters."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next((parameter.dtype for parameter in backbone.parameters()), torch.float32)
    fields = torch.randn(num_rows, backbone.num_fields, backbone.dim, dtype=dtype, generator=generator)
    if not backbone.plain_dim:
        return (fields,)
    return fields, torch.randn(num_rows, backbone.plain_dim, dtype=dtype, generator=generator)
