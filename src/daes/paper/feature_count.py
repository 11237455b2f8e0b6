"""Numerical features added one by one, DAES against AutoDis."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Experiment, Findings, Means, Settings
from daes.paper.published import METHOD_TITLES
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, failures, how_trained, line_figure, means_and_spreads, scores_table
from daes.paper.trials import ABLATION_BACKBONES, Variant, run_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("daes-gate", "autodis")


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    methods = settings.methods or METHODS
    schema = data.open().schema
    assert schema is not None
    found: Findings = {}
    for number in range(schema.num_numerical + 1):
        # Without a numerical feature the method does not matter: one of them stands for all.
        variants = {_label(method, number): Variant(method) for method in (methods if number else methods[:1])}
        part = run_trials(
            settings,
            data,
            means,
            variants,
            ABLATION_BACKBONES,
            schema=replace(schema, numerical=schema.numerical[:number]),
        )
        if not found:
            found = {**part, "methods": methods, "features": schema.numerical}
        else:
            for name in ("scores", "tuned", "seconds"):
                found[name].update(part[name])
            found["failures"] += part["failures"]
    return found


def _label(method: str, number: int) -> str:
    return f"{METHOD_TITLES[method]}, {number} numerical" if number else "categorical fields only"


def markdown(result: Result) -> str:
    order = f"In the order of the columns: {', '.join(result.results['features'])}."
    return f"{how_trained(result)} {order}\n\n{scores_table(result.results)}{failures(result.results)}"


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
            f"{means[-1] - means[0]:+.4f} in all."
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


EXPERIMENT = Experiment(
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
    run=run,
    markdown=markdown,
    verdict=verdict,
    draw=draw,
    data=("adstream", "flights"),
    uses=TRAINING,
)
