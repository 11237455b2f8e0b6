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


def gate_tables(vectors: Tensor, projection: Tensor, table: Tensor, beta: float) -> Tensor:
    """The table of each context under a gate: contexts (U, c), W (q, R, c), table (q, R, d) → (U, q, R, d)."""
    from daes.embedding.kernels.gated_tables import gate_tables

    found: Tensor = gate_tables(vectors, projection, table, beta)
    return found


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


def recall(
    numbers: Tensor,
    rows: Tensor,
    counted: tuple[Tensor, Tensor, Tensor, Tensor],
    waiting: int,
    half_life: float,
    strength: float,
) -> Tensor:
    """Recent errors z of numbers (B, q) and rows (B, p), by total, edges, errors and clock: (B, 2·(1 + q + p))."""
    from daes.embedding.kernels.recent import recall

    found: Tensor = recall(numbers, rows, *counted, waiting, half_life, strength)
    return found


def note(
    numbers: Tensor,
    rows: Tensor,
    counted: tuple[Tensor, Tensor, Tensor],
    labels: Tensor,
    logits: Tensor,
    half_life: float,
) -> None:
    """Note the errors of logits (B,) for numbers (B, q) and rows (B, p), by edges, in errors and clock, in place."""
    from daes.embedding.kernels.recent import note

    note(numbers, rows, *counted, labels, logits, half_life)


def count(numbers: Tensor, rows: Tensor, labels: Tensor, counted: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Count labels (B,) of numbers (B, q) and rows (B, p), by edges, in total and both counts, in place."""
    from daes.embedding.kernels.rows import count

    count(numbers, rows, labels, *counted)


def combine(
    numbers: Tensor,
    rows: Tensor,
    counted: tuple[Tensor, Tensor],
    combinations: tuple[Tensor, Tensor, Tensor],
    each: int,
    strength: float,
) -> Tensor:
    """What combinations add to logits (B,), by edges and total, and their fields, errors and weight."""
    from daes.embedding.kernels.combined import combine

    found: Tensor = combine(numbers, rows, *counted, *combinations, each, strength)[0]
    return found


def note_combined(
    numbers: Tensor,
    rows: Tensor,
    combinations: tuple[Tensor, Tensor, Tensor],
    labels: Tensor,
    logits: Tensor,
    each: int,
) -> None:
    """Note the errors of logits (B,) for numbers (B, q) and rows (B, p), by edges and fields, in errors, in place."""
    from daes.embedding.kernels.combined import note_combined

    note_combined(numbers, rows, *combinations, labels, logits, each)
