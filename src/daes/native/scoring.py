"""Scores of a few rows by one call into compiled loops: for one row a model is mostly calls of its parts."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native

_NUMBERS = ("q", "p", "d", "K", "M", "bins", "counted_numbers", "counted_categories", "plain", "num_layers")
_FLOATS = ("knots", "centre", "scale", "table", "linear", "missing", "rows", "edges", "first_order", "evidence")
_WHOLE = ("sizes", "offsets", "widths")
_DOUBLES = ("number_counts", "row_counts")
_SETTINGS = ("prior", "strength", "start")


class _Frozen(ctypes.Structure):
    """`frozen_model` of `kernels.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in (*_FLOATS, *_WHOLE, *_DOUBLES, "layers")),
        *((name, ctypes.c_double) for name in _SETTINGS),
    )


class FewRows:
    """Logits of a model that does not change any more; any number of threads may call it.

    Args:
        layers: weight and bias of each layer of its network.
        values: every other entry of `frozen_model` in `kernels.c`, by name: numbers, and tensors or None.
    """

    def __init__(self, layers: Sequence[Tensor], **values: Any) -> None:
        widths = torch.tensor([layers[0].shape[1], *(weight.shape[0] for weight in layers[::2])])
        values |= {"widths": widths, "num_layers": len(layers) // 2}
        self._kept = [*layers, *(one for one in values.values() if isinstance(one, Tensor))]
        self._layers = (ctypes.c_void_p * len(layers))(*[one.data_ptr() for one in layers])
        self._model = _Frozen(
            layers=ctypes.cast(self._layers, ctypes.c_void_p),
            **{name: one.data_ptr() if isinstance(one, Tensor) else one for name, one in values.items()},
        )
        self._address = ctypes.addressof(self._model)

    @staticmethod
    def serves(layers: Sequence[Tensor], values: dict[str, Any]) -> bool:
        """Whether the tensors are of the right types and lie in memory row by row."""
        kinds = dict.fromkeys(_WHOLE, torch.int64) | dict.fromkeys(_DOUBLES, torch.float64)
        tensors = {name: one for name, one in values.items() if isinstance(one, Tensor)}
        return (
            native.serves(*layers, *tensors.values())
            and all(one.dtype == torch.float32 for one in layers)
            and all(one.dtype == kinds.get(name, torch.float32) for name, one in tensors.items())
        )

    def __call__(self, numbers: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits (B,) of numbers (B, q) and ids (B, p)."""
        numbers, ids = np.ascontiguousarray(numbers, np.float32), np.ascontiguousarray(ids, np.int64)
        logits = np.empty(len(numbers), np.float32)
        if not native._library.daes_score(
            self._address, numbers.ctypes.data, ids.ctypes.data, len(numbers), logits.ctypes.data
        ):
            raise MemoryError(f"no memory to score {len(numbers)} rows")
        return logits
