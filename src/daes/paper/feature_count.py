"""Numerical features added one by one, DAES against AutoDis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from daes.paper.ablation import ablation
from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Findings, Settings
from daes.paper.published import METHOD_TITLES
from daes.paper.result import Result
from daes.paper.scores import change, compare_pairs, line_figure, means_and_spreads
from daes.paper.trials import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("daes-gate", "autodis")


def variants(settings: Settings, data: DataSet) -> tuple[Mapping[str, Variant], Findings]:
    methods = settings.methods or METHODS
    schema = data.open().schema
    assert schema is not None
    chosen = {
        _label(method, number): Variant(method, numerical=schema.numerical[:number])
        for number in range(schema.num_numerical + 1)
        # Without a numerical feature the method does not matter: one of them stands for all.
        for method in (methods if number else methods[:1])
    }
    return chosen, {"methods": methods, "features": schema.numerical}


def _label(method: str, number: int) -> str:
    return f"{METHOD_TITLES[method]}, {number} numerical" if number else "categorical fields only"


def more(result: Result) -> str:
    return f"In the order of the columns: {', '.join(result.results['features'])}."


def verdict(result: Result) -> str:
    methods, count = result.results["methods"], len(result.results["features"])
    backbone = result.results["training"]["backbones"][0]
    sentences = []
    for method in methods:
        labels = [_label(method, number) for number in range(count + 1)]
        means, _ = means_and_spreads(result.results["scores"], labels, backbone, "auc")
        better = int((np.diff(means) > 0).sum())
        sentences.append(
            f"{METHOD_TITLES[method]}: {better} of {count} added features raise the AUC, "
            f"{change(result, backbone, labels[0], labels[-1])} in all."
        )
    if "autodis" in methods:
        pairs = [(_label(m, n), _label("autodis", n)) for m in methods if m != "autodis" for n in range(1, count + 1)]
        sentences.append(f"DAES against AutoDis: {compare_pairs(result, pairs)}")
    return " ".join(sentences)


def draw(result: Result) -> "Figure":
    places = range(len(result.results["features"]) + 1)
    series = {
        METHOD_TITLES[method]: (places, [_label(method, number) for number in places])
        for method in result.results["methods"]
    }
    return line_figure(result, series, "numerical features", "Numerical features added one by one")


EXPERIMENT = ablation(
    name="feature-count",
    title="Number of numerical features",
    what="numerical features added one by one, DAES against AutoDis",
    claim="""
    Figure 5: from 26 categorical fields of Criteo on, every numerical feature that is added improves DAES,
    which is ahead of AutoDis throughout. (Numbers are only in the figure.)
    """,
    differs="""
    Features are added in the order of the columns; the paper does not give its order.
    """,
    variants=variants,
    verdict=verdict,
    draw=draw,
    more=more,
    uses=TRAINING,
)
