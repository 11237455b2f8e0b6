import numpy as np
import pytest

from daes.distribution import JumpReservoir, OrderStatistics, Reservoir
from daes.paper import DataSet, Settings
from daes.paper.estimation import (
    bucket_divergence,
    expected_draws,
    kl_by_chance,
    occupied_bins,
)

from .conftest import run_and_show


def of(values):
    estimator = JumpReservoir(len(values))
    estimator.update(values)
    return estimator


def test_bucket_divergence_by_hand():
    # All percentiles up to the 40th lie at 0: the first bucket holds 40 %. Those from the 41st on lie at 1.
    truth = of(np.repeat([0.0, 1.0], [400, 600]))
    # Here all of them lie at 1: one bucket holds everything, and what bucket 41 should hold is at the floor.
    estimate = of(np.ones(10))
    expected = 0.4 * np.log(0.4 / (1 / (1 + 1e-6))) + 0.6 * np.log(0.6 / (1e-6 / (1 + 1e-6)))
    assert bucket_divergence(truth, estimate) == pytest.approx(expected)


def test_buckets_punish_a_percentile_that_moves_off_a_frequent_value():
    rng = np.random.default_rng(0)
    values = np.floor(rng.exponential(2.0, 50_000))
    truth = of(values)
    moved = of(values - 1e-9)
    assert bucket_divergence(truth, moved) > 1
    assert bucket_divergence(truth, of(values)) == 0


def test_kl_by_chance_is_the_mean_over_samples():
    from daes.distribution import kl_divergence

    rng = np.random.default_rng(0)
    values = np.floor(rng.lognormal(1, 1, 40_000))
    truth = of(values)
    found = [kl_divergence(truth, _sampled(values, 4000, seed)) for seed in range(60)]
    expected = kl_by_chance(occupied_bins(truth), 4000, values.size)
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / np.sqrt(60) + 0.1 * expected)


def _sampled(values, size, seed):
    reservoir = Reservoir(size, seed=seed)
    reservoir.update(values)
    return reservoir


@pytest.mark.parametrize("rule", ["jump", "jump-paper"])
def test_expected_draws_is_the_mean_over_seeds(rule):
    from daes.distribution import ESTIMATORS

    drawn = []
    for seed in range(30):
        reservoir = ESTIMATORS[rule](size=500, seed=seed)
        reservoir.update(np.zeros(20_000))
        drawn.append(reservoir.draws)
    assert np.mean(drawn) == pytest.approx(expected_draws(500, 20_000)[rule], rel=0.01)


def test_order_statistics_of_one_batch_have_no_error():
    values = np.random.default_rng(0).normal(size=10_000)
    estimate = OrderStatistics()
    estimate.update(values)
    assert bucket_divergence(of(values), estimate) < 1e-6


def test_the_simulated_stream_has_the_length_asked_for(means, tmp_path):
    found, markdown, verdict = run_and_show("estimation", Settings(rows=60_000, seeds=2), DataSet("adstream"), means)
    for kind in ("clustered", "spread"):
        assert found[kind]["values"] == 60_000
        share, ten_thousand = found[kind]["reservoirs"]
        assert (share["slots"], ten_thousand["slots"]) == ({"clustered": 204, "spread": 165}[kind], 10_000)
        for part in (share, ten_thousand):
            assert part["reservoir"]["draws"] == 60_000 - part["slots"]
            assert part["jump"]["draws"] == pytest.approx(part["draws_expected"]["jump"], rel=0.2)
        assert np.mean(ten_thousand["jump"]["masses"]) < 3 * ten_thousand["kl_by_chance"]
    assert found["clustered"]["bins"] < found["spread"]["bins"]
    assert "5.97" in markdown
    assert "clicks_7d" in verdict


def test_genuine_columns(criteo, means):
    found, markdown, _ = run_and_show("estimation", Settings(seeds=1), criteo, means)
    assert found["clustered"]["feature"] == "I3"
    assert 2500 < found["clustered"]["values"] < 2900  # a tenth is missing
    assert "**I5**" in markdown
