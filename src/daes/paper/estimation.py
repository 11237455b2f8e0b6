"""How well OS, RS and JRS know a stream's distribution, and how many random numbers that takes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from daes.distribution import ESTIMATORS, JumpReservoir, OrderStatistics, kl_divergence
from daes.paper import figures
from daes.paper.data import DataSet, Floats, column_batches
from daes.paper.experiment import Experiment, Findings, Means, Settings
from daes.paper.published import BATCH_SIZE, ESTIMATION, ESTIMATION_LENGTHS, RESERVOIR_SIZE
from daes.paper.result import Result
from daes.paper.tables import count, scientific, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEATURES = {
    "criteo": ("I3", "I5"),
    "adstream": ("clicks_7d", "impressions_7d"),
    "flights": ("seats", "distance"),
    "automl": ("I1", "I2"),
}
"""A clustered and a spread feature of each data set."""
KINDS = ("clustered", "spread")
SAMPLERS = {"reservoir": "RS", "jump-paper": "JRS, published rule", "jump": "JRS, exact rule"}
ORDER_STATISTICS = {"interpolated": "OS", "points": "OS, read as 99 points"}
_PUBLISHED = {"interpolated": "OS", "points": "OS", "reservoir": "RS", "jump-paper": "JRS", "jump": "JRS"}
_COLOURS = {
    "interpolated": figures.VERMILION,
    "points": figures.ORANGE,
    "reservoir": figures.SKY,
    "jump-paper": figures.PURPLE,
    "jump": figures.GREEN,
}
_LEVELS = np.arange(1, 100) / 100
_DAYS = 7
_SMALL = 10_000


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    found = {}
    for kind, feature, paper_length in zip(KINDS, FEATURES[data.name], ESTIMATION_LENGTHS, strict=True):
        means.note(f"{data.title}: {feature}")
        values = np.concatenate([np.empty(0), *_finite_values(data, feature, settings.rows, paper_length)])
        found[kind] = {"feature": feature, **_compare(values, paper_length, settings.seeds)}
    return found


def _finite_values(data: DataSet, feature: str, rows: int | None, paper_length: int) -> Iterator[Floats]:
    """The values of a column; of a simulated stream as many as the paper's had, over as many days."""
    if not data.simulated:
        for batch in column_batches(data, feature, rows, 1 << 16):
            yield batch[np.isfinite(batch)]
        return
    given = data.length(None) if ":" in data.spec else None
    left = min(limit for limit in (rows, given, paper_length) if limit is not None)
    endless = DataSet("adstream:1_000_000_000")
    for batch in column_batches(endless, feature, None, 1 << 20, rows_per_day=-(-left // _DAYS)):
        finite = batch[np.isfinite(batch)][:left]
        yield finite
        left -= finite.size
        if not left:
            return


def _compare(values: Floats, paper_length: int, seeds: int) -> Findings:
    truth = JumpReservoir(values.size)
    truth.update(values)
    order_statistics = OrderStatistics(np.arange(101) / 100)
    sizes = slots(values.size, paper_length)
    samplers = {
        size: {name: [ESTIMATORS[name](size=size, seed=seed) for seed in range(seeds)] for name in SAMPLERS}
        for size in sizes
    }
    every = [one for by_name in samplers.values() for several in by_name.values() for one in several]
    for start in range(0, values.size, BATCH_SIZE):
        batch = values[start : start + BATCH_SIZE]
        for estimator in (order_statistics, *every):
            estimator.update(batch)
    bins = occupied_bins(truth)
    points = order_statistics.quantile(_LEVELS)
    return {
        "values": values.size,
        "distinct": int(np.count_nonzero(np.diff(truth.ordered()))) + 1,
        "bins": bins,
        "batches": order_statistics.batches,
        "order_statistics": {
            "interpolated": kl_divergence(truth, order_statistics),
            "points": kl_divergence(truth, points),
        },
        "reservoirs": [
            {
                "slots": size,
                "kl_by_chance": kl_by_chance(bins, size, values.size),
                "draws_expected": expected_draws(size, values.size),
                **{
                    name: {
                        "kl": [kl_divergence(truth, one) for one in several],
                        "draws": float(np.mean([getattr(one, "draws") for one in several])),  # noqa: B009
                    }
                    for name, several in by_name.items()
                },
            }
            for size, by_name in samplers.items()
        ],
    }


def slots(length: int, paper_length: int) -> tuple[int, ...]:
    """Reservoir sizes for a stream of so many values: the paper's share of it, and 10,000 where that is less.

    >>> slots(29_400_000, 29_400_000), slots(107_000, 29_400_000)
    ((100000,), (364, 10000))
    """
    share = min(max(round(length * RESERVOIR_SIZE / paper_length), 50), RESERVOIR_SIZE)
    return (share, _SMALL) if share < _SMALL and length >= 5 * _SMALL else (share,)


def occupied_bins(truth: JumpReservoir) -> int:
    """How many intervals between the true percentiles are distinct: ties make it fewer than 100."""
    cuts = np.unique(truth.quantile(_LEVELS))
    return cuts.size + int(cuts[-1] < truth.maximum)


def kl_by_chance(bins: int, size: int, length: int) -> float:
    """The KL divergence that a uniform sample of `size` out of `length` values has on average: (k−1)/(2m)·(1 − m/T).

    >>> round(kl_by_chance(100, 100_000, 36_300_000), 6)
    0.000494
    """
    return (bins - 1) / (2 * size) * (1 - size / length)


def expected_draws(size: int, length: int) -> dict[str, float]:
    """Random numbers that each rule draws over a stream on average, the first m values costing none.

    RS: T − m. JRS, two an acceptance: the exact rule 2m·ln(T/m), the published one 2m·∫₁^(T/m) (1 − e^(−1/x)) dx.

    >>> {rule: f"{draws:.3e}" for rule, draws in expected_draws(100_000, 29_400_000).items()}
    {'reservoir': '2.930e+07', 'jump-paper': '1.051e+06', 'jump': '1.137e+06'}
    """
    logs = np.linspace(0.0, np.log(length / size), 10_001)
    accepted = float(np.trapezoid(-np.expm1(-np.exp(-logs)) * np.exp(logs), logs))
    return {
        "reservoir": float(length - size),
        "jump-paper": 2 * size * accepted,
        "jump": 2 * size * float(logs[-1]),
    }


def markdown(result: Result) -> str:
    parts = []
    for column, kind in enumerate(KINDS):
        found = result.results[kind]
        rows: list[list[Any]] = [
            [
                title,
                "",
                scientific(ESTIMATION["OS"].kl[column]),
                scientific(found["order_statistics"][name]),
                "",
                "",
                "",
            ]
            for name, title in ORDER_STATISTICS.items()
        ]
        for part in found["reservoirs"]:
            for name, title in SAMPLERS.items():
                published = ESTIMATION[_PUBLISHED[name]]
                assert published.calls is not None
                rows.append(
                    [
                        title,
                        count(part["slots"]),
                        scientific(published.kl[column]),
                        f"{scientific(float(np.mean(part[name]['kl'])))} ({scientific(part['kl_by_chance'])})",
                        scientific(published.calls[column]),
                        scientific(part[name]["draws"], 3),
                        scientific(part["draws_expected"][name], 3),
                    ]
                )
        heading = (
            f"**{found['feature']}** ({kind}; stands beside the paper's I{'35'[column]}): {count(found['values'])} values, "
            f"{count(found['distinct'])} distinct, {found['bins']} distinct intervals, {found['batches']} batches"
        )
        headers = [
            "method",
            "slots",
            "KL, paper",
            "KL, ours (by chance)",
            "calls, paper",
            "calls, ours",
            "calls, closed form",
        ]
        parts += [heading, "", table(headers, rows), ""]
    return "\n".join(parts).rstrip()


def draw(result: Result) -> "Figure":
    figure, axes = figures.panels(1, 2, 9.6, 3.6, sharey=True)
    for column, (kind, panel) in enumerate(zip(KINDS, axes, strict=True)):
        found = result.results[kind]
        part = found["reservoirs"][-1]
        series = [(name, title, [found["order_statistics"][name]]) for name, title in ORDER_STATISTICS.items()]
        series += [(name, title, part[name]["kl"]) for name, title in SAMPLERS.items()]
        labels = []
        for place, (name, title, values) in enumerate(series):
            panel.plot(values, [place] * len(values), "o", color=_COLOURS[name], alpha=0.75, markersize=6)
            panel.plot(
                ESTIMATION[_PUBLISHED[name]].kl[column], place, "D", color=figures.GREY, fillstyle="none", markersize=7
            )
            labels.append(f"{title}\n{count(part[name]['draws'])} draws" if name in part else title)
        panel.axvline(part["kl_by_chance"], color=figures.GREY, linestyle=":", linewidth=1)
        panel.text(part["kl_by_chance"], -0.75, " by chance", color=figures.GREY, fontsize=7.5, va="center")
        panel.set_xscale("log")
        panel.set_ylim(len(series) - 0.5, -1.1)
        panel.set_yticks(range(len(series)), labels if not column else None)
        panel.set_xlabel("KL divergence from the truth (lower is better)")
        panel.set_title(
            f"{found['feature']}, {kind}: {found['values'] / 1e6:.3g} million values, {part['slots']:,} slots"
        )
        panel.grid(axis="y", visible=False)
    figures.headline(
        figure,
        "Reservoirs know the distribution; means of batch quantiles do not",
        f"{result.where if result.data and not result.data['simulated'] else 'Simulated ad stream'}"
        " · dots: ours, one a seed · hollow diamonds: the paper's I3 and I5 (full Criteo)",
    )
    return figure


EXPERIMENT = Experiment(
    name="estimation",
    title="Distribution estimation: OS, RS, JRS",
    what="KL divergence and random calls of OS, RS and JRS (published and exact rule) on a clustered and a spread feature",
    claim=(
        "Table 3: on Criteo's I3 (clustered) and I5 (spread) reservoir sampling is orders of magnitude closer to the "
        "true distribution than the mean of batch quantiles, and jump sampling is as good with 3–4 % of the random calls."
    ),
    differs=(
        "The full Criteo file is not ours to ship: on the 0.3 % sample the reservoir keeps the paper's share of the "
        "stream (and 10,000 slots beside it), while the simulated stream has the paper's exact length and m = 100,000. "
        "The KL of a uniform sample is pure chance, (k−1)/(2m) for k distinct intervals, and the paper's own figures for "
        "RS agree with it (k = 100 gives 4.9e-4; its 2.46e-4 on I3 means about 50 distinct intervals). "
        "The paper's call counts for JRS are those of its published rule, 2m·∫(1 − e^(−1/x))dx, to three digits; the exact "
        "rule draws 8 % more. How OS quantiles become masses is not said: we read them as an interpolated CDF, and as "
        "99 points of equal mass."
    ),
    run=run,
    markdown=markdown,
    draw=draw,
    data=("adstream", "flights"),
    accepts=tuple(FEATURES),
)
