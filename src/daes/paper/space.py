"""Interpolation in value space against quantile space."""

from typing import TYPE_CHECKING

from daes.paper.ablation import ablation
from daes.paper.judging import Glance
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, dot_figure
from daes.paper.trials import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = {
    "gate, quantile space": Variant("daes-gate"),
    "gate, value space": Variant("daes-gate", {"value_space": True}),
    "tran, quantile space": Variant("daes-tran"),
    "tran, value space": Variant("daes-tran", {"value_space": True}),
    "no modulation, quantile space": Variant("daes-gate", {"beta": 0.0}),
    "no modulation, value space": Variant("daes-gate", {"beta": 0.0, "value_space": True}),
    "distances to quantiles": Variant("dae"),
}


def verdict(result: Result) -> str:
    distances = [("no modulation, quantile space", "distances to quantiles")]
    return (
        f"{glance(result)[1]} Quantile space without modulation against distances to quantiles: "
        f"{compare_pairs(result, distances)}"
    )


def glance(result: Result) -> Glance:
    """(1) Quantile space has a higher AUC than value space in most cases. (2) Significantly so in most."""
    kinds = ("gate", "tran", "no modulation")
    spaces = compare_pairs(result, [(f"{kind}, quantile space", f"{kind}, value space") for kind in kinds])
    return spaces.parts, f"Quantile space against value space: {spaces}"


def draw(result: Result) -> "Figure":
    groups = {
        kind: {label: label for label in result.results["scores"] if label.endswith(kind)}
        for kind in ("quantile space", "value space", "distances to quantiles")
    }
    return dot_figure(result, groups, "Interpolation in quantile space and in value space")


EXPERIMENT = ablation(
    name="space",
    title="Interpolation space",
    what="DAES with knots at quantiles against knots evenly spaced in value, and against distances to quantiles",
    claim="""
    Figure 3: interpolation in quantile space is better than in value space. (Numbers are only in the figure.)
    """,
    differs="""
    The paper uses "value space" in two senses. Its figure interpolates there; that is DAES with M equal parts
    between the smallest and the largest value seen, everything else the same, with both modulations and with none.
    Its text (§3.3 and the appendix on limitations) means the distances |x − q| of a value to quantiles, which DAE
    encodes; that row is our reconstruction of DAE, which also differs from DAES by its quantiles (order statistics,
    no reservoir) and by a small network in place of interpolation.
    """,
    variants=lambda settings, data: (VARIANTS, {}),
    verdict=verdict,
    glance=glance,
    draw=draw,
)
