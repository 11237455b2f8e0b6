"""Training experiments: variants × backbones × seeds as resumable cells, and the scores that come of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import log2
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from daes.paper.data import DataSet
from daes.paper.experiment import Findings, Means, OutOfTimeError, Settings
from daes.paper.published import BATCH_SIZE, L2_WEIGHTS, LEARNING_RATES

if TYPE_CHECKING:
    from daes.stream.schema import Schema
    from daes.training.cell import Cell, CellResult
    from daes.training.compare import CellProgress
    from daes.training.data import Data

LEARNING_RATE, L2 = 1e-3, 1e-6
"""Where nothing is tuned: the fastest learning rate and the weakest L2 weight of the paper's grid."""
HEADLINE = {"stream": {"auc": "half_auc", "logloss": "half_logloss"}, "paper": {"auc": "auc", "logloss": "logloss"}}
"""The measures that tables show: over the second half of the stream, or on the test part."""
SCOPE = {"stream": "second half of one pass, scored before trained on", "paper": "test part, chronological 80/10/10"}

ABLATION_BACKBONES = ("deepfm",)
"""The paper does not say which backbone the figures of its ablations show."""

_STEPS = 1000
_SMALLEST_BATCH = 256
_TUNING_SHARE = 4  # the stream protocol tunes on the first 1/4 of the stream
_VOCABULARY = {"mode": "vocabulary"}


@dataclass(frozen=True)
class Variant:
    """What is trained under a label.

    Args:
        method: a name of `daes.embedding.METHODS`.
        options: of the method.
        model: further arguments of `CTRModel.from_sample`, such as `context`.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuned:
    """What tuning chooses."""

    learning_rate: float = LEARNING_RATE
    l2: float = L2


def run_trials(
    settings: Settings,
    data: DataSet,
    means: Means,
    variants: Mapping[str, Variant],
    backbones: Sequence[str],
    *,
    schema: "Schema | None" = None,
) -> Findings:
    """Train every variant on every backbone with every seed.

    Args:
        settings, data, means: as given to the experiment.
        variants: by label.
        backbones: where the settings name none.
        schema: other columns than the data set's own.

    Returns:
        `training` (how it was trained), `scores` (label → backbone → measure → one value a seed), `tuned` (label →
        backbone → what tuning chose), `seconds` (label → mean of a cell) and `failures`.
    """
    source = _data(data, settings.rows, schema)
    names = settings.backbones or tuple(backbones)
    batch_size = settings.batch_size or suitable_batch_size(data.length(settings.rows))
    make = partial(_cell, settings, batch_size)
    chosen = {place: Tuned() for place in product(variants, names)}
    if settings.tune:
        chosen = _tune(settings, source, means, variants, names, make)
    cells = [
        make(label, variants[label], backbone, seed, chosen[label, backbone])
        for seed, backbone, label in product(range(settings.seeds), names, variants)
    ]
    results = _run(cells, source, means)
    return {
        "training": {
            "protocol": settings.protocol,
            "scope": SCOPE[settings.protocol],
            "batch_size": batch_size,
            "learning_rate": None if settings.tune else LEARNING_RATE,
            "l2": None if settings.tune else L2,
            "backbones": list(names),
        },
        "scores": _scores(results, settings.protocol),
        "tuned": _chosen(chosen) if settings.tune else {},
        "seconds": _seconds(results),
        "failures": [f"{r.label} on {r.backbone}, seed {r.seed}: {r.error}" for r in results if r.error is not None],
    }


def suitable_batch_size(rows: int | None) -> int:
    """The paper's 8192, or on fewer rows a power of two that makes about a thousand steps, at least 256.

    >>> [suitable_batch_size(rows) for rows in (20_000, 137_139, 1_000_000, 45_840_617, None)]
    [256, 256, 1024, 8192, 8192]
    """
    if rows is None:
        return BATCH_SIZE
    return min(max(int(2.0 ** round(log2(max(rows, 1) / _STEPS))), _SMALLEST_BATCH), BATCH_SIZE)


def summary(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation over the seeds, None where there are too few."""
    known = [value for value in values if value is not None]
    return (fmean(known) if known else None, stdev(known) if len(known) > 1 else None)


def _data(data: DataSet, rows: int | None, schema: "Schema | None") -> "Data":
    from daes.training.data import Data

    own = data.open().schema
    assert own is not None
    return Data(data.spec, schema or own, max_rows=rows)


def _cell(
    settings: Settings, batch_size: int, label: str, variant: Variant, backbone: str, seed: int, tuned: Tuned
) -> "Cell":
    from daes.training.cell import Cell
    from daes.training.config import TrainConfig

    return Cell(
        label=label,
        method=variant.method,
        backbone=backbone,
        seed=seed,
        protocol=settings.protocol,
        train=TrainConfig(batch_size=batch_size, learning_rate=tuned.learning_rate, bad_batch="skip"),
        model={
            "l2": tuned.l2,
            # As usual with Criteo: ids seen fewer than five times share one row.
            "categorical_options": _VOCABULARY,
            **variant.model,
            **({"embedding_options": dict(variant.options)} if variant.options else {}),
        },
        device=settings.device,
    )


def _tune(
    settings: Settings,
    source: "Data",
    means: Means,
    variants: Mapping[str, Variant],
    backbones: Sequence[str],
    make: Any,
) -> dict[tuple[str, str], Tuned]:
    """The learning rate and L2 weight of least LogLoss on validation data, by one seed, for each variant and backbone.

    By the paper's protocol that is its validation part; by the stream protocol the first quarter of the stream.
    """
    stream = settings.protocol == "stream"
    measure = HEADLINE["stream"]["logloss"] if stream else "valid_logloss"
    rows = source.max_rows or source.open().source.num_rows
    if stream and rows is not None:
        source = replace(source, max_rows=max(rows // _TUNING_SHARE, 1))
    grid = [Tuned(*pair) for pair in product(LEARNING_RATES, L2_WEIGHTS)]
    places = [(label, backbone, tuned) for label, backbone in product(variants, backbones) for tuned in grid]
    cells = [make(label, variants[label], backbone, 0, tuned) for label, backbone, tuned in places]
    best: dict[tuple[str, str], tuple[float, Tuned]] = {}
    for (label, backbone, tuned), result in zip(places, _run(cells, source, means), strict=True):
        loss = result.metrics.get(measure, float("inf"))
        if loss < best.get((label, backbone), (float("inf"), Tuned()))[0]:
            best[label, backbone] = (loss, tuned)
    return {place: best[place][1] if place in best else Tuned() for place in product(variants, backbones)}


def _run(cells: Sequence["Cell"], source: "Data", means: Means) -> list["CellResult"]:
    from daes.training.compare import run_cells

    def progress(state: "CellProgress") -> None:
        if state.result is not None:
            cell, took = state.cell, state.result.seconds
            outcome = state.result.error or f"{took:.0f} s"
            means.note(f"{state.cells_done}/{state.cells} {cell.label} {cell.backbone} seed {cell.seed}: {outcome}")

    results = run_cells(cells, source, jobs=means.jobs, out=means.folder, progress=progress, deadline=means.deadline)
    if len(results) < len(cells):
        raise OutOfTimeError(f"{len(results)} of {len(cells)} cells are done")
    return results


def _scores(results: Sequence["CellResult"], protocol: str) -> Findings:
    scores: Findings = {}
    for result in results:
        place = scores.setdefault(result.label, {}).setdefault(result.backbone, {})
        for name, measure in HEADLINE[protocol].items():
            place.setdefault(name, []).append(result.metrics.get(measure))
            if measure != name:
                place.setdefault(f"whole_{name}", []).append(result.metrics.get(name))
    return scores


def _seconds(results: Sequence["CellResult"]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for result in results:
        found.setdefault(result.label, []).append(result.seconds)
    return {label: fmean(several) for label, several in found.items()}


def _chosen(chosen: Mapping[tuple[str, str], Tuned]) -> Findings:
    nested: Findings = {}
    for (label, backbone), tuned in chosen.items():
        nested.setdefault(label, {})[backbone] = {"learning_rate": tuned.learning_rate, "l2": tuned.l2}
    return nested
