"""How well OS, RS and JRS know a stream's distribution, and how many random numbers that takes."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count as counting
from typing import Any

import numpy as np

from daes.distribution import ESTIMATORS, JumpReservoir, OrderStatistics, kl_divergence
from daes.formatting import count, percent, scientific
from daes.paper.data import Floats, column_batches, name_in
from daes.paper.divergence import FLOOR, bucket_divergence, expected_draws, kl_by_chance, occupied_bins, slots
from daes.paper.estimation_figure import errors_figure
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings
from daes.paper.judging import Judgement, most
from daes.paper.published import BATCH_SIZE, ESTIMATION_CALLS, ESTIMATION_KL, ESTIMATION_LENGTHS
from daes.paper.result import ExperimentResult
from daes.simulation import AdStream
from daes.stream.dataset import Dataset
from daes.table import markdown_table

FEATURES = {
    "criteo": ("I3", "I5"),
    "adstream": ("clicks_7d", "impressions_7d"),
    "flights": ("seats", "distance"),
    "automl": ("I1", "I2"),
}
"""A clustered and a spread feature of each data set."""
KINDS = ("clustered", "spread")
SAMPLERS = {"reservoir": "RS", "jump-paper": "JRS, published rule", "jump": "JRS, exact rule"}
_PUBLISHED = {"reservoir": "RS", "jump-paper": "JRS", "jump": "JRS"}
_DAYS = 7
_LEAST_VALUES = 1000
_MUCH = 10  # the least that "orders of magnitude" can mean
_ALIKE = 1.5  # the most that "as good" can mean
_FEW_CALLS = 0.05
READINGS = ("masses", "buckets")


def run(settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
    assert data is not None
    # Of a simulated stream each feature has as many rows as it needs.
    found: Findings = {"rows": None} if isinstance(data.source, AdStream) else {}
    for kind, feature, paper_length in zip(KINDS, FEATURES[name_in(data.name)], ESTIMATION_LENGTHS, strict=True):
        execution.note(f"{data.name}: {feature}")
        values = np.concatenate([np.empty(0), *_finite_values(data.head(settings.rows), feature, paper_length)])
        _check_enough(data, feature, values.size)
        found[kind] = {"feature": feature, **_compare(values, paper_length, settings.seeds)}
    return found


def _check_enough(data: Dataset, feature: str, values: int) -> None:
    if values < _LEAST_VALUES:
        raise ValueError(f"{feature} of {data.what} must have {_LEAST_VALUES:,} finite values or more, got {values}")


def _finite_values(data: Dataset, feature: str, paper_length: int) -> Iterator[Floats]:
    """The values of a column; of a simulated stream as many as the paper's had, over as many days."""
    if not isinstance(data.source, AdStream):
        for batch in column_batches(data, feature, 1 << 16):
            yield batch[np.isfinite(batch)]
        return
    given = data.count_rows() if ":" in data.what else data.limit
    left = paper_length if given is None else min(given, paper_length)
    _check_enough(data, feature, left)
    stream = AdStream(None, rows_per_day=-(-left // _DAYS))
    for start in counting(0, 1 << 20):
        values = stream.numbers(feature, start, start + (1 << 20)).astype(np.float64)
        finite = values[np.isfinite(values)][:left]
        yield finite
        left -= finite.size
        if not left:
            return


def _compare(values: Floats, paper_length: int, seeds: int) -> Findings:
    truth = JumpReservoir(values.size)
    truth.update(values)
    order_statistics = OrderStatistics(np.arange(101) / 100)
    samplers: dict[int, dict[str, list[Any]]] = {
        size: {name: [ESTIMATORS[name](size=size, seed=seed) for seed in range(seeds)] for name in SAMPLERS}
        for size in slots(values.size, paper_length)
    }
    every = [one for by_name in samplers.values() for several in by_name.values() for one in several]
    for start in range(0, values.size, BATCH_SIZE):
        batch = values[start : start + BATCH_SIZE]
        for estimator in (order_statistics, *every):
            estimator.update(batch)
    bins = occupied_bins(truth)
    return {
        "values": values.size,
        "distinct": int(np.count_nonzero(np.diff(truth.ordered()))) + 1,
        "bins": bins,
        "batches": order_statistics.batches,
        "order-statistics": _errors(truth, [order_statistics]),
        "reservoirs": [
            {
                "slots": size,
                "kl_by_chance": kl_by_chance(bins, size, values.size),
                "draws_expected": expected_draws(size, values.size),
                **{
                    name: {**_errors(truth, several), "draws": float(np.mean([one.draws for one in several]))}
                    for name, several in by_name.items()
                },
            }
            for size, by_name in samplers.items()
        ],
    }


def _errors(truth: JumpReservoir, estimators: list[Any]) -> Findings:
    return {
        "masses": [kl_divergence(truth, one) for one in estimators],
        "buckets": [bucket_divergence(truth, one) for one in estimators],
    }


def markdown(result: ExperimentResult) -> str:
    headers = ["method", "slots", "KL, paper", "KL of masses", "by chance", "KL of buckets"]
    headers += ["calls, paper", "calls", "closed form"]
    parts = []
    for column, kind in enumerate(KINDS):
        found = result.results[kind]
        rows = [["OS", "", scientific(ESTIMATION_KL["OS"][column]), *_row(found["order-statistics"]), "", "", ""]]
        for part in found["reservoirs"]:
            for name, title in SAMPLERS.items():
                published = _PUBLISHED[name]
                calls = [ESTIMATION_CALLS[published][column], part[name]["draws"], part["draws_expected"][name]]
                start = [title, count(part["slots"]), scientific(ESTIMATION_KL[published][column])]
                errors = _row(part[name], part["kl_by_chance"])
                rows.append([*start, *errors, *(scientific(number, 3) for number in calls)])
        heading = (
            f"**{found['feature']}** ({kind}, beside the paper's I{'35'[column]}): {count(found['values'])} values, "
            f"{count(found['distinct'])} distinct, {found['bins']} distinct intervals, "
            f"{count(found['batches'])} batches"
        )
        parts += [heading, markdown_table(headers, rows), _nearest_reading(found, ESTIMATION_KL["OS"][column])]
    return "\n\n".join(parts)


def _row(errors: Findings, by_chance: float | None = None) -> list[str]:
    masses, buckets = (scientific(_mean(errors, reading)) for reading in READINGS)
    return [masses, "" if by_chance is None else scientific(by_chance), buckets]


def _mean(errors: Findings, reading: str) -> float:
    return float(np.mean(errors[reading]))


def _nearest_reading(found: Findings, published: float) -> str:
    """Which reading of the error of OS comes nearer to the paper's number, as a ratio."""
    # A KL divergence may be zero, which is as far from any number as can be.
    errors = {reading: max(_mean(found["order-statistics"], reading), FLOOR) for reading in READINGS}
    nearest = min(READINGS, key=lambda reading: abs(np.log(errors[reading] / published)))
    return (
        f"Of the two readings {nearest} come nearer to the paper's {scientific(published)} for OS, with "
        f"{scientific(errors[nearest])}."
    )


def verdict(result: ExperimentResult) -> str:
    """A line for each reservoir: the claim may hold for one size and fail for another."""
    return "\n".join(
        f"- **{one['feature']}**, {count(one['slots'])} slots for {count(one['values'])} values: the error of OS over "
        f"that of JRS is {' and '.join(_against(reading, one[reading]) for reading in READINGS)}, that of JRS over "
        f"that of RS {scientific(one['equal'])} by masses. JRS by the published rule takes {percent(one['calls'], 1)} "
        f"of the calls of RS (the paper: {percent(one['paper'], 1)})."
        for one in _comparisons(result)
    )


def _against(reading: str, ratio: float) -> str:
    judged = "as claimed" if ratio >= _MUCH else "less than claimed" if ratio > 1 else "against the claim"
    return f"{scientific(ratio)} by {reading} ({judged})"


def _comparisons(result: ExperimentResult) -> list[Findings]:
    """For each feature and reservoir OS over JRS by each reading, JRS over RS, and its part of the calls of RS."""
    return [
        {
            "feature": found["feature"],
            "values": found["values"],
            "slots": part["slots"],
            **{name: _ratio(found["order-statistics"], part["jump"], name) for name in READINGS},
            "equal": _ratio(part["jump"], part["reservoir"], "masses"),
            "calls": part["jump-paper"]["draws"] / part["reservoir"]["draws"],
            "paper": ESTIMATION_CALLS["JRS"][column] / ESTIMATION_CALLS["RS"][column],
        }
        for column, found in enumerate(result.results[kind] for kind in KINDS)
        for part in found["reservoirs"]
    ]


def _ratio(errors: Findings, others: Findings, reading: str) -> float:
    return _mean(errors, reading) / max(_mean(others, reading), FLOOR)


def judge(result: ExperimentResult) -> Judgement:
    """(1) OS errs ten times as much as JRS or more in most cases; here a case is a feature, a reservoir and a reading.
    (2) With the paper's share of slots JRS errs at most 1.5 times as much as RS, by masses, with at most 5 % of its
    calls.
    """
    every = _comparisons(result)
    shares = list({one["feature"]: one for one in reversed(every)}.values())  # the first reservoir of each
    ratios = {reading: [one[reading] for one in every] for reading in READINGS}
    worse = [ratio >= _MUCH for several in ratios.values() for ratio in several]
    alike = all(one["equal"] <= _ALIKE and one["calls"] <= _FEW_CALLS for one in shares)
    less = "against the claim where below 1" if min(map(min, ratios.values())) < 1 else "less than claimed"
    holds = most(sum(worse), len(worse))
    calls = "–".join(sorted({f"{100 * one['calls']:.1f}" for one in shares}, key=float))
    return (holds, alike), (
        f"Jump sampling (JRS) takes {calls} % of the random calls of reservoir sampling (RS) and errs "
        f"{_range([one['equal'] for one in shares])} times as much{'' if alike else ' (against the claim)'}. Order "
        f"statistics (OS) err {_range(ratios['masses'])} times as much as JRS by masses, {_range(ratios['buckets'])} "
        f"times by buckets{'' if holds else f' ({less})'}."
    )


def _range(values: Sequence[float]) -> str:
    return "–".join(dict.fromkeys(scientific(end, 1) for end in (min(values), max(values))))


EXPERIMENT = Experiment(
    name="estimation",
    title="Distribution estimation: OS, RS, JRS",
    what="KL divergence and random calls of OS, RS and JRS (published and exact rule) on two kinds of features",
    claim="""
    Table 3: on Criteo's I3 (clustered) and I5 (spread) reservoir sampling (RS) is orders of magnitude closer to the
    true distribution than order statistics (OS), the mean of batch quantiles; jump reservoir sampling (JRS) is as good
    with 3–4 % of the random calls.
    """,
    differs="""
    The full Criteo file is not ours to ship: on the 0.3 % sample the reservoir keeps the paper's share of the
    stream (and 10,000 slots beside it), while the simulated stream has the paper's exact length and m =
    100,000. Of a small stream that share is a few hundred slots, and chance a larger part of the error.

    The KL of a uniform sample is pure chance, (k−1)/(2m) for k distinct intervals. The paper's figures for RS
    and JRS agree with that: k = 100 gives 4.9e-4, and its 2.46e-4 on I3 means about 50 distinct intervals.

    How the quantiles of OS become a distribution is not said, and it decides the size of its error. *Masses*:
    how much the estimate puts between the true percentiles. *Buckets*: which shares of the stream fall between
    the estimated percentiles, bucket by bucket, ties kept, as a model that uses them would see it; a percentile
    that falls below a frequent value by a hair then sends all of it to another bucket, of a reservoir's
    percentiles as well. Below each table stands which reading comes nearer to the paper's figure for OS. The paper's
    figures for RS and JRS fit masses.

    The paper's call counts for JRS are those of its published rule, 2m·∫(1 − e^(−1/x))dx, to three digits; the
    exact rule draws 8 % more at these lengths.
    """,
    run=run,
    markdown=markdown,
    verdict=verdict,
    judge=judge,
    draw=partial(errors_figure, kinds=KINDS, samplers=SAMPLERS),
    data=("adstream", "flights"),
    accepts=tuple(FEATURES),
)
