"""The appendix's long-tail example: distances in value space indicate the wrong bucket, ranks do not."""

from typing import Any

import numpy as np

from daes.distribution.base import inverted_cdf
from daes.formatting import percent
from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.result import ExperimentResult
from daes.stream.dataset import Dataset
from daes.table import markdown_table

QUANTILES = (0.0, 100.0, 105.0)
VALUE = 95.0
BUCKETS = 10
_VALUES = 200_000


class ValueSpaceLimit(Experiment):
    name = "value-space-limit"
    title = "The limit of value space"
    what = "the appendix's long-tail example, drawn, and how often it happens under common distributions"
    claim = """
    Appendix C: with quantiles 0, 100, 105 the value 95 is in the first bucket, but its distances to them, 95, 5 and 10,
    are smallest for the ends of the second.
    """
    differs = """
    The example is arithmetic. We add how often it happens: the share of values whose two nearest quantiles are not the
    ends of their own bucket, under distributions with and without a long tail.
    """
    judged_by = "The two quantiles nearest to the example's value are not the ends of its bucket."
    uses = ("rows",)

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        knots = np.array(QUANTILES)
        bucket = int(np.searchsorted(knots, VALUE, side="right")) - 1
        distances = np.abs(VALUE - knots)
        count = settings.simulated_rows(_VALUES, least=10 * BUCKETS)
        rng = np.random.default_rng(0)
        normal = rng.standard_normal(count)
        laws = {
            "uniform": rng.random(count),
            "normal": normal,
            "exponential": rng.standard_exponential(count),
            "lognormal, σ = 1": np.exp(normal),
            "lognormal, σ = 2": np.exp(2 * normal),
            "Pareto, α = 1.2": rng.pareto(1.2, count),
        }
        return {
            "quantiles": knots,
            "value": VALUE,
            "distances": distances,
            "nearest": np.sort(np.argsort(distances)[:2]),
            "bucket": bucket,
            "coordinate": float((VALUE - knots[bucket]) / (knots[bucket + 1] - knots[bucket])),
            "values": count,
            "buckets": BUCKETS,
            "mistaken": {law: mistaken_share(values, BUCKETS) for law, values in laws.items()},
        }

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        q, d = found["quantiles"], found["distances"]
        example = markdown_table(
            ["x = 95", *(f"q{i + 1} = {value:g}" for i, value in enumerate(q))],
            [["distance in value", *(f"{value:g}" for value in d)]],
        )
        shares = markdown_table(
            ["law", f"values that mistake their bucket (M = {found['buckets']})"],
            [[law, percent(share, 1)] for law, share in found["mistaken"].items()],
        )
        ends = " and ".join(f"q{place + 1}" for place in found["nearest"])
        return (
            f"{example}\n\nThe two nearest quantiles are {ends}; x lies in bucket {'AB'[found['bucket']]}, at "
            f"{found['coordinate']:.2f} of it, which is what the quantile coordinate says.\n\n{shares}"
        )

    def judge(self, result: ExperimentResult) -> Judgement:
        found = result.results
        shares = found["mistaken"]
        worst = max(shares, key=lambda law: float(shares[law]))
        holds = found["nearest"] != [found["bucket"], found["bucket"] + 1]
        return (holds,), (
            f"The quantiles nearest to {found['value']:g} are {'not ' if holds else ''}the ends of its bucket. With "
            f"{found['buckets']} buckets, the quantiles nearest to {percent(shares['uniform'], 1)} of uniform values, "
            f"and to {percent(shares[worst], 1)} under the worst law ({worst}), are not the ends of their buckets."
        )

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        found = result.results
        figure, (left, right) = figures.panels(1, 2, 3.4, width_ratios=[1.35, 1])
        _draw_example(left, found)
        laws = list(found["mistaken"])
        shares = [100 * found["mistaken"][law] for law in laws]
        right.barh(laws, shares, color=figures.VERMILION, alpha=0.85, height=0.6)
        for place, share in enumerate(shares):
            figures.at_end(right, share, place, f"{share:.1f} %", None, xytext=(4, 0))
        right.invert_yaxis()
        right.set(
            xlim=(0, max(shares) * 1.2),
            xlabel="values that mistake their bucket, %",
            title=f"By law, {found['buckets']} buckets of equal mass",
        )
        right.grid(axis="y", visible=False)
        figures.headline(
            figure,
            "Distances in value space can point to the wrong bucket",
            "Left: the appendix's example, drawn · right: values whose two nearest quantiles are not the ends of their "
            "own bucket (simulated)",
        )
        return figure


def mistaken_share(values: Floats, buckets: int) -> float:
    """The share of values whose two nearest quantiles are not the two ends of their own bucket.

    >>> mistaken_share(np.array([0.0, 95.0, 100.0, 100.0, 105.0, 105.0]), 2)
    0.16666666666666666
    """
    knots = inverted_cdf(np.sort(values), np.arange(buckets + 1) / buckets)
    bucket = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, buckets - 1)
    padded = np.concatenate([[-np.inf], knots, [np.inf]])
    to_lower, to_upper = values - knots[bucket], knots[bucket + 1] - values
    beyond_lower, beyond_upper = values - padded[bucket], padded[bucket + 3] - values
    mistaken = (beyond_upper < to_lower) | (beyond_lower < to_upper)
    return float(mistaken.mean())


def _draw_example(panel: Any, found: Findings) -> None:
    q, value = found["quantiles"], found["value"]
    panel.axvspan(q[0], q[1], color=figures.SKY, alpha=0.22, linewidth=0)
    panel.axvspan(q[1], q[2], color=figures.ORANGE, alpha=0.35, linewidth=0)
    panel.text(50, 3.62, "bucket A: half of all values", ha="center", color=figures.BLUE, fontsize=8.5)
    panel.annotate("bucket B:\nthe other half", (102.5, 3.62), (111, 3.62), color="#a86f00", va="center", fontsize=8.5)
    for place, (knot, distance) in enumerate(zip(q, found["distances"], strict=True)):
        height = 2.6 - 0.75 * place
        colour = figures.BLUE if place == 0 else "#a86f00"
        panel.plot(
            [knot, value], [height, height], "|-", color=colour, linewidth=1.6, markersize=9, markeredgewidth=1.6
        )
        where, side = ((value + knot) / 2, "center") if place == 0 else (111, "left")
        lift = 0.22 if place == 0 else 0
        panel.text(where, height + lift, f"|x − q{place + 1}| = {distance:g}", ha=side, va="center", color=colour)
        panel.plot([knot, knot], [0.25, 3.2], color=figures.GREY, linewidth=0.8)
    panel.plot(value, 0.25, "v", color=figures.BLACK, markersize=8, clip_on=False)
    panel.text(
        value - 2, 0.42, f"x = {value:g}, {percent(found['coordinate'], 0)} through bucket A", ha="right", fontsize=8.5
    )
    panel.set(xlim=(-4, 140), ylim=(0.1, 4))
    panel.set_xticks(q, [f"q{i + 1}\n{knot:g}" for i, knot in enumerate(q)])
    panel.get_xticklabels()[1].set_ha("right")
    panel.get_xticklabels()[2].set_ha("left")
    panel.set_yticks([])
    panel.grid(visible=False)
    panel.spines["left"].set_visible(False)
    panel.set_title("x lies in A and is close to both ends of B")
