import numpy as np
import pytest

from daes.distribution import ESTIMATORS, JumpReservoir, OrderStatistics, Reservoir, kl_divergence
from daes.paper.divergence import bucket_divergence, expected_draws, kl_by_chance, occupied_bins, slots


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


def test_distinct_intervals_are_counted():
    assert occupied_bins(of(np.arange(1000.0))) == 100
    assert occupied_bins(of(np.repeat([0.0, 1.0], [400, 600]))) == 2
    # The highest value lies above the last percentile.
    assert occupied_bins(of(np.repeat([0.0, 1.0], [999, 1]))) == 2


@pytest.mark.parametrize(
    ("length", "expected"), [(1000, (50,)), (49_999, (500,)), (50_000, (500, 10_000)), (2_000_000, (20_000,))]
)
def test_slots_are_the_share_of_the_paper_and_ten_thousand_where_there_is_room(length, expected):
    assert slots(length, 10_000_000) == expected
