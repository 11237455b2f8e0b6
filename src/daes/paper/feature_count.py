"""Numerical features added one by one, DAES against AutoDis."""

from dataclasses import replace
from typing import TYPE_CHECKING

from daes.paper.data import DataSet
from daes.paper.experiment import Experiment, Findings, Means, Settings
from daes.paper.published import METHOD_TITLES
from daes.paper.result import Result
from daes.paper.scores import failures, how_trained, line_figure, scores_table
from daes.paper.trials import ABLATION_BACKBONES, Variant, run_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("daes-gate", "daes-tran", "autodis")


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
            "feature-count",
            settings,
            data,
            means,
            variants,
            ABLATION_BACKBONES[:1],
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
    draw=draw,
    data=("adstream", "flights"),
    trains=True,
)
