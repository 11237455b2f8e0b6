"""A simulated online experiment: revenue per user with DAES against a production baseline of static bins."""

from dataclasses import asdict, replace
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from daes.extras import require
from daes.formatting import count, counted, fixed, percent
from daes.paper import figures
from daes.paper.experiment import ENOUGH_SEEDS, Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.market import Market, simulate
from daes.paper.pieces import run_pieces
from daes.paper.published import ARPU_GAIN
from daes.paper.result import ExperimentResult
from daes.paper.scores import method_title
from daes.stream.dataset import Dataset
from daes.table import markdown_table

PAIRS = (("efd", "efd"), ("efd", "daes-gate"), ("ld", "daes-gate"), ("efd", "daes"))
"""Control and treatment; the first pair is an A/A test, which should find no difference."""
_PRODUCTION = ("efd", "ld")
_LEAST_REQUESTS = 1000
_COLOURS = (figures.GREY, figures.BLUE, figures.PURPLE, figures.GREEN)


class ABTest(Experiment):
    name = "ab-test"
    title = "Online experiment, simulated"
    what = "users in two arms, models that learn from their own clicks, a second-price auction: revenue per user"
    claim = """
    §4.3: in a seven-day online experiment DAES raised the average revenue per user by 2.307 % against production
    rules (EFD, LD), statistically significant.
    """
    differs = """
    Everything: the paper's platform has hundreds of millions of users, this one is simulated. Users of a simulated ad
    stream are split by a hash. Twenty ads, each with its own bid, compete for a request; each arm shows the ad with the
    highest bid × predicted click rate, charges the generalised second price for a click, and learns only from its own
    impressions, after a common warm-up of two days. Static bins are fitted on the warm-up and then fixed, as in
    production between two updates.

    *ARPU, as measured* is what an online experiment observes: realised revenue of the users of each arm; its interval
    is wide because few users are simulated. *Paired* is known only to a simulator: the expected revenue (price × true
    click rate) of what each model would have shown to every user. *Value* is bid × true click rate of the shown ads.
    Note that with second prices revenue need not rise with the quality of the model: a sharper model moves the winner
    away from the runner-up, who sets the price. Value does not have this flaw. An A/A test is run for comparison.
    """
    judged_by = """
    With DAES gate, paired expected revenue rises by more than in the A/A test, against (1) EFD and (2) LD: by a
    t-test between three or more seeds, with the variance pooled over all experiments.
    """
    uses = ("rows", "seeds", "batch_size", "backbones", "device")

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        market = _market(settings)
        cases = product(range(settings.seeds), PAIRS)
        pieces: list[Findings] = [{"market": asdict(market), "pair": list(pair), "seed": seed} for seed, pair in cases]
        found = run_pieces(_piece, pieces, execution, lambda piece: f"{_title(*piece['pair'])}, seed {piece['seed']}")
        experiments: Findings = {_title(*pair): {"seeds": []} for pair in PAIRS}
        for piece, one in zip(pieces, found, strict=True):
            experiments[_title(*piece["pair"])]["seeds"].append(one)
        return {"market": asdict(market), "experiments": experiments}

    def markdown(self, result: ExperimentResult) -> str:
        found = result.results
        market, pooled = found["market"], _pooled(found["experiments"])
        rows = [[title, *map(_interval, measures.values())] for title, measures in pooled.items()]
        details = []
        for title, one in found["experiments"].items():
            oracle = fmean(seed["oracle_lift"] for seed in one["seeds"])
            users = fmean(sum(seed["users"]) for seed in one["seeds"])
            quality = [
                fixed(fmean(seed["arms"][arm][name] for seed in one["seeds"]), digits)
                for name, digits in (("auc", 4), ("calibration", 2))
                for arm in (0, 1)
            ]
            details.append([title, count(users), *quality, percent(oracle, 1, sign=True)])
        intro = (
            f"Simulated: {market['days']} days of {count(market['requests_per_day'])} requests after "
            f"{market['warm_up_days']} days of warm-up, {market['candidates']} ads bid for each, generalised second "
            f"price; {market['backbone']}, batches of {market['batch_size']}; "
            f"{counted(result.settings['seeds'], 'seed')}. The paper: ARPU {percent(ARPU_GAIN, 3, sign=True)} against "
            "production bins (EFD, LD). 95 % intervals in brackets."
        )
        lifts = ["experiment", "ARPU, as measured", "expected revenue, paired", "value of shown ads, paired"]
        quality = [f"{name}, {arm}" for name in ("AUC", "calibration") for arm in ("control", "treatment")]
        columns = ["experiment", "users", *quality, "revenue of the true click rates"]
        return f"{intro}\n\n{markdown_table(lifts, rows)}\n\n{markdown_table(columns, details)}"

    def verdict(self, result: ExperimentResult) -> str:
        pooled = _pooled(result.results["experiments"])
        sentences = []
        for title, one in pooled.items():
            if title == _NO_CHANGE:
                judged = ""
            elif result.settings["seeds"] < ENOUGH_SEEDS:
                judged = ", not judged with so few seeds"
            else:
                more = _beyond(one, pooled[_NO_CHANGE])
                judged = ", more than in the A/A test" if more else ", not distinguishable from the A/A test"
            revenue, arpu = _interval(one["paired_lift"]), _interval(one["lift"])
            sentences.append(f"{title}: expected revenue {revenue}{judged}; ARPU {arpu}.")
        return f"Simulated; the paper reports {percent(ARPU_GAIN, 3, sign=True)}. " + " ".join(sentences)

    def judge(self, result: ExperimentResult) -> Judgement:
        pooled = _pooled(result.results["experiments"])
        titles = {method_title(control): _title(control, "daes-gate") for control in _PRODUCTION}
        lifts = {name: pooled[title] for name, title in titles.items() if title in pooled}
        shown = " and ".join(
            f"{percent(one['paired_lift']['mean'], 1, sign=True)} against {name}" for name, one in lifts.items()
        )
        enough = result.settings["seeds"] >= ENOUGH_SEEDS
        nothing = pooled[_NO_CHANGE]
        return [_beyond(one, nothing) for one in lifts.values() if enough], (
            f"Simulated: expected revenue with DAES gate is {shown}, "
            f"{percent(nothing['paired_lift']['mean'], 1, sign=True)} in the A/A test"
            f"{'' if enough else ' (too few seeds to judge)'}."
        )

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        experiments = result.results["experiments"]
        figure, (left, right) = figures.panels(1, 2, 3.8, width_ratios=[1.25, 1])
        kinds = (("lift", 0.22, "o"), ("paired_lift", 0.0, "s"), ("value_lift", -0.22, "D"))
        means = _pooled(experiments)
        for place, ((title, one), colour) in enumerate(zip(experiments.items(), _COLOURS, strict=False)):
            for name, lift, marker in kinds:
                pooled = {key: 100 * value for key, value in means[title][name].items()}
                left.plot([pooled["low"], pooled["high"]], [place - lift] * 2, color=colour, linewidth=1.4)
                left.plot(pooled["mean"], place - lift, marker, color=colour, markersize=6)
                seeds = [100 * seed[name] for seed in one["seeds"]]
                left.plot(seeds, [place - lift] * len(seeds), ".", color=colour, alpha=0.35)
            daily = 100 * np.mean([seed["daily_lift"] for seed in one["seeds"]], axis=0)
            right.plot(np.arange(1, daily.size + 1), daily, "o-", color=colour)
            figures.at_end(right, daily.size, float(daily[-1]), title.split(":")[0], colour)
        left.axvline(0, color=figures.GREY, linewidth=0.8)
        left.axvline(100 * ARPU_GAIN, color=figures.VERMILION, linestyle=":", linewidth=1.2)
        left.text(100 * ARPU_GAIN, -0.72, " the paper's ARPU", color=figures.VERMILION, fontsize=7.5, va="center")
        figures.name_rows(left, [title.replace(" against ", "\nagainst ") for title in experiments], above=0.95)
        left.set_xlabel("treatment over control, %")
        left.set_title("● ARPU measured  ■ revenue paired  ◆ value paired", fontsize=8.5)
        right.axhline(0, color=figures.GREY, linewidth=0.8)
        right.set(xlabel="day", ylabel="treatment over control, %", title="Expected revenue day by day, paired")
        market = result.results["market"]
        figures.headline(
            figure,
            "A simulated online experiment",
            f"Simulated: {market['days']} days of {count(market['requests_per_day'])} requests, {market['candidates']} "
            f"ads each · large: mean of {counted(result.settings['seeds'], 'seed')} and its 95 % interval · small: "
            "seeds",
        )
        return figure


def _market(settings: ExperimentSettings) -> Market:
    market = Market(device=settings.device)
    backbone, *_ = settings.backbones or (market.backbone,)
    market = replace(market, backbone=backbone, batch_size=settings.batch_size or market.batch_size)
    if settings.rows is None:
        return market
    a_day = settings.rows // (market.days + market.warm_up_days)
    return replace(market, requests_per_day=min(max(a_day, _LEAST_REQUESTS), market.requests_per_day))


def _piece(shared: None, piece: dict[str, Any], note: Any) -> Findings:
    return simulate(Market(**piece["market"]), piece["pair"], piece["seed"])


def _title(control: str, treatment: str) -> str:
    if control == treatment:
        return f"A/A: {method_title(control)} against itself"
    return f"{method_title(treatment)} against {method_title(control)}"


_NO_CHANGE = _title(*PAIRS[0])


def _pooled(experiments: Findings) -> Findings:
    """Title → measure → mean over the seeds with its 95 % interval: between seeds if there are enough, else over users.

    The latter ignores that two models of the same kind learn different things, as the A/A test shows. The variance
    between seeds is pooled over all experiments: each of them has too few seeds to estimate it.
    """
    pooled: Findings = {title: {} for title in experiments}
    intervals = {"lift": "lift_interval", "paired_lift": "paired_interval", "value_lift": "value_interval"}
    for name, interval in intervals.items():
        values = {title: [seed[name] for seed in one["seeds"]] for title, one in experiments.items()}
        seeds = min(map(len, values.values()))
        variance = np.mean([np.var(several, ddof=1) for several in values.values()]) if seeds > 1 else np.nan
        for title, several in values.items():
            mean = float(np.mean(several))
            if seeds < ENOUGH_SEEDS:
                low, high = np.mean([seed[interval] for seed in experiments[title]["seeds"]], axis=0)
            else:
                student = float(require("scipy.stats").t.ppf(0.975, len(values) * (seeds - 1)))
                low, high = mean + student * np.sqrt(variance / seeds) * np.array([-1, 1])
            pooled[title][name] = {"mean": mean, "low": float(low), "high": float(high)}
    return pooled


def _interval(pooled: Findings) -> str:
    low, high = (percent(pooled[name], 2, sign=True) for name in ("low", "high"))
    return f"{percent(pooled['mean'], 2, sign=True)} [{low}, {high}]"


def _beyond(one: Findings, nothing: Findings) -> bool:
    """Whether a lift is larger than that of the A/A test, p < 0.05."""
    lift, chance = one["paired_lift"], nothing["paired_lift"]
    # The difference of two means has twice the variance of one.
    return bool(lift["mean"] - chance["mean"] > 2**0.5 * (lift["high"] - lift["low"]) / 2)
