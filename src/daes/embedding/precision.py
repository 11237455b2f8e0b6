"""Statistics that keep their precision when a model is cast."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn


class KeepsPrecision(nn.Module):
    """A module whose buffers are statistics, which keep their dtype when a model is cast."""

    def _may_become(self, name: str, dtype: torch.dtype) -> bool:
        """Whether a cast of the module may change a buffer to this dtype."""
        return False

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype != old.dtype and not self._may_become(name, new.dtype):
                self._buffers[name] = old.to(new.device)
        return self


class KeepsSinglePrecision(KeepsPrecision):
    """A module whose buffers follow the dtype of a model, except to half precision."""

    def _may_become(self, name: str, dtype: torch.dtype) -> bool:
        return not dtype.is_floating_point or torch.finfo(dtype).bits >= 32
