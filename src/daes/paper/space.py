"""Interpolation in value space against quantile space."""

from typing import TYPE_CHECKING

from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Experiment, Findings, Means, Settings
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, dot_figure, failures, how_trained, scores_table
from daes.paper.trials import ABLATION_BACKBONES, Variant, run_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = {
    "gate, quantile space": Variant("daes-gate"),
    "gate, value space": Variant("daes-gate", {"value_space": True}),
    "tran, quantile space": Variant("daes-tran"),
    "tran, value space": Variant("daes-tran", {"value_space": True}),
    "no modulation, quantile space": Variant("daes-gate", {"beta": 0.0}),
    "no modulation, value space": Variant("daes-gate", {"beta": 0.0, "value_space": True}),
}


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    return run_trials(settings, data, means, VARIANTS, ABLATION_BACKBONES)


def markdown(result: Result) -> str:
    return f"{how_trained(result)}\n\n{scores_table(result.results)}{failures(result.results)}"


def verdict(result: Result) -> str:
    kinds = ("gate", "tran", "no modulation")
    pairs = [(f"{kind}, quantile space", f"{kind}, value space") for kind in kinds]
    return f"Quantile space against value space: {compare_pairs(result, pairs)}"


def draw(result: Result) -> "Figure":
    groups = {
        space: {label: label for label in VARIANTS if label.endswith(space)}
        for space in ("quantile space", "value space")
    }
    return dot_figure(result, groups, "Interpolation in quantile space and in value space")


EXPERIMENT = Experiment(
    name="space",
    title="Interpolation space",
    what="DAES with knots at quantiles against knots evenly spaced in value",
    claim="""
    Figure 3: interpolation in quantile space is better than in value space. (Numbers are only in the figure.)
    """,
    differs="""
    Value space is DAES with M equal parts between the smallest and the largest value seen, everything else the
    same. Both modulations and none are shown.
    """,
    run=run,
    markdown=markdown,
    verdict=verdict,
    draw=draw,
    data=("adstream", "flights"),
    uses=TRAINING,
)
