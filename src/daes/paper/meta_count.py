"""How many meta-embeddings: M = 10 … 50, DAES against AutoDis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daes.paper.ablation import ablation
from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Findings, Settings
from daes.paper.published import METHOD_TITLES
from daes.paper.result import Result
from daes.paper.scores import change, compare_pairs, line_figure
from daes.paper.trials import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (10, 20, 30, 40, 50)
METHODS = ("daes-gate", "daes-tran", "autodis")


def variants(settings: Settings, data: DataSet) -> tuple[Mapping[str, Variant], Findings]:
    methods = settings.methods or METHODS
    chosen = {_label(method, number): Variant(method, {"num_meta": number}) for method in methods for number in COUNTS}
    return chosen, {"methods": methods}


def _label(method: str, number: int) -> str:
    return f"{METHOD_TITLES[method]}, M = {number}"


def verdict(result: Result) -> str:
    methods = [method for method in result.results["methods"] if method != "autodis"]
    if len(methods) == len(result.results["methods"]):
        return "AutoDis was not among the methods."
    pairs = [(_label(m, number), _label("autodis", number)) for m in methods for number in COUNTS]
    trends = []
    for method in result.results["methods"]:
        ends = [_label(method, COUNTS[0]), _label(method, COUNTS[-1])]
        gains = [change(result, backbone, *ends) for backbone in result.results["training"]["backbones"]]
        trends.append(f"{METHOD_TITLES[method]} {', '.join(gains)}")
    shown = f"Change of AUC from M = {COUNTS[0]} to {COUNTS[-1]}, by backbone: {'; '.join(trends)}."
    return f"DAES against AutoDis at the same M: {compare_pairs(result, pairs)} {shown}"


def draw(result: Result) -> "Figure":
    methods = result.results["methods"]
    series = {METHOD_TITLES[m]: (COUNTS, [_label(m, number) for number in COUNTS]) for m in methods}
    return line_figure(result, series, "meta-embeddings a feature, M", "More meta-embeddings: DAES and AutoDis")


EXPERIMENT = ablation(
    name="meta-count",
    title="Number of meta-embeddings",
    what="M = 10 … 50 meta-embeddings, DAES against AutoDis",
    claim="""
    Figure 5: DAES is better than AutoDis at every M from 10 to 50 and gains a little with M, while AutoDis
    loses. (Criteo; numbers are only in the figure.)
    """,
    differs="""
    DAES in both forms. AutoDis's input is min–max scaled as in its paper, which long tails make hard.
    """,
    variants=variants,
    verdict=verdict,
    draw=draw,
    uses=TRAINING,
)
