"""How far the context should reach: β from 0 to 1."""

from typing import TYPE_CHECKING

import numpy as np

from daes.paper.ablation import ablation
from daes.paper.published import BACKBONE_TITLES, BETA
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, line_figure, means_and_spreads
from daes.paper.trials import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETAS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
MODULATIONS = ("gate", "tran")


def _label(kind: str, beta: float) -> str:
    return f"{kind}, β = {beta:g}" if beta else "no modulation (β = 0)"


# At β = 0 there is no modulation, whichever it is.
VARIANTS = {_label(kind, beta): Variant(f"daes-{kind}", {"beta": beta}) for kind in MODULATIONS for beta in BETAS}


def verdict(result: Result) -> str:
    none = _label("gate", 0.0)
    pairs = [(_label(kind, BETA), none) for kind in MODULATIONS]
    best = []
    for kind in MODULATIONS:
        for backbone in result.results["training"]["backbones"]:
            means, _ = means_and_spreads(result.results["scores"], [_label(kind, b) for b in BETAS], backbone, "auc")
            if np.isfinite(means).any():
                best.append(f"{BETAS[int(np.nanargmax(means))]:g} ({kind}, {BACKBONE_TITLES.get(backbone, backbone)})")
    highest = f" The β of highest AUC: {', '.join(best)}." if best else ""
    return f"β = {BETA} against none: {compare_pairs(result, pairs)}{highest}"


def draw(result: Result) -> "Figure":
    series = {kind: (BETAS, [_label(kind, beta) for beta in BETAS]) for kind in MODULATIONS}
    return line_figure(result, series, "β", "The reach of the context, from none to all")


EXPERIMENT = ablation(
    name="beta",
    title="Distribution modulation: β",
    what="β from 0 to 1, gate and tran",
    claim="""
    Figure 4: modulated weights are significantly better than none (β = 0). (Numbers are only in the figure.)
    """,
    differs="""
    β = 0 is one model for both modulations. The paper does not say which backbone its figure shows.
    """,
    variants=lambda settings, data: (VARIANTS, {}),
    verdict=verdict,
    draw=draw,
)
