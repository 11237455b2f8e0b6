"""What all estimators share: the base class, and agreement on easy streams."""

import numpy as np
import pytest

from daes.distribution import ESTIMATORS, DistributionEstimator

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)


@every_estimator
def test_every_estimator_has_the_base_class(name):
    assert isinstance(ESTIMATORS[name](), DistributionEstimator)


@every_estimator
def test_quantiles_and_cdf_are_close_on_an_easy_stream(name):
    values = np.random.default_rng(1).normal(size=60_000)
    estimator = ESTIMATORS[name]()
    for batch in np.array_split(values, 30):
        estimator.update(batch)
    levels = np.linspace(0.05, 0.95, 19)
    rank = np.searchsorted(np.sort(values), estimator.quantile(levels)) / values.size
    assert np.abs(rank - levels).max() < 0.02
    assert estimator.cdf(np.quantile(values, levels)) == pytest.approx(levels, abs=0.02)


@every_estimator
def test_cdf_is_monotone_and_keeps_shape(name):
    estimator = ESTIMATORS[name]()
    estimator.update(np.random.default_rng(2).integers(0, 9, 5000).astype(float))
    points = np.linspace(-1, 10, 200)
    shares = estimator.cdf(points.reshape(4, 50)).ravel()
    assert (np.diff(shares) >= 0).all()
    assert shares[0] == 0
    assert shares[-1] == 1
    assert np.isnan(estimator.cdf(np.nan))


@every_estimator
def test_merging_adds_counts_ranges_and_distributions(name):
    low, high = ESTIMATORS[name](), ESTIMATORS[name]()
    low.update(np.linspace(0, 1, 3000))
    high.update(np.linspace(2, 3, 3000))
    high.update([np.nan])
    low.merge(high)
    assert (low.count, low.skipped, low.minimum, low.maximum) == (6000, 1, 0.0, 3.0)
    if name != "order-statistics":  # the mean of two batches' quantiles is between them: the method's known bias
        assert low.cdf(1.5) == pytest.approx(0.5, abs=0.03)


@every_estimator
def test_values_of_any_real_dtype_are_taken(name):
    for dtype in (np.float32, np.float16, np.int64, np.int8, np.uint16, bool):
        estimator = ESTIMATORS[name]()
        estimator.update(np.array([0, 1, 1], dtype=dtype))
        assert (estimator.count, estimator.maximum) == (3, 1.0)
    for bad in (np.array([1 + 2j]), np.array(["1"]), np.array([None]), np.array(["2020"], dtype="datetime64[D]")):
        with pytest.raises(TypeError, match="values must be numeric, got dtype"):
            ESTIMATORS[name]().update(bad)
