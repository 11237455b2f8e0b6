import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation gave."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.fixture
def largest_tensor() -> type[Largest]:
    """A context in which the largest tensor made is remembered."""
    return Largest


@pytest.fixture
def hostile_stream() -> Tensor:
    """Values (300, 6): a long tail, far from 0, constant, all missing, ties, and some missing or infinite."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    data[:, 0] = data[:, 0].exp() * 1000
    data[:, 1] = data[:, 1] + 1e6
    data[:, 2] = 0.1
    data[:, 3] = torch.nan
    data[:, 4] = data[:, 4].round()
    data[torch.rand(300, generator=generator) < 0.3, 5] = torch.nan
    data[5, 5], data[9, 5] = torch.inf, -torch.inf
    return data
