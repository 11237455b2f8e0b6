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
    "within": "n(pnn)",
    "hash_rows": "(pppnnp)",
    "look_up": "(ppnnnpn)",
    "add_up": "n(pnpnnnnppp)",
    "adagrad_rows": "(ppppnnff)",
    "evidence": "(ppppnp)",
    "recall": "(ppppnp)",
    "combine": "(ppppnp)",
    "count": "(ppppppnnn)",
    "note": "(pppppnnppp)",
    "count_columns": "(ppnpnnnnpp)",
    "values": "(pppnnnp)",
    "tally": "(pnppnnnnp)",
    "errors": "(ppndp)",
    "rate": "(pnnpppnndpppp)",
    "read": "(pnnppppnnpp)",
    "keep": "(pppppnnnppnp)",
    "blend": "(pnnpnpppnnpppnpnpp)",
    "blend_backward": "(pnnnnnpnppppp)",
    "gated_blend": "(pppnpnpppppppp)",
    "gated_blend_backward": "(ppnppppppp)",
    "observe": "n(ppnpnppnp)",
    "refresh": "(pnppnnnppppnppnnppp)",
    "join": "(ppnnnnnnpfpnfpppp)",
    "join_backward": "(pnnnnnpppfnppp)",
    "loss": "d(pppn)",
    "relu_backward": "(pnpnnfp)",
    "squares": "d(ppn)",
    "find": "(ppppnn)",
    "inputs": "(pppnn)",
    "gradients": "n(pppppn)",
    "group": "n(ppp)",
    "project": "(pppnn)",
    "gather": "(ppppnnpp)",
    "scatter": "(ppppnnnpp)",
    "score": "n(pppnp)",
    "draw": "(pnnppp)",
    "gaps": "n(ppnddnppp)",
    "count_up_to": "(pnpnnp)",
    "follow": "n(pnpnpndppp)",
    "accept": "n(pnnppnnpppnpp)",
    "distinct": "(pnnnppnp)",
    "arrive": "n(pn)",
    "await": "n(pnn)",
    "pack": "(ppnnfnnpp)",
    "add_entries": "n(ppnnnppp)",
    "bins": "(pnnnpnp)",
}
"""Result and arguments of every loop: p is a pointer, n a whole number, f and d are floats of 32 and 64 bits."""
_KINDS = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float, "d": ctypes.c_double, "": None}


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
