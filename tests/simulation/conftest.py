"""Parts of a simulated stream that several files test, made once."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from daes.simulation import AdStream, Features, LawDrift, Signal
from daes.simulation.laws import EXP, NORMAL, WEIBULL

TAILS = {"bid": 2.2, "impressions_7d": 1.2, "clicks_7d": 1.8}
RANGES = {"discount": (0, 100), "ctr_7d": (0, 1), "user_age": (12, 99)}
SIGNAL = {field.name for field in fields(Signal)}
STILL = LawDrift(daily=0, slow=0, abrupt=0, churn=0)


@pytest.fixture(scope="session")
def stream() -> Callable[..., AdStream]:
    """A stream of 20 000 rows a day, given further options and those of its `Signal`; `drift` may be None."""

    @cache
    def make(**options: Any) -> AdStream:
        signal = Signal(**{name: options.pop(name) for name in SIGNAL & options.keys()})
        options["drift"] = options.get("drift", LawDrift()) or STILL
        return AdStream(**{"num_rows": 600_000, "rows_per_day": 20_000, **options}, signal=signal)

    return make


@pytest.fixture(scope="session")
def still_rows(stream: Callable[..., AdStream]) -> Features:
    """300 000 rows without drift."""
    return stream(drift=None).features(0, 300_000)


@pytest.fixture(scope="session")
def moving_rows(stream: Callable[..., AdStream]) -> Features:
    """400 000 rows with all kinds of drift."""
    return stream().features(0, 400_000)


@pytest.fixture(scope="session")
def moving_labels(stream: Callable[..., AdStream]) -> tuple[Any, Any]:
    """True probabilities and labels of those rows."""
    return stream().click_probability(0, 400_000), stream().batch(0, 400_000).label


@pytest.fixture(scope="session")
def scipy_law() -> Callable[..., Any]:
    def compute(law, category):
        """The law of the positive part given a category, before rounding up, written anew on scipy.stats."""
        location, scale = law.location[category], law.scale[category]
        if law.spec.link is not EXP:
            return stats.norm(location, scale)
        if law.spec.family is NORMAL:
            return stats.lognorm(s=scale, scale=np.exp(location))
        if law.spec.family is WEIBULL:
            return stats.weibull_min(c=1 / scale, scale=np.exp(location))
        # A Lomax variable to a power is of Burr's type XII.
        return stats.burr12(c=1 / scale, d=TAILS[law.spec.name], scale=np.exp(location))

    return compute


@pytest.fixture(scope="session")
def scipy_cdf(scipy_law) -> Callable[..., Any]:
    def compute(law, values, category):
        values = np.asarray(values, dtype=np.float64)
        if law.spec.link is not EXP:
            low, high = RANGES[law.spec.name]
            with np.errstate(divide="ignore"):
                values = np.log(values - low) - np.log(high - values)
        return law.zero[category] + (1 - law.zero[category]) * scipy_law(law, category).cdf(values)

    return compute


@pytest.fixture(scope="session")
def observed() -> Callable[..., Any]:
    def compute(features, name):
        values = features.numerical[name]
        return values[~np.isnan(values)]

    return compute


@pytest.fixture(scope="session")
def discrete_ks() -> Callable[..., Any]:
    def compute(values, cdf):
        """Kolmogorov's distance and its p-value, which is conservative where the law has atoms."""
        support, counts = np.unique(values, return_counts=True)
        at = np.cumsum(counts) / len(values)
        before = np.append(0, at[:-1])
        expected = cdf(support)
        # Just below an atom the law stands where it stands at the value before that.
        distance = np.abs(at - expected).max()
        if len(support) > 0.9 * len(values):
            distance = max(distance, np.abs(before - expected).max())
        return distance, stats.kstwobign.sf(distance * np.sqrt(len(values)))

    return compute
