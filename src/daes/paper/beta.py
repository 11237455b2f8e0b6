"""How far the context should reach: β from 0 to 1."""

from typing import TYPE_CHECKING

import numpy as np

from daes.paper.ablation import ablation
from daes.paper.judging import Glance
from daes.paper.published import BETA
from daes.paper.result import Result
from daes.paper.scores import Series, compare_pairs, line_figure, means_and_spreads
from daes.paper.titles import backbone_title
from daes.paper.trials import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETAS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
MODULATIONS = ("gate", "tran")


def _label(kind: str, beta: float) -> str:
    return f"{kind}, β = {beta:g}" if beta else "no modulation (β = 0)"


# At β = 0 there is no modulation, whichever it is.
VARIANTS = {_label(kind, beta): Variant(f"daes-{kind}", {"beta": beta}) for kind in MODULATIONS for beta in BETAS}


def series(result: Result) -> Series:
    return {kind: (BETAS, [_label(kind, beta) for beta in BETAS]) for kind in MODULATIONS}


def verdict(result: Result) -> str:
    best = []
    for kind, (_, labels) in series(result).items():
        for backbone in result.results["training"]["backbones"]:
            means, _ = means_and_spreads(result.results["scores"], labels, backbone, "auc")
            if np.isfinite(means).any():
                best.append(f"{BETAS[int(np.nanargmax(means))]:g} ({kind}, {backbone_title(backbone)})")
    highest = f" The β of highest AUC: {', '.join(best)}." if best else ""
    return f"{glance(result)[1]}{highest}"


def glance(result: Result) -> Glance:
    """(1) β = 0.5 has a higher AUC than no modulation in most cases. (2) Significantly so in most."""
    modulated = compare_pairs(result, [(_label(kind, BETA), _label(kind, 0.0)) for kind in MODULATIONS])
    return modulated.parts, f"β = {BETA:g} against no modulation: {modulated}"


def draw(result: Result) -> "Figure":
    return line_figure(result, series(result), "β", "The reach of the context, from none to all")


EXPERIMENT = ablation(
    name="beta",
    title="Distribution modulation: β",
    what="β from 0 to 1, gate and tran",
    claim="""
    Figure 4: weights that the context modulates (β > 0) are significantly better than others (β = 0). (Numbers are
    only in the figure.)
    """,
    differs="""
    β = 0 is one model for both modulations. It is judged at the paper's default, β = 0.5. The paper does not say which
    backbone its figure shows.
    """,
    variants=lambda settings, data: (VARIANTS, {}),
    verdict=verdict,
    glance=glance,
    draw=draw,
    series=("β", series),
)
