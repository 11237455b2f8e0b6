"""Whole models in compiled loops: their memory, and scores of a few rows by one call.

Most of the time of a small batch is spent on calling a model's parts. Here numbers and ids become the inputs of a
network by one call, which puts every part where the network reads it.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native
from daes.native.crosses import cross, row_slices
from daes.native.evidence import Counts, Found
from daes.native.network import leak_
from daes.native.products import floats, memory_of_inputs, put_product, quicker

_NUMBERS = ("q", "p", "d", "K", "M", "plain", "num_layers")
LEARNED = ("table", "linear", "missing", "rows", "first_order", "evidence", "recent", "combined")
_FLOATS = ("knots", "centre", "scale", *LEARNED)
_WHOLE = ("sizes", "offsets", "widths")
_FEW_ROWS = 32
"""From there on matrix products of torch are quicker than loops."""
_ROWS_SCORED = 1024
"""Rows scored at a time, which stay in the cache."""
_KINDS = dict.fromkeys(_WHOLE, torch.int64)


class _Model(ctypes.Structure):
    """`whole_model` of `kernels/whole.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in (*_FLOATS, *_WHOLE, "layers", "counts")),
        ("pairs", ctypes.c_float),
        ("slope", ctypes.c_float),
    )


class _Workspace(ctypes.Structure):
    """`workspace` of `kernels/whole.h`."""

    _fields_ = (
        ("places", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "inputs", "upper", "sums", "logits", "errors", "odds", "lower")),
        ("found", ctypes.c_void_p),
        ("of_all", ctypes.c_float * 2),
    )


class Whole:
    """The tensors of a model, as compiled loops access them.

    Args:
        layers, crosses: those of its `Network`.
        values: every other entry of `whole_model` in `kernels/whole.h`, by name: numbers, and tensors or None.
        counts: what past clicks are counted in.
    """

    _learns = False

    def __init__(
        self, layers: Sequence[Tensor], values: Mapping[str, Any], counts: Counts, crosses: Sequence[Tensor] = ()
    ) -> None:
        self._layers, self._values, self.counts = layers, dict(values), counts
        self._crosses = [one.detach() for one in crosses]
        self._widths = [layers[0].shape[1], *(weight.shape[0] for weight in layers[::2])]
        self._values |= {"widths": torch.tensor(self._widths), "num_layers": len(layers) // 2}
        self._pointers = (ctypes.c_void_p * len(layers))(*[one.data_ptr() for one in layers])
        self._model = _Model(
            layers=ctypes.cast(self._pointers, ctypes.c_void_p),
            counts=counts.address,
            **{name: one.data_ptr() if isinstance(one, Tensor) else one for name, one in self._values.items()},
        )
        self._address = ctypes.addressof(self._model)
        self._slope: float = values["slope"]
        self._weights = [one.detach() for one in layers]
        self._combined = None if values["combined"] is None else values["combined"].detach()
        self._upward = [one.t() for one in self._weights[:-2:2]]
        crossed = self._widths[0] if crosses else 0
        self._crossed_readout, self._readout = self._weights[-2][0, :crossed], self._weights[-2][0, crossed:]

    def _find(self, numbers: Tensor, ids: Tensor, rows: int, buffers: "Buffers", *, distinct: bool) -> None:
        """Look up this many rows; if not distinct, each of their ids separately, in any number of threads."""
        native._library.daes_find(self._address, buffers.address, numbers, ids, rows, distinct)

    def _forward(self, numbers: Tensor, share: "Share") -> None:
        """The logits of a share of a batch that was looked up."""
        native._library.daes_inputs(self._address, share.space, numbers, share.start, share.stop)
        share.crossed.clear()
        for rows in row_slices(share.stop - share.start) if self._crosses else ():
            crossed, logits = cross(share.hidden[0][rows], self._crosses), share.logits[rows]
            torch.addmv(logits, crossed[-1], self._crossed_readout, out=logits)
            if self._learns:
                share.crossed.append((rows, crossed))
        self._ascend(share, 0)

    def _ascend(self, share: "Share", first: int) -> None:
        """The logits of a share, once the inputs of a layer are there."""
        for place, into in enumerate(share.hidden[first + 1 :], first):
            inputs, bias = share.hidden[place], self._weights[2 * place + 1]
            if not place and quicker(inputs, len(bias)):
                put_product(into, inputs, self._weights[0], bias)
            else:
                torch.addmm(bias, inputs, self._upward[place], out=into)
            leak_(into, self._slope)
        torch.addmv(share.logits, share.hidden[-1], self._readout, out=share.logits)
        if self._combined is not None:
            share.logits.add_((share.odds * self._combined).sum(1))

    @staticmethod
    def serves(
        layers: Sequence[Tensor], values: Mapping[str, Any], counts: Counts, crosses: Sequence[Tensor] = ()
    ) -> bool:
        """Whether the tensors are contiguous and have the right types and shapes."""
        tensors = {name: one for name, one in values.items() if isinstance(one, Tensor)}
        return (
            native.serves(*layers, *crosses, *tensors.values())
            and all(one.dtype == torch.float32 for one in (*layers, *crosses))
            and all(one.dtype == _KINDS.get(name, torch.float32) for name, one in tensors.items())
            and [one.shape for one in (*layers, *crosses)] == _layer_shapes(layers, values, counts, len(crosses))
            and all(one.shape == _shapes(values, counts)[name] for name, one in tensors.items())
        )


def _shapes(values: Mapping[str, Any], counts: Counts) -> dict[str, tuple[int, ...]]:
    """Of the tensors of `whole_model`."""
    q, p, d = (values[name] for name in ("q", "p", "d"))
    return {
        "knots": (q, values["K"] + 1),
        **dict.fromkeys(("centre", "scale"), (q,)),
        "table": (q, values["M"] + 1, d),
        **dict.fromkeys(("linear", "missing"), (q, d)),
        "rows": (int(values["offsets"][-1] + values["sizes"][-1]) + 2, d),
        "first_order": (1, (q + p) * d),
        "evidence": (counts.q + 2 * counts.ids,),
        "recent": (2 * (1 + counts.q + counts.ids),),
        "combined": (counts.num_combined,),
        **dict.fromkeys(("sizes", "offsets"), (p,)),
    }


def _layer_shapes(
    layers: Sequence[Tensor], values: Mapping[str, Any], counts: Counts, num_crosses: int
) -> list[tuple[int, ...]]:
    """Of weight and bias of each layer, the last of which gives one number, and of this many of the crosses."""
    inputs = (values["q"] + values["p"]) * values["d"] + values["plain"] + counts.q + 2 * counts.ids
    widths = [inputs, *(len(weight) for weight in layers[:-2:2])]
    hidden = [shape for into, out in pairwise(widths) for shape in ((out, into), (out,))]
    read = widths[-1] + (inputs if num_crosses else 0)
    return [*hidden, (1, read), (1,), *([(inputs, inputs), (inputs,)] * (num_crosses // 2))]


class Scores(Whole):
    """Logits of a model that does not change any more; any number of threads may call it."""

    @property
    def max_loop_rows(self) -> int:
        """The largest number of rows that one call into compiled loops scores; of more, products are torch's."""
        return 0 if self._crosses else _FEW_ROWS

    def __call__(self, numbers: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits (B,) of numbers (B, q) and ids (B, p)."""
        numbers, ids = np.ascontiguousarray(numbers, np.float32), np.ascontiguousarray(ids, np.int64)
        shapes = (len(numbers), self._values["q"]), (len(numbers), self._values["p"])
        if (numbers.shape, ids.shape) != shapes:
            raise ValueError(f"numbers and ids must have the shapes {shapes}, got {numbers.shape} and {ids.shape}")
        logits = np.empty(len(numbers), np.float32)
        if len(numbers) > self.max_loop_rows:
            self._score(torch.from_numpy(numbers), torch.from_numpy(ids), torch.from_numpy(logits))
        elif not native._library.daes_score(self._address, numbers, ids, len(numbers), logits):
            raise MemoryError(f"no memory to score {len(numbers)} rows")
        return logits

    def _score(self, numbers: Tensor, ids: Tensor, logits: Tensor) -> None:
        buffers = Buffers(
            self._values, self._widths, self.counts, min(len(ids), _ROWS_SCORED), crosses=bool(self._crosses)
        )
        for start in range(0, len(ids), _ROWS_SCORED):
            (share,) = buffers.shares(0, min(len(ids) - start, _ROWS_SCORED))
            self._find(numbers[start:], ids[start:], share.stop, buffers, distinct=False)
            self._forward(numbers[start:], share)
            logits[start : start + share.stop] = share.logits


class Buffers:
    """Memory for rows on their way through a model."""

    def __init__(
        self, values: Mapping[str, Any], widths: Sequence[int], counts: Counts, rows: int, *, crosses: bool = False
    ) -> None:
        q, (width, *hidden) = values["q"], widths[:-1]
        x = memory_of_inputs(rows, width, width if crosses else hidden[0] if hidden else 1)
        self._kept = {
            "x": x,
            "inputs": floats(0 if values["plain"] else rows, 2 * q),
            "upper": floats(rows, q),
            "sums": floats(rows, values["d"]),
            "lower": torch.empty(rows, q, dtype=torch.int32),
            "logits": floats(rows),
            "places": torch.empty(rows, values["p"], dtype=torch.int64),
            "errors": floats(rows, 2 * (1 + counts.q + counts.ids)),
            "odds": floats(rows, counts.num_combined),
        }
        self.found, self.logits = Found(self._kept["places"], counts.q), self._kept["logits"]
        self.odds, self.sums = self._kept["odds"], self._kept["sums"]
        self.hidden = [x, *(floats(rows, size) for size in hidden)]
        self._space = _Workspace(
            stride=x.stride(0),
            found=self.found.address,
            **{name: one.data_ptr() for name, one in self._kept.items()},
        )
        self.address = ctypes.addressof(self._space)

    def shares(self, *ends: int) -> list["Share"]:
        """The rows between each two ends."""
        return [
            Share(
                start,
                stop,
                self.address,
                self.logits[start:stop],
                self.odds[start:stop],
                [one[start:stop] for one in self.hidden],
                [],
            )
            for start, stop in pairwise(ends)
        ]


@dataclass(frozen=True)
class Share:
    """The rows from `start` to `stop` of `Buffers`."""

    start: int
    stop: int
    space: int
    logits: Tensor
    odds: Tensor
    hidden: list[Tensor]
    crossed: list[tuple[slice, list[Tensor]]]
    """What `cross` gave, slice by slice of these rows."""
