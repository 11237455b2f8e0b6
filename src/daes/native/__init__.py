"""Compiled loops for steps on the CPU, where they were built; everything works without them, more slowly.

A step on 128 rows is some hundred small operations, each of which takes longer to call than to compute. The loops of
`kernels.c` and its headers each do the work of dozens. They are compiled when the package is installed, if there is a C
compiler, or by `python -m daes.native`; `DAES_NATIVE=0` in the environment turns them off. The plain versions beside
their calls say what they compute, to float precision.

Here the library is loaded, without torch; `daes.native.tensors` and `daes.native.blends`, whose names are also here,
call it on tensors, and `daes.native.arrays` on NumPy arrays.
"""

import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daes.lazy import lazy_names
from daes.native.build import library

if TYPE_CHECKING:
    from daes.native.blends import blend, gated_blend
    from daes.native.tensors import (
        Reservoirs,
        adagrad_rows,
        add_entries,
        cross_entropy,
        hash_rows,
        look_up,
        norm,
        pack,
        refuse_second_derivatives,
        serves,
        sum_rows,
        within,
    )

__all__ = [
    "Reservoirs",
    "adagrad_rows",
    "add_entries",
    "blend",
    "cross_entropy",
    "gated_blend",
    "hash_rows",
    "look_up",
    "norm",
    "pack",
    "refuse_second_derivatives",
    "serves",
    "sum_rows",
    "within",
]


SIGNATURES = {
    "within": "n(tnn)",
    "hash_rows": "(tttnnt)",
    "look_up": "(ttnnntn)",
    "add_up": "n(tntnnnnttt)",
    "adagrad_rows": "(ttttnnff)",
    "evidence": "(ppttnt)",
    "recall": "(ppttnt)",
    "combine": "(ppttnt)",
    "count": "(ppttttnnn)",
    "note": "(pttttnntpp)",
    "count_columns": "(ppntnnnntt)",
    "values": "(pttnnnt)",
    "tally": "(tnttnnnnt)",
    "errors": "(ttndt)",
    "rate": "(tnntttnndtttt)",
    "read": "(tnnttttnntt)",
    "keep": "(pttttnnnttnt)",
    "blend": "(tnntntttnntttntntt)",
    "blend_backward": "(tnnnnntnttttt)",
    "gated_blend": "(pttntntttttttt)",
    "gated_blend_backward": "(ptnttttttt)",
    "observe": "n(ptntnttnt)",
    "refresh": "(tnttnnnppppnttnnptt)",
    "join": "(ppnnnnnntftnftttt)",
    "join_backward": "(tnnnnntttfnttt)",
    "loss": "d(tttn)",
    "relu_backward": "(tntnnft)",
    "squares": "d(ppn)",
    "find": "(ppttnn)",
    "inputs": "(pptnn)",
    "gradients": "n(pppttn)",
    "group": "n(ppp)",
    "project": "(pppnn)",
    "gather": "(ppptnntt)",
    "scatter": "(ppppnnntt)",
    "score": "n(pttnt)",
    "draw": "(pnntpp)",
    "gaps": "n(ppnddnptp)",
    "count_up_to": "(tntnnt)",
    "follow": "n(pnpnpndppp)",
    "accept": "n(pnnppnnpppnpp)",
    "distinct": "(tnnnttnt)",
    "arrive": "n(pn)",
    "await": "n(pnn)",
    "pack": "(ttnnfnntt)",
    "add_entries": "n(ppnnnttt)",
    "bins": "(tnnntnt)",
}
"""Result and arguments of every loop: t is a tensor, an array or None, p another pointer, n a whole number, f and d are
floats of 32 and 64 bits."""


def address(array: NDArray[Any]) -> int:
    """The address of a contiguous, non-empty array; faster than `array.ctypes.data`, which creates objects."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except TypeError:  # it must not be written to
        return array.ctypes.data


class _Numbers:
    """The argument t: a pointer to the numbers of a tensor or an array, null for None and where there are none."""

    @staticmethod
    def from_param(given: Any) -> ctypes.c_void_p | None:
        if given is None:
            return None
        if isinstance(given, np.ndarray):
            return ctypes.c_void_p(address(given)) if given.size else None
        return ctypes.c_void_p(given.data_ptr())


_KINDS = {"t": _Numbers, "p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double, "": None}


def _load() -> Any:
    if os.environ.get("DAES_NATIVE") == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(library()))
    except OSError:
        return None
    for name, signature in SIGNATURES.items():
        result, _, arguments = signature[:-1].partition("(")
        function = getattr(loaded, f"daes_{name}")
        function.restype, function.argtypes = _KINDS[result], [_KINDS[kind] for kind in arguments]
    return loaded


_library = _load()
_blends = ("blend", "gated_blend")
__getattr__, __dir__ = lazy_names(
    __name__,
    {"daes.native.blends": _blends, "daes.native.tensors": [name for name in __all__ if name not in _blends]},
)
