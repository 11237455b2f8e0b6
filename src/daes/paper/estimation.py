"""How well OS, RS and JRS know a stream's distribution, and how many random numbers that takes."""

from collections.abc import Iterator
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from daes.distribution import ESTIMATORS, JumpReservoir, OrderStatistics, kl_divergence
from daes.distribution.comparison import LABELS
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
SAMPLERS = ("reservoir", "jump-paper", "jump")
_DAYS = 7
_SHORT = 1_000_000


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    found = {}
    for kind, feature, paper_length in zip(KINDS, FEATURES[data.name], ESTIMATION_LENGTHS, strict=True):
        means.note(f"{data.name}: {feature}")
        found[kind] = _feature(settings, data, feature, paper_length)
    return found


def _feature(settings: Settings, data: DataSet, feature: str, paper_length: int) -> Findings:
    batches = _stream(data, feature, settings.rows, paper_length)
    truth_size = paper_length if data.simulated else 1 << 26
    values = np.concatenate(list(batches))
    length = min(values.size, truth_size)
    size = _slots(length, paper_length)
    samplers = {
        name: [ESTIMATORS[name](size=size, seed=seed) for seed in range(settings.seeds)] for name in SAMPLERS
    }
    means = OrderStatistics(np.arange(101) / 100)
    for start in range(0, values.size, BATCH_SIZE):
        batch = values[start : start + BATCH_SIZE]
        means.update(batch)
        for estimator in (one for several in samplers.values() for one in several):
            estimator.update(batch)
    truth = JumpReservoir(values.size)
    truth.update(values)
    points = means.quantile(np.arange(1, 100) / 100)
    return {
        "feature": feature,
        "values": values.size,
        "distinct": int(np.unique(values).size),
        "slots": size,
        "batch_size": BATCH_SIZE,
        "bins": occupied_bins(truth),
        "kl": {
            "order-statistics": [kl_divergence(truth, means)],
            "order-statistics, points": [kl_divergence(truth, points)],
            **{name: [kl_divergence(truth, one) for one in several] for name, several in samplers.items()},
        },
        "draws": {name: float(np.mean([one.draws for one in several])) for name, several in samplers.items()},
        "quantiles": {
            "level": np.arange(1, 100),
            "true": truth.quantile(np.arange(1, 100) / 100),
            "order-statistics": points,
            "jump": samplers["jump"][0].quantile(np.arange(1, 100) / 100),
        },
    }


def _stream(data: DataSet, feature: str, rows: int | None, paper_length: int) -> Iterator[Floats]:
    """The finite values; of a simulated stream as many as the paper's had, over as many days."""
    if not data.simulated:
        for batch in column_batches(data, feature, rows, 1 << 16):
            yield batch[np.isfinite(batch)]
        return
    given = data.open().source.num_rows if ":" in data.spec else None
    left = min(filter(None, (rows, given, paper_length)))
    long = DataSet("adstream:1_000_000_000")
    for batch in column_batches(long, feature, None, 1 << 20, rows_per_day=-(-left // _DAYS)):
        finite = batch[np.isfinite(batch)][:left]
        yield finite
        left -= finite.size
        if not left:
            return
