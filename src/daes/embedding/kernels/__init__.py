"""Triton kernels for CUDA devices.

Every kernel does what plain torch code of the project does, which stays for the CPU, for other precisions, for exports
and where Triton is missing; tests compare the two. `usable` is the one place that decides.

The operators of the modules in `_HOMES` are also here. They are imported when they are first used: they need Triton.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from daes.lazy import lazy_names

if TYPE_CHECKING:
    from daes.embedding.knots import FeatureInput, FeatureKnots

_HOMES = {
    "daes.embedding.kernels.combined": ("combine", "note_combined"),
    "daes.embedding.kernels.gated_tables": ("gate_tables",),
    "daes.embedding.kernels.mixing": ("mix",),
    "daes.embedding.kernels.recent": ("note", "recall"),
    "daes.embedding.kernels.rows": ("count", "evidence", "look_up"),
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)

HAS_TRITON = find_spec("triton") is not None

DEVICES = {"cuda"}
"""Types of devices that kernels run on; with Triton's interpreter also "cpu"."""


def usable(*tensors: Tensor | None) -> bool:
    """Whether kernels can take these tensors: float32 (or not floating point) and on a device for kernels."""
    return (
        HAS_TRITON
        and not torch.compiler.is_exporting()
        and all(
            tensor.device.type in DEVICES and (tensor.dtype == torch.float32 or not tensor.is_floating_point())
            for tensor in tensors
            if tensor is not None
        )
    )


MOST_ROWS, MOST_DIM = 126, 128
"""Rows of a feature's table and dimension that kernels take."""


def fit(table: Tensor) -> bool:
    """Whether a table (q, rows, d) is of a size for kernels; larger ones go through matrix products."""
    return table.shape[1] < MOST_ROWS and table.shape[2] <= MOST_DIM


def fit_gate(projection: Tensor, table: Tensor) -> bool:
    """Whether a gate's projection (q, rows, c) and table (q, rows, d) are of a size for a kernel's registers."""
    return table.shape[1] <= 30 and max(projection.shape[2], table.shape[2]) <= 64


def blend(
    values: Tensor,
    knots: Tensor,
    known: "FeatureKnots",
    table: Tensor,
    missing: Tensor,
    *,
    bins: int,
    index: Tensor | None = None,
    gate: tuple[Tensor, Tensor, float] | None = None,
    linear: "FeatureInput | None" = None,
    linear_weight: Tensor | None = None,
    plain: "Sequence[FeatureInput]" = (),
) -> tuple[Tensor, Tensor]:
    """The sum of a table's rows with the weights of each value's place, and plain inputs.

    **Shape.** values (B, q) with NaN = missing, knots (q, K+1), table (U, q, R, d), where R is `bins` on the
    thermometer basis and one more on the hat basis, missing and linear_weight (q, d), index (B,), the table of each row
    → (B, q, d) and (B, q · kinds in `plain`).

    Args:
        gate: context (B, c), projection (q, R, c) and β of a gate that weights are multiplied with; then U is 1.
    """
    places, rest = (values, knots, known.centre, known.scale), (linear or "", ",".join(plain))
    if gate is not None:
        from daes.embedding.kernels.gating import gated

        context, projection, beta = gate
        found = gated(*places, context, projection, table[0], missing, linear_weight, bins, beta, *rest)
    else:
        from daes.embedding.kernels.interpolation import interpolate

        found = interpolate(*places, table, missing, linear_weight, index, bins, *rest)
    fields, inputs = found
    return fields, inputs
