"""How many meta-embeddings: M = 10 … 50, DAES against AutoDis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daes.formatting import fixed
from daes.paper.ablation import ablation, against_autodis, ours
from daes.paper.experiment import TRAINING, Findings, Settings
from daes.paper.judging import Glance, most
from daes.paper.result import Result
from daes.paper.scores import Series, changes, line_figure
from daes.paper.titles import method_title
from daes.paper.trials import Variant, known
from daes.stream.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (10, 20, 30, 40, 50)
METHODS = ("daes-gate", "daes-tran", "autodis")


def variants(settings: Settings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
    methods = settings.methods or METHODS
    chosen = {_label(method, number): Variant(method, {"num_meta": number}) for method in methods for number in COUNTS}
    return chosen, {"methods": methods}


def _label(method: str, number: int) -> str:
    return f"{method_title(method)}, M = {number}"


def _labels(method: str) -> list[str]:
    return [_label(method, number) for number in COUNTS]


def series(result: Result) -> Series:
    return {method_title(method): (COUNTS, _labels(method)) for method in result.results["methods"]}


def verdict(result: Result) -> str:
    trends = [
        f"{method_title(method)} {', '.join(fixed(gain, sign=True) for gain in _gains(result, method))}"
        for method in result.results["methods"]
    ]
    return (
        f"DAES against AutoDis at the same M: {against_autodis(result, _labels)} Change of AUC from M = {COUNTS[0]} to "
        f"{COUNTS[-1]}, by backbone: {'; '.join(trends)}."
    )


def glance(result: Result) -> Glance:
    """(1) DAES has a higher AUC than AutoDis at the same M in most cases. (2) Significantly so in most. (3) From M = 10
    to 50 the AUC of DAES rises in most cases. (4) That of AutoDis falls in most.
    """
    against = against_autodis(result, _labels)
    sentence = f"DAES against AutoDis: {against}"
    if not against.parts:
        return (), sentence
    daes = known([gain for method in ours(result) for gain in _gains(result, method)])
    autodis = known(_gains(result, "autodis"))
    rises, falls = sum(gain > 0 for gain in daes), sum(gain < 0 for gain in autodis)
    return (*against.parts, most(rises, len(daes)), most(falls, len(autodis))), (
        f"{sentence} From M = {COUNTS[0]} to {COUNTS[-1]} the AUC of DAES rises in {rises} of {len(daes)} cases, that "
        f"of AutoDis falls in {falls} of {len(autodis)}."
    )


def _gains(result: Result, method: str) -> list[float | None]:
    first, *_, last = _labels(method)
    return changes(result, first, last)


def draw(result: Result) -> "Figure":
    title = "More meta-embeddings: DAES and AutoDis"
    return line_figure(result, series(result), "meta-embeddings a feature, M", title)


EXPERIMENT = ablation(
    name="meta-count",
    title="Number of meta-embeddings",
    what="M = 10 … 50 meta-embeddings, DAES against AutoDis",
    claim="""
    Figure 5: DAES is better than AutoDis at every M from 10 to 50 and gains a little with M, while AutoDis
    loses. (Criteo; numbers are only in the figure.)
    """,
    differs="""
    AutoDis's input is min–max scaled as in its paper, which long tails make hard.
    """,
    variants=variants,
    verdict=verdict,
    glance=glance,
    draw=draw,
    series=("M", series),
    uses=TRAINING,
)
