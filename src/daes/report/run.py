"""A run as the report sees it: whatever its folder holds, in arrays; what it lacks is None or empty."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def _empty() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Rows grouped by prediction, all (bins,)."""

    weight: Floats
    prediction: Floats
    label: Floats


@dataclass(frozen=True, eq=False)
class Drift:
    """How segments of the stream differ from its first `reference_rows` rows.

    **Shape.** `rows` (S,), the ends of the segments; the others (S, q). `…_by_chance` is what a feature without drift
    shows on average.
    """

    names: tuple[str, ...]
    rows: Floats
    reference_rows: int
    psi: Floats
    ks: Floats
    psi_by_chance: Floats
    ks_by_chance: Floats


@dataclass(frozen=True, eq=False)
class Knots:
    """Where the knots were. **Shape.** `rows` (T,), `levels` (K,), `values` (T, q, K)."""

    names: tuple[str, ...]
    rows: Floats
    levels: Floats
    values: Floats


@dataclass(frozen=True, eq=False)
class Run:
    """One pass of one model over a stream.

    `history` has an array a column (`rows`, `seconds`, `auc`, `window_auc`, …); `undefined` says why a metric is NaN;
    `missing` is by column; `segment_rows` are the ends of the segments that `missing`, `speed`, `click_rate` and
    `mean_prediction` are about.
    """

    title: str
    lead: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    undefined: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[str, Floats] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    window: int | None = None
    rows: int | None = None
    seconds: float | None = None
    reliability: Reliability | None = None
    drift: Drift | None = None
    missing: Mapping[str, Floats] = field(default_factory=dict)
    segment_rows: Floats = field(default_factory=_empty)
    speed: Floats = field(default_factory=_empty)
    click_rate: Floats = field(default_factory=_empty)
    mean_prediction: Floats = field(default_factory=_empty)
    knots: Knots | None = None
    quantiles: Knots | None = None
    bad_batches: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()
