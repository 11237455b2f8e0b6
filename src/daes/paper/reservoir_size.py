"""How many slots a reservoir needs: error by size m, its O(1/m) variance, memory, and the bias under drift."""

from statistics import NormalDist

import numpy as np

from daes.distribution import JumpReservoir
from daes.distribution.estimator_report import rank_errors
from daes.formatting import count, fixed, nbytes, percent, scientific
from daes.paper import figures
from daes.paper.data import Floats
from daes.paper.experiment import STANDARD_ERRORS, Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.result import ExperimentResult
from daes.stream.dataset import Dataset
from daes.table import markdown_table

LENGTH = 1_000_000
SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
LEVELS = (0.1, 0.5, 0.9, 0.99)
_RUNS_PER_SEED = 40
_LEAST_LENGTH = 2000  # enough for three sizes
_DRIFT = 1.0
_COLOURS = (figures.SKY, figures.BLUE, figures.GREEN, figures.ORANGE)
_PERCENTS = np.arange(1, 100) / 100


class ReservoirSize(Experiment):
    name = "reservoir-size"
    title = "Reservoir size: error, variance, memory"
    what = "error of quantiles against the number m of slots, its O(1/m) variance, and memory"
    claim = """
    Appendix, “Bias–Variance Trade-off in Reservoir Size”: Var(q̂_α) ≈ α(1−α)/(m·f²(q_α)); m·4 bytes = 400 kB per
    feature at m = 100,000; bias comes from finite samples and from drift.
    """
    differs = """
    The paper gives the formula without a measurement. Ours is on a lognormal stream, with the factor (1 − m/T) for
    sampling without replacement. We store members as 8-byte numbers, so memory is twice the paper's figure. The second
    kind of bias is shown as well: under drift a reservoir describes the whole past, and its distance from the current
    distribution does not shrink with m (`expiry` and `half_life` address that).
    """
    judged_by = """
    (1) The variance of quantiles falls as 1/m: at every level the exponent is within four standard errors of −1. (2)
    It is within four standard errors of the formula in every case.
    """

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        length = settings.simulated_rows(LENGTH, _LEAST_LENGTH)
        runs = _RUNS_PER_SEED * settings.seeds
        rng = np.random.default_rng(0)
        normal = rng.standard_normal(length)
        drifting = normal + _DRIFT * np.arange(length) / length
        found: Findings = {"length": length, "runs": runs, "levels": LEVELS, "sizes": []}
        for size in SIZES:
            if size > length // 2:
                break
            execution.check_time(f"sizes below {size:,} are done")
            execution.note(f"m = {size:,}")
            found["sizes"].append(_size(size, np.exp(normal), drifting, runs))
        return found

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        errors = [
            [count(part["slots"]), nbytes(part["bytes"]), nbytes(4 * part["slots"])]
            + [percent(part[name], 2) for name in ("rank_error", "drifting_rank_error", "drifting_rank_error_now")]
            for part in found["sizes"]
        ]
        headers = ["m", "memory", "paper, 4m bytes", "rank error"]
        headers += ["under drift, whole stream", "under drift, last moment"]
        variances = [
            [count(part["slots"])] + [f"{scientific(seen)} ({scientific(theory)})" for seen, theory in pairs]
            for part in found["sizes"]
            for pairs in [zip(part["variance"], part["variance_theory"], strict=True)]
        ]
        return "\n\n".join(
            [
                f"T = {count(found['length'])} lognormal values, {found['runs']} runs. Memory, and the largest rank "
                "error over 99 percentiles, mean over runs:",
                markdown_table(headers, errors),
                "Variance of a quantile, simulated (theory):",
                markdown_table(["m", *(f"at {percent(level, 0)}" for level in found["levels"])], variances),
            ]
        )

    def verdict(self, result: ExperimentResult) -> str:
        found, last = result.results, result.results["sizes"][-1]
        (falls, _), _ = self.judge(result)
        ratios, off = _against_formula(found)
        powers = zip(*exponents(found), strict=True)
        shown = ", ".join(f"{fixed(power, 2)} ± {2 * error:.2f}" for power, error in powers)
        levels = ", ".join(percent(level, 0) for level in found["levels"])
        return (
            f"The variance {'falls as 1/m' if falls else 'does not fall as 1/m'}: its exponents at {levels} are "
            f"{shown}. It differs from the formula by more than {STANDARD_ERRORS} standard errors in {off} of "
            f"{ratios.size} cases; their ratio is {np.median(ratios):.2f} in the median, from {ratios.min():.2f} to "
            f"{ratios.max():.2f}. At m = {count(last['slots'])} the largest rank error is "
            f"{percent(last['rank_error'], 2)}; under drift it is {percent(last['drifting_rank_error'], 2)} relative "
            f"to the whole stream and {percent(last['drifting_rank_error_now'], 1)} relative to its end."
        )

    def judge(self, result: ExperimentResult) -> Judgement:
        found, last = result.results, result.results["sizes"][-1]
        powers, errors = exponents(found)
        ratios, off = _against_formula(found)
        return (bool((np.abs(powers + 1) <= STANDARD_ERRORS * errors).all()), not off), (
            f"The variance of quantiles falls as the number of slots to the power of {fixed(powers.min(), 2)} to "
            f"{fixed(powers.max(), 2)}; it differs from the formula in {off} of {ratios.size} cases. Under drift the "
            f"rank error relative to the end of the stream is {percent(last['drifting_rank_error_now'], 0)} even with "
            f"{count(last['slots'])} slots."
        )

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        found = result.results
        figure, (left, right) = figures.panels(1, 2, 3.6)
        sizes = [part["slots"] for part in found["sizes"]]
        for place, (level, colour) in enumerate(zip(found["levels"], _COLOURS, strict=True)):
            theory = [part["variance_theory"][place] for part in found["sizes"]]
            left.plot(sizes, theory, color=colour, linewidth=1)
            seen = np.array([part["variance"][place] for part in found["sizes"]])
            reach = 2 * np.array([part["variance_error"][place] for part in found["sizes"]])
            left.errorbar(sizes, seen, np.minimum(reach, 0.99 * seen), fmt="o", color=colour, elinewidth=1)
            figures.at_end(left, sizes[-1], theory[-1], percent(level, 0), colour)
        left.set(xlabel="slots m", ylabel="variance of the quantile", title="Variance, by level of the quantile")
        series = {
            "rank_error": ("no drift", figures.BLUE, "o-", -26),
            "drifting_rank_error": ("drift, against the whole stream", figures.GREEN, "s--", 10),
            "drifting_rank_error_now": ("drift, against the last moment", figures.VERMILION, "D-", 6),
        }
        middle = len(sizes) // 2
        for name, (title, colour, form, lift) in series.items():
            values = [100 * part[name] for part in found["sizes"]]
            right.plot(sizes, values, form, color=colour, alpha=0.85)
            at = (sizes[middle], values[middle])
            right.annotate(title, at, (0, lift), textcoords="offset points", color=colour, fontsize=8)
        right.set(xlabel="slots m", ylabel="largest rank error, %", title="What more slots mend, and what they do not")
        for panel in (left, right):
            panel.set(xscale="log", yscale="log")
        figures.headline(
            figure,
            "Error against the size of the reservoir",
            f"Simulated, {count(found['length'])} values, {found['runs']} runs · left: lines α(1−α)/(m f²), dots "
            "simulation ± 2 standard errors · drift: the mean rises by one standard deviation",
        )
        return figure


def _size(size: int, still: Floats, drifting: Floats, runs: int) -> Findings:
    levels = np.array(LEVELS)
    ordered = np.sort(still)
    whole, now = np.sort(drifting), _DRIFT + np.array([NormalDist().inv_cdf(level) for level in _PERCENTS])
    quantiles = np.empty((runs, levels.size))
    worst, drift_whole, drift_now = (np.empty(runs) for _ in range(3))
    for seed in range(runs):
        reservoir = JumpReservoir(size, seed=seed)
        reservoir.update(still)
        quantiles[seed] = reservoir.quantile(levels)
        worst[seed] = np.abs(rank_errors(ordered, _PERCENTS, reservoir.quantile(_PERCENTS))).max()
        reservoir = JumpReservoir(size, seed=runs + seed)
        reservoir.update(drifting)
        drift_whole[seed] = np.abs(rank_errors(whole, _PERCENTS, reservoir.quantile(_PERCENTS))).max()
        drift_now[seed] = np.abs(reservoir.cdf(now) - _PERCENTS).max()
    return {
        "slots": size,
        "bytes": reservoir.nbytes,
        "variance": quantiles.var(axis=0, ddof=1),
        "variance_error": variance_error(quantiles),
        "variance_theory": asymptotic_variance(levels, size, still.size),
        "rank_error": float(worst.mean()),
        "drifting_rank_error": float(drift_whole.mean()),
        "drifting_rank_error_now": float(drift_now.mean()),
    }


def variance_error(sample: Floats) -> Floats:
    """Standard error of the variance of each column, √((μ₄ − σ⁴)/n), whatever the law.

    >>> normal = np.random.default_rng(0).standard_normal((100_000, 1))
    >>> variance_error(normal).round(4)  # √(2/n)
    array([0.0045])
    """
    squares = np.square(sample - sample.mean(axis=0))
    error: Floats = squares.std(axis=0) / np.sqrt(len(sample))
    return error


def asymptotic_variance(levels: Floats, size: int, length: int) -> Floats:
    """α(1−α)/(m·f²(q_α)) of the lognormal law, times (1 − m/T) for a sample without replacement from T values.

    >>> asymptotic_variance(np.array([0.5]), 1000, 10**9).round(6)
    array([0.001571])
    """
    scores = np.array([NormalDist().inv_cdf(level) for level in levels])
    quantiles = np.exp(scores)
    density = np.exp(-np.square(scores) / 2) / np.sqrt(2 * np.pi) / quantiles
    variance: Floats = levels * (1 - levels) / (size * np.square(density)) * (1 - size / length)
    return variance


def exponents(found: Findings) -> tuple[Floats, Floats]:
    """The power of m with which the variance of each level's quantile falls, −1 in theory, and its standard error.

    The slope of a line fitted to log(variance/(1 − m/T)) against log m by least squares.
    """
    sizes = np.array([part["slots"] for part in found["sizes"]], dtype=np.float64)
    variances = np.array([part["variance"] for part in found["sizes"]])
    errors = np.array([part["variance_error"] for part in found["sizes"]]) / variances
    logs = np.log(variances / (1 - sizes / found["length"])[:, None])
    weights = np.log(sizes) - np.log(sizes).mean()
    weights /= np.square(weights).sum()
    return weights @ logs, np.sqrt(np.square(weights) @ np.square(errors))


def _against_formula(found: Findings) -> tuple[Floats, int]:
    """Simulated over theoretical variance, (sizes, levels), and how many differ by more than chance."""
    names = ("variance", "variance_theory", "variance_error")
    seen, theory, error = (np.array([part[name] for part in found["sizes"]]) for name in names)
    return seen / theory, int((np.abs(seen - theory) > STANDARD_ERRORS * error).sum())
