"""How many meta-embeddings: M = 10 … 50, DAES against AutoDis."""

from typing import TYPE_CHECKING

from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Experiment, Findings, Means, Settings
from daes.paper.published import METHOD_TITLES
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, failures, how_trained, line_figure, means_and_spreads, scores_table
from daes.paper.trials import ABLATION_BACKBONES, Variant, run_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (10, 20, 30, 40, 50)
METHODS = ("daes-gate", "daes-tran", "autodis")


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    methods = settings.methods or METHODS
    variants = {
        _label(method, number): Variant(method, {"num_meta": number}) for method in methods for number in COUNTS
    }
    return {**run_trials(settings, data, means, variants, ABLATION_BACKBONES), "methods": methods}


def _label(method: str, number: int) -> str:
    return f"{METHOD_TITLES[method]}, M = {number}"


def markdown(result: Result) -> str:
    return f"{how_trained(result)}\n\n{scores_table(result.results)}{failures(result.results)}"


def verdict(result: Result) -> str:
    methods = [method for method in result.results["methods"] if method != "autodis"]
    if len(methods) == len(result.results["methods"]):
        return "AutoDis was not among the methods."
    pairs = [(_label(m, number), _label("autodis", number)) for m in methods for number in COUNTS]
    trends = []
    for method in result.results["methods"]:
        gains = [
            f"{means[-1] - means[0]:+.4f}"
            for backbone in result.results["training"]["backbones"]
            for means, _ in [
                means_and_spreads(result.results["scores"], [_label(method, n) for n in COUNTS], backbone, "auc")
            ]
        ]
        trends.append(f"{METHOD_TITLES[method]} {', '.join(gains)}")
    change = f"Change of AUC from M = {COUNTS[0]} to {COUNTS[-1]}, by backbone: {'; '.join(trends)}."
    return f"DAES against AutoDis at the same M: {compare_pairs(result, pairs)} {change}"


def draw(result: Result) -> "Figure":
    methods = result.results["methods"]
    series = {METHOD_TITLES[m]: (COUNTS, [_label(m, number) for number in COUNTS]) for m in methods}
    return line_figure(result, series, "meta-embeddings a feature, M", "More meta-embeddings: DAES and AutoDis")


EXPERIMENT = Experiment(
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
    run=run,
    markdown=markdown,
    verdict=verdict,
    draw=draw,
    data=("adstream", "flights"),
    uses=TRAINING,
)
