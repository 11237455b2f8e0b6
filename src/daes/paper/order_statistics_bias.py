"""The appendix's drifting uniform stream: the bias of order statistics, by formula and by simulation."""

import numpy as np

from daes.distribution import JumpReservoir, OrderStatistics
from daes.formatting import fixed
from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.experiment import STANDARD_ERRORS, Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.result import ExperimentResult
from daes.stream.dataset import Dataset
from daes.table import markdown_table

BATCHES = (1, 2, 5, 20, 100)
LEVELS = tuple(level / 100 for level in range(5, 100, 5))
SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)
_VALUES = 200_000
_SLOTS = 10_000
_LEAST_VALUES = 20 * BATCHES[-1]  # per batch one more than there are levels
_COLOURS = (figures.BLACK, figures.SKY, figures.GREEN, figures.ORANGE, figures.VERMILION)


class OrderStatisticsBias(Experiment):
    name = "order-statistics-bias"
    title = "Order statistics under drift"
    what = "the appendix's drifting-uniform example: closed form, simulation and, for comparison, a reservoir"
    claim = """
    Appendix B: for a stream that drifts evenly over [a, b] in t batches the mean of batch quantiles misses the
    true quantile by (t−1)(1−2α)(b−a)/(2t).
    """
    differs = """
    Nothing in the setting. The paper gives the formula without a simulation; a reservoir is added for comparison.
    """
    judged_by = """
    The simulation is within four standard errors of the formula at every level, for every number of batches.
    """

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        values = settings.simulated_rows(_VALUES, _LEAST_VALUES)
        found: Findings = {
            "values": values,
            "slots": min(_SLOTS, values // 2),
            "seeds": settings.seeds,
            "levels": LEVELS,
            "streams": [],
        }
        levels = np.array(LEVELS)
        for batches in BATCHES:
            errors: dict[str, list[Floats]] = {"order-statistics": [], "reservoir": []}
            for seed in range(settings.seeds):
                estimators = {
                    "order-statistics": OrderStatistics(np.union1d(levels, [0.0, 1.0])),
                    "reservoir": JumpReservoir(found["slots"], seed=seed),
                }
                for batch in drifting_uniform(batches, values // batches, seed):
                    for estimator in estimators.values():
                        estimator.update(batch)
                for name, estimator in estimators.items():
                    errors[name].append(estimator.quantile(levels) - levels)
            found["streams"].append(
                {
                    "batches": batches,
                    "closed_form": closed_form(batches, levels),
                    **{name: np.mean(several, axis=0) for name, several in errors.items()},
                }
            )
        return found

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        places = [found["levels"].index(level) for level in SHOWN]
        rows = [
            [part["batches"], title, *(fixed(part[name][place], 3) for place in places)]
            for part in found["streams"]
            for name, title in (("closed_form", "OS, closed form"), ("order-statistics", "OS"), ("reservoir", "JRS"))
        ]
        table = markdown_table(["t", "estimate", *(f"α = {level:g}" for level in SHOWN)], rows, names=2)
        return (
            "Error of the α-quantile of a stream on [0, 1] that drifts evenly in t batches: "
            f"{found['values']:,} values, {found['slots']:,} slots, mean of {found['seeds']} seeds.\n\n{table}"
        )

    def judge(self, result: ExperimentResult) -> Judgement:
        found = result.results
        streams, levels = found["streams"], np.array(found["levels"])
        gaps = np.abs([np.subtract(part["order-statistics"], part["closed_form"]) for part in streams])
        limits = [simulation_error(part["batches"], found["values"], found["seeds"], levels) for part in streams]
        beyond = int((gaps > limits).sum())
        errors = np.abs([part["reservoir"] for part in streams])
        biased = int((errors > sampling_error(found["slots"], found["seeds"], levels)).sum())
        return (not beyond,), (
            f"Simulation and formula differ by {gaps.max():.4f} at most, more than {STANDARD_ERRORS} standard errors "
            f"in {beyond} of {gaps.size} cases. On the same streams the error of a reservoir is {errors.max():.4f} at "
            f"most, more than {STANDARD_ERRORS} standard errors in {biased} of {errors.size}."
        )

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        found = result.results
        figure, (left, right) = figures.panels(1, 2, 3.6, sharey=True, width_ratios=[1.1, 1])
        levels = found["levels"]
        for part, colour in zip(found["streams"], _COLOURS, strict=True):
            left.plot(levels, part["closed_form"], color=colour, linewidth=1)
            left.plot(levels, part["order-statistics"], ".", color=colour)
            right.plot(levels, part["reservoir"], ".-", color=colour, linewidth=0.8)
        for part, colour, lift in zip(found["streams"], _COLOURS, (7, 0, 0, -1, 7), strict=True):
            title = f"t = {part['batches']}" + (" (i.i.d.)" if part["batches"] == 1 else "")
            figures.at_end(left, levels[0], part["closed_form"][0], title, colour, xytext=(-6, lift), ha="right")
        left.set_xlim(-0.19, 1)
        left.set_xticks(np.arange(0, 1.01, 0.2))
        left.set(ylabel="estimate − true quantile", title="Mean of batch quantiles (OS)")
        right.set_title("Reservoir (JRS), the same streams")
        for panel in (left, right):
            panel.axhline(0, color=figures.GREY, linewidth=0.8)
            panel.set_xlabel("level α")
        figures.headline(
            figure,
            "Under drift, order statistics pull every quantile to the middle",
            f"Simulated: t batches drift evenly over [0, 1], {found['values']:,} values · lines: (t−1)(1−2α)/(2t) · "
            f"dots: mean of {found['seeds']} seeds",
        )
        return figure


def drifting_uniform(batches: int, batch_size: int, seed: int) -> list[Floats]:
    """Batch i of t is uniform on [(i−1)/t, i/t], so that all together are uniform on [0, 1]."""
    rng = np.random.default_rng(seed)
    return [(i + rng.random(batch_size)) / batches for i in range(batches)]


def closed_form(batches: int, levels: Floats) -> Floats:
    """E[q_α] − Q_α = (t−1)(1−2α)/(2t), for a stream on [0, 1].

    >>> closed_form(10, np.array([0.0, 0.5, 1.0]))
    array([ 0.45,  0.  , -0.45])
    """
    bias: Floats = (batches - 1) * (1 - 2 * levels) / (2 * batches)
    return bias


def simulation_error(batches: int, values: int, seeds: int, levels: Floats) -> Floats:
    """How far the simulated bias, a mean over seeds, may be from the formula by chance: four standard errors.

    The α-quantile of n values of a batch of width 1/t has variance α(1−α)/(n·t²) and a bias of at most 1/(n·t); the
    mean of t batches of n = T/t values has α(1−α)/(T·t²) and 1/T.

    >>> simulation_error(10, 10_000, 1, np.array([0.5])).round(6)
    array([0.0021])
    """
    return STANDARD_ERRORS * np.sqrt(levels * (1 - levels) / (values * seeds)) / batches + 1 / values


def sampling_error(slots: int, seeds: int, levels: Floats) -> Floats:
    """The same for quantiles of uniform samples of m values: 4·√(α(1−α)/(m·seeds)) + 1/m."""
    return STANDARD_ERRORS * np.sqrt(levels * (1 - levels) / (slots * seeds)) + 1 / slots
