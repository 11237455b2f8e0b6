"""Triton kernels for CUDA devices.

Every kernel does what plain torch code of the project does, which stays for the CPU, for other precisions, for exports
and where Triton is missing; tests compare the two. `usable` is the one place that decides.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from daes.embedding.knots import FeatureInput, FeatureKnots

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


def blend(
    values: Tensor,
    knots: Tensor,
    known: "FeatureKnots",
    table: Tensor,
    missing: Tensor,
    *,
    index: Tensor | None = None,
    linear: "FeatureInput | None" = None,
    linear_weight: Tensor | None = None,
    plain: "Sequence[FeatureInput]" = (),
) -> tuple[Tensor, Tensor]:
    """The blend of two rows of a table that the place of each value asks for, and plain inputs.

    **Shape.** values (B, q) with NaN = missing, knots (q, K+1), table (U, q, M+1, d), missing and linear_weight (q, d),
    index (B,), the table of each row → (B, q, d) and (B, q · kinds in `plain`).
    """
    from daes.embedding.kernels.interpolation import interpolate

    fields, inputs = interpolate(
        values, knots, known.centre, known.scale, table, missing, linear_weight, index, linear or "", ",".join(plain)
    )
    return fields, inputs


def mix(
    weights: Tensor, table: Tensor, base: Tensor | None = None, *, beta: float = 1.0, squash: bool = False
) -> Tensor:
    """base + β·Σ_i w_i E_i, with the sigmoid of w if `squash`: (B, q, M), (q, M, d), (B, q, d) → (B, q, d)."""
    from daes.embedding.kernels.mixing import mix

    found: Tensor = mix(weights, table, base, beta, squash)
    return found


def look_up(table: Tensor, rows: Tensor) -> Tensor:
    """The rows of a table: (N, d) and (…) → (…, d)."""
    from daes.embedding.kernels.rows import look_up

    found: Tensor = look_up(table, rows)
    return found


def evidence(numbers: Tensor, rows: Tensor, counted: tuple[Tensor, Tensor, Tensor, Tensor], strength: float) -> Tensor:
    """Log odds of numbers (B, q) and rows (B, p), confidence of the rows, by total, edges and counts: (B, q + 2p)."""
    from daes.embedding.kernels.rows import evidence

    found: Tensor = evidence(numbers, rows, *counted, strength)
    return found
