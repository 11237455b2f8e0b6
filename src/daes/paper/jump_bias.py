"""The published jump rule over-represents the first m values: by how much, and the resulting bias of quantiles."""

import numpy as np

from daes.distribution import JumpReservoir
from daes.distribution.jump import Skip
from daes.extras import require
from daes.formatting import percent
from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.result import ExperimentResult
from daes.stream.dataset import Dataset
from daes.table import markdown_table

RULES: dict[Skip, str] = {"paper": "published rule", "exact": "exact rule"}
SIZE = 1000
TIMES = (2, 10, 100)
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
_RUNS_PER_SEED = 80
_GROUPS = 50
_COLOURS = {"paper": figures.VERMILION, "exact": figures.GREEN}


class JumpBias(Experiment):
    name = "jump-bias"
    title = "The published jump rule is not uniform"
    what = "inclusion by position in the stream under the published and the exact jump rule, and the bias of quantiles"
    claim = """
    Algorithm 1 draws the gap to the next accepted value as ⌊t·(U^(−1/m) − 1)⌋ and is said to yield a uniform sample.
    The paper does not measure inclusion.
    """
    differs = """
    The measurement is ours. With m slots the rule accepts the value at position s with probability 1 − ((s−1)/s)^m ≈
    1 − e^(−m/s) instead of m/s: 0.63 instead of 1 just after the reservoir is full. Too few values enter early in the
    stream, so the first m values stay over-represented forever. The factor does not shrink, but its weight in the
    distribution of T values does, as m/T. It is harmless at T = 300m, as in the paper's table, but causes a bias of
    several percent of rank while T is a few m, as when a feature has just been deployed. The exact rule (Li's Algorithm
    L) costs as much.
    """
    judged_by = "Nothing: the paper does not measure it."

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        times = [number for number in TIMES if settings.rows is None or number * SIZE <= settings.rows]
        if not times:
            raise ValueError(f"rows must be {TIMES[0] * SIZE:,} or more, got {settings.rows}")
        runs = _RUNS_PER_SEED * settings.seeds
        found: Findings = {"slots": SIZE, "runs": runs, "limit": first_values_limit(), "streams": []}
        for number in times:
            execution.check_time(f"{len(found['streams'])} of {len(times)} lengths are done")
            execution.note(f"T = {number}m")
            found["streams"].append(_stream(number, runs))
        return found

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        rows = [
            [f"{part['times']}m", title, *_cells(part[rule])]
            for part in found["streams"]
            for rule, title in RULES.items()
        ]
        levels = [f"bias at {percent(level, 0)}" for level in LEVELS]
        intro = (
            f"m = {found['slots']:,}, {found['runs']} runs. Inclusion of the first m values over m/T, simulated, ± 2 "
            "standard errors (closed form); bias of quantiles of a stream that drifts evenly from 0 to 1, in percent "
            f"of its range. As m and T/m grow, the first m values stay over-represented {found['limit']:.3f} times."
        )
        return f"{intro}\n\n{markdown_table(['T', 'rule', 'first m values', *levels], rows, names=2)}"

    def judge(self, result: ExperimentResult) -> Judgement:
        last = result.results["streams"][-1]
        paper, exact = (f"{last[rule]['first']:.2f} times" for rule in ("paper", "exact"))
        return (), (
            f"In a stream {last['times']} times as long as the reservoir, the published rule keeps each of the first "
            f"values {paper} as often as a uniform sample would, the exact rule {exact}."
        )

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        found = result.results
        figure, (left, right) = figures.panels(1, 2, 3.6, width_ratios=[1.25, 1])
        stream = found["streams"][-1]
        for rule in RULES:
            part = stream[rule]
            places, expected = np.array(part["place"]), np.array(part["closed_form"])
            after = places > 1
            # The closed form jumps at m: two lines, not a slope between them.
            left.plot([places[0], 1], [part["first_closed_form"]] * 2, color=_COLOURS[rule])
            left.plot([1, *places[after]], [expected[after][0], *expected[after]], color=_COLOURS[rule])
            left.plot(places, part["inclusion"], ".", color=_COLOURS[rule], alpha=0.55)
        left.text(0.06, 1.38, "published rule", color=_COLOURS["paper"])
        left.text(0.06, 0.9, "exact rule", color=_COLOURS["exact"])
        left.axvline(1, color=figures.GREY, linewidth=0.8, linestyle=":")
        left.text(1.05, 0.62, "place m", color="#666666", fontsize=7.5)
        left.set(
            xscale="log",
            ylim=(0.5, 1.7),
            xlabel="place in the stream, in units of m",
            ylabel="inclusion over m/T",
            title=f"Who is in the sample at T = {stream['times']}m",
        )
        right.plot([8, 92], [0, 0], color=figures.GREY, linewidth=0.8)
        for shade, part in zip((1.0, 0.7, 0.45), found["streams"], strict=False):
            for rule in RULES:
                errors = 100 * np.array(part[rule]["bias"])
                spread = 200 * np.array(part[rule]["bias_error"])
                right.errorbar(100 * np.array(LEVELS), errors, spread, color=_COLOURS[rule], alpha=shade, capsize=2)
        last = [(part["times"], 100 * part["paper"]["bias"][-1]) for part in found["streams"]]
        figures.label_ends(right, [(92, height, f"T = {times}m", _COLOURS["paper"]) for times, height in last])
        right.text(10, 0.45, "exact rule, at all T", color=_COLOURS["exact"], fontsize=8)
        right.text(60, -8.9, "published rule", color=_COLOURS["paper"], fontsize=8)
        right.set(xlabel="level of the quantile, %", ylabel="bias, % of the stream's range")
        right.set_ylim(top=1.2)
        right.set_title("Quantiles of a drifting stream")
        figures.headline(
            figure,
            "The published jump rule remembers the first m values too well",
            f"Simulated, m = {found['slots']:,}, {found['runs']} runs · left, lines: closed form, dots: simulation · "
            "right: the mean, ± 2 standard errors",
        )
        return figure


def _stream(times: int, runs: int) -> Findings:
    """Streams in which value t is t/T, rising evenly, so that a member's value gives its position."""
    length = times * SIZE
    values = (np.arange(length) + 1.0) / length
    levels = np.array(LEVELS)
    found: Findings = {"times": times, "length": length, "levels": levels}
    for rule in RULES:
        samples = np.empty((runs, SIZE))
        quantiles = np.empty((runs, levels.size))
        for seed in range(runs):
            reservoir = JumpReservoir(SIZE, skip=rule, seed=seed)
            reservoir.update(values)
            samples[seed] = reservoir.sample
            quantiles[seed] = reservoir.quantile(levels)
        errors = quantiles - levels
        found[rule] = {
            **_inclusion_by_position(rule, samples, length),
            "bias": errors.mean(axis=0),
            "bias_error": errors.std(axis=0, ddof=1) / np.sqrt(runs),
        }
    return found


def _inclusion_by_position(rule: Skip, samples: Floats, length: int) -> Findings:
    """How often a value is in the sample, relative to m/T: the first m values, and groups of neighbours."""
    edges, positions = _edges(length), np.rint(samples * length)
    counts, _ = np.histogram(positions, bins=edges + 0.5)
    first = np.count_nonzero(positions <= SIZE, axis=1) / SIZE * length / SIZE
    expected = inclusion(rule, SIZE, length) * length / SIZE
    return {
        "first": first.mean(),
        "first_error": first.std(ddof=1) / np.sqrt(len(samples)),
        "place": (edges[1:] + edges[:-1]) / 2 / SIZE,
        "inclusion": counts / len(samples) / np.diff(edges) * length / SIZE,
        "first_closed_form": first_values_inclusion(rule, SIZE, length),
        "closed_form": np.add.reduceat(expected, edges[:-1].astype(np.int64)) / np.diff(edges),
    }


def _edges(length: int) -> Floats:
    """Ends of groups of positions: evenly spaced up to m, geometrically beyond."""
    before = np.linspace(0, SIZE, 11)
    after = np.rint(np.geomspace(SIZE, length, _GROUPS - 9))
    return np.unique(np.concatenate([before, after]))


def acceptance(rule: Skip, size: int, positions: Floats) -> Floats:
    """The probability that the value at position s > m is accepted: 1 − ((s−1)/s)^m as published, m/s if uniform."""
    accepted: Floats = -np.expm1(size * np.log1p(-1 / positions)) if rule == "paper" else size / positions
    return accepted


def inclusion(rule: Skip, size: int, length: int) -> Floats:
    """The probability that each value of a stream of T is in the sample at the end, (T,).

    Both rules accept a value with a probability that depends on its position alone, and an acceptance drops each member
    with probability 1/m. So the value at position s is included with a_s·Π_(r>s) (1 − a_r/m), where a_s = 1 up to m.

    >>> (inclusion("exact", 10, 50) * 50 / 10).round(9).min()
    np.float64(1.0)
    """
    accepted = acceptance(rule, size, np.arange(size + 1, length + 1, dtype=np.float64))
    survives = np.concatenate([np.cumsum(np.log1p(-accepted / size)[::-1])[::-1], [0.0]])
    first = np.full(size, np.exp(survives[0]))
    return np.concatenate([first, accepted * np.exp(survives[1:])])


def first_values_inclusion(rule: Skip, size: int, length: int) -> float:
    """The probability that one of the first m values is in the sample, relative to m/T.

    >>> round(first_values_inclusion("paper", 1000, 20_000), 3), round(first_values_inclusion("exact", 1000, 20_000), 3)
    (1.497, 1.0)
    """
    return float(inclusion(rule, size, length)[0] * length / size)


def first_values_limit() -> float:
    """Its limit for m and T/m to infinity: exp ∫₀¹ (v − 1 + e^(−v))/v² dv.

    >>> round(first_values_limit(), 3)
    1.535
    """
    integral, _ = require("scipy.integrate").quad(lambda v: (v - 1 + np.exp(-v)) / v**2, 0, 1)
    return float(np.exp(integral))


def _cells(one: Findings) -> list[str]:
    first = f"{one['first']:.3f} ± {2 * one['first_error']:.3f} ({one['first_closed_form']:.3f})"
    return [first, *(percent(bias, 2, sign=True) for bias in one["bias"])]
