"""Numerical features added one by one, DAES against AutoDis."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from daes.formatting import fixed
from daes.paper.ablation import ablation, against_autodis, ours
from daes.paper.experiment import TRAINING, Findings, Settings
from daes.paper.judging import Glance, most
from daes.paper.result import Result
from daes.paper.scores import Comparison, Series, changes, line_figure
from daes.paper.titles import method_title
from daes.paper.trials import Variant, known
from daes.stream.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("daes-gate", "autodis")


def variants(settings: Settings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
    methods = settings.methods or METHODS
    schema = data.schema
    chosen = {
        _label(method, number): Variant(method, numerical=schema.numerical[:number])
        for number in range(schema.num_numerical + 1)
        # Without a numerical feature the method does not matter: one of them stands for all.
        for method in (methods if number else methods[:1])
    }
    return chosen, {"methods": methods, "features": schema.numerical}


def _label(method: str, number: int) -> str:
    return f"{method_title(method)}, {number} numerical" if number else "categorical fields only"


def more(result: Result) -> str:
    return f"Features in the order in which they are added: {', '.join(result.results['features'])}."


def _labels(result: Result, method: str) -> list[str]:
    return [_label(method, number) for number in range(len(result.results["features"]) + 1)]


def series(result: Result) -> Series:
    places = range(len(result.results["features"]) + 1)
    return {method_title(method): (places, _labels(result, method)) for method in result.results["methods"]}


def verdict(result: Result) -> str:
    sentences = []
    for method in result.results["methods"]:
        gains, (first, *_, last) = _gains(result, method), _labels(result, method)
        whole = ", ".join(fixed(gain, sign=True) for gain in changes(result, first, last))
        sentences.append(
            f"{method_title(method)}: {sum(gain > 0 for gain in gains)} of {len(gains)} added features raise the AUC, "
            f"{whole} in all."
        )
    return " ".join([*sentences, f"DAES against AutoDis: {_against_autodis(result)}"])


def glance(result: Result) -> Glance:
    """(1) DAES has a higher AUC than AutoDis with the same features in most cases. (2) Significantly so in most. (3)
    Most features that are added raise the AUC of DAES.
    """
    against = _against_autodis(result)
    sentence = f"DAES against AutoDis: {against}"
    if not against.parts:
        return (), sentence
    gains = [gain for method in ours(result) for gain in _gains(result, method)]
    raised = sum(gain > 0 for gain in gains)
    return (*against.parts, most(raised, len(gains))), (
        f"{sentence} {raised} of {len(gains)} added features raise the AUC of DAES."
    )


def _against_autodis(result: Result) -> Comparison:
    # Without a numerical feature there is nothing to compare.
    return against_autodis(result, lambda method: _labels(result, method)[1:])


def _gains(result: Result, method: str) -> list[float]:
    """What each feature adds to the AUC, on all backbones, where it is known."""
    return known([gain for pair in pairwise(_labels(result, method)) for gain in changes(result, *pair)])


def draw(result: Result) -> "Figure":
    return line_figure(result, series(result), "numerical features", "Numerical features added one by one")


EXPERIMENT = ablation(
    name="feature-count",
    title="Number of numerical features",
    what="numerical features added one by one, DAES against AutoDis",
    claim="""
    Figure 5: from 26 categorical fields of Criteo on, every numerical feature that is added improves DAES,
    which is ahead of AutoDis throughout. (Numbers are only in the figure.)
    """,
    differs="""
    Features are added in the order of the columns; the paper does not give its order. Without any, one model stands
    for all methods.
    """,
    variants=variants,
    verdict=verdict,
    glance=glance,
    draw=draw,
    series=("numerical features", series),
    more=more,
    uses=TRAINING,
)
