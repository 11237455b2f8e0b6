"""Compiled loops for steps on the CPU, where they were built; everything works without them, more slowly.

A step on 128 rows is some hundred small operations, each of which takes longer to call than to compute. The loops of
`kernels.c` each do the work of dozens. They are compiled when the package is installed, if there is a C compiler, or by
`python -m daes.native`; `DAES_NATIVE=0` in the environment turns them off. The plain versions beside their calls
say what they compute, to float precision.

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


_COUNTING = (
    "accept",
    "add_entries",
    "add_up",
    "arrive",
    "await",
    "follow",
    "gaps",
    "gradients",
    "group",
    "observe",
    "score",
    "within",
)


def _load() -> Any:
    if os.environ.get("DAES_NATIVE") == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(library()))
    except OSError:
        return None
    pointer, number, single, double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_double
    kinds = {"p": pointer, "n": number, "f": single, "d": double}
    for name, arguments in {
        "within": "pnn",
        "hash_rows": "pppnnp",
        "look_up": "ppnnnpn",
        "add_up": "pnpnnnnppp",
        "adagrad_rows": "ppppnnff",
        "evidence": "ppppnp",
        "recall": "ppppnp",
        "combine": "ppppnp",
        "count": "ppppppnnn",
        "note": "pppppnnppp",
        "count_columns": "ppnpnnnnpp",
        "values": "pppnnnp",
        "tally": "pnppnnnnp",
        "errors": "ppndp",
        "rate": "pnnpppnndpppp",
        "read": "pnnppppnnpp",
        "keep": "pppppnnnppnp",
        "blend": "pnnpnpppnnpppnpnpp",
        "blend_backward": "pnnnnnpnppppp",
        "gated_blend": "pppnpnpppppppp",
        "gated_blend_backward": "ppnppppppp",
        "observe": "ppnpnppnp",
        "refresh": "pnppnnnppppnppnnppp",
        "join": "ppnnnnnnpfpnfpppp",
        "join_backward": "pnnnnnpppfnppp",
        "loss": "pppn",
        "relu_backward": "pnpnnfp",
        "squares": "ppn",
        "find": "ppppnn",
        "inputs": "pppnn",
        "gradients": "pppppn",
        "group": "ppp",
        "project": "pppnn",
        "gather": "ppppnnpp",
        "scatter": "ppppnnnpp",
        "score": "pppnp",
        "draw": "pnnppp",
        "gaps": "ppnddnppp",
        "count_up_to": "pnpnnp",
        "follow": "pnpnpndppp",
        "accept": "pnnppnnpppnpp",
        "distinct": "pnnnppnp",
        "arrive": "pn",
        "await": "pnn",
        "pack": "ppnnfnnpp",
        "add_entries": "ppnnnppp",
        "bins": "pnnnpnp",
    }.items():
        function = getattr(loaded, f"daes_{name}")
        function.argtypes = [kinds[kind] for kind in arguments]
        function.restype = {"squares": double, "loss": double}.get(name, number if name in _COUNTING else None)
    return loaded


_library = _load()
_blends = ("blend", "gated_blend")
__getattr__, __dir__ = lazy_names(
    __name__,
    {"daes.native.blends": _blends, "daes.native.tensors": [name for name in __all__ if name not in _blends]},
)
