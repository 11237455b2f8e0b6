"""The law of a jump reservoir that restarted (merge, warm start, fewer slots, expiry), at small sizes."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from daes.distribution import JumpReservoir, schedule

SIZES = (1, 2, 5, 20)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(schedule, "BLOCK", 16)  # the streams are short


def positions(start, stop):
    """Values that are their own stream positions."""
    return np.arange(start, stop, dtype=float)


def merged(size, seed):
    first, second = 2 * size + 3, size + 2
    reservoir, other = JumpReservoir(size, seed=2 * seed), JumpReservoir(size, seed=2 * seed + 1)
    reservoir.update(positions(0, first))
    other.update(positions(first, first + second))
    reservoir.merge(other)
    return reservoir


def merged_with_few(size, seed):
    """The other stream is shorter than the reservoir."""
    first = 2 * size + 3
    reservoir, other = JumpReservoir(size, seed=2 * seed), JumpReservoir(size, seed=2 * seed + 1)
    other.update(positions(0, first))
    reservoir.update(positions(first, first + 1))
    reservoir.merge(other)
    return reservoir


def warm_started(size, seed):
    return JumpReservoir(size, seed=seed).warm_start(positions(0, 3 * size + 1))


def shrunk(size, seed):
    """`stability` halves the number of slots at position 4·size."""
    reservoir = JumpReservoir(2 * size, seed=seed, stability=0.5, min_size=size)
    reservoir._stable_size = lambda stability: size
    reservoir.update(positions(0, 4 * size))
    assert reservoir.capacity == size
    return reservoir


RESTARTS = {"merge": merged, "merge with few": merged_with_few, "warm start": warm_started, "shrink": shrunk}


def samples(make, size, ends, runs):
    """The members, as stream positions, when the count has reached each of `ends`: one list per end, a row per seed."""
    rows = {end: [] for end in ends}
    for seed in range(runs):
        reservoir = make(size, seed)
        for end in ends:
            reservoir.update(positions(reservoir.count, end))
            rows[end].append(reservoir.sample.astype(int))
    return rows


def p_value_of_inclusion(rows, members, population, window):
    """Chi-square test that each position of `window` is held as in a uniform sample of `members` out of `population`.

    The indicators of such a sample have covariance λ(I − 11ᵀ/population), λ = p(1 − p)·population/(population − 1).
    The window may be smaller than the population; then the number of members in it is random.
    """
    held = np.bincount(np.concatenate(rows), minlength=window.stop)
    assert held[: window.start].sum() == held[window.stop :].sum() == 0
    p = members / population
    deviation = held[window.start : window.stop] - len(rows) * p
    scale = len(rows) * p * (1 - p) * population / (population - 1)
    if len(window) == population:
        return stats.chi2.sf(np.sum(deviation**2) / scale, population - 1)
    square = np.sum(deviation**2) + np.sum(deviation) ** 2 / (population - len(window))
    return stats.chi2.sf(square / scale, len(window))


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("size", SIZES)
def test_every_position_is_included_equally_often_after_a_restart(restart, size):
    restarted = RESTARTS[restart](size, 0).count
    for end, rows in samples(RESTARTS[restart], size, [restarted + later for later in (0, 1, 3, 40)], 1200).items():
        assert {row.size for row in rows} == {size}
        assert p_value_of_inclusion(rows, size, end, range(end)) > 1e-4
        later = sum(int((row >= restarted).sum()) for row in rows)
        part = 1 - restarted / end
        variance = size * part * (1 - part) * (end - size) / (end - 1)  # of the hypergeometric law
        assert abs(later - len(rows) * size * part) <= 4 * np.sqrt(len(rows) * variance)


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("size", [1, 2])
def test_every_subset_is_equally_likely_after_a_restart(restart, size):
    end = RESTARTS[restart](size, 0).count + 4
    rows = samples(RESTARTS[restart], size, [end], 2000)[end]
    subsets = {subset: number for number, subset in enumerate(combinations(range(end), size))}
    observed = np.bincount([subsets[tuple(sorted(row))] for row in rows], minlength=len(subsets))
    assert stats.chisquare(observed).pvalue > 1e-4


@pytest.mark.parametrize(("size", "history", "count", "later"), [(5, 3, 12, 1), (5, 3, 12, 40), (20, 19, 60, 80)])
def test_free_slots_after_a_warm_start_are_filled_by_the_threshold(size, history, count, later):
    """Of N later values, j ~ BetaBinomial(N, k+1, n−k) pass the threshold; the sample is uniform over these and k."""
    law = stats.betabinom(later, history + 1, count - history)
    passed = np.arange(later + 1)
    kept = np.minimum(1, size / (history + passed))
    held = []
    for seed in range(1000):
        reservoir = JumpReservoir(size, seed=seed).warm_start(np.full(history, -1.0), count)
        reservoir.update(positions(0, later))
        held.append([(reservoir.sample < 0).sum(), (reservoir.sample >= 0).sum()])
    mean, error = np.mean(held, axis=0), np.std(held, axis=0) / np.sqrt(1000) + 1e-12
    exact = [history * (law.pmf(passed) @ kept), law.pmf(passed) @ (passed * kept)]
    assert np.abs((mean - exact) / error).max() < 4
    if law.cdf(size - history) < 1e-3:  # full: history and stream in proportion to the values they stand for
        assert exact[0] / size == pytest.approx(count / (count + later), rel=2e-3)


def with_expiry(expiry):
    return lambda size, seed: JumpReservoir(size, seed=seed, expiry=expiry)


@pytest.mark.parametrize("size", SIZES)
def test_expiry_includes_every_position_of_the_window_equally_often(size):
    for end, rows in samples(with_expiry(12), size, [21, 24, 25, 33, 64], 1000).items():
        start = max(end // 12 - 1, 0) * 12
        assert p_value_of_inclusion(rows, size, min(end, 24), range(start, end)) > 1e-4


@pytest.mark.parametrize("size", [1, 2])
def test_expiry_gives_every_subset_of_the_window_its_probability(size):
    """A sample of m out of 2n values, of which the n − r that are discarded or yet to come are not seen."""
    for end, rows in samples(with_expiry(4), size, [12, 13, 15], 2000).items():
        subsets = [subset for k in range(size + 1) for subset in combinations(range(8, end), k)]
        number = {subset: place for place, subset in enumerate(subsets)}
        observed = np.bincount([number[tuple(sorted(row))] for row in rows], minlength=len(subsets))
        law = np.array([comb(16 - end, size - len(subset)) / comb(8, size) for subset in subsets])
        assert observed[law == 0].sum() == 0
        assert stats.chisquare(observed[law > 0], len(rows) * law[law > 0]).pvalue > 1e-4


def test_expiry_keeps_everything_where_the_window_is_smaller_than_the_reservoir():
    reservoir = JumpReservoir(100, expiry=20)
    for length in range(5, 200, 5):
        reservoir.update(positions(length - 5, length))
        assert sorted(reservoir.sample) == list(range(max(0, length // 20 - 1) * 20, length))


def test_expiry_survives_the_loss_of_every_member():
    runs, empty = 1500, 0
    for seed in range(runs):
        reservoir = JumpReservoir(4, seed=seed, expiry=20)
        reservoir.update(positions(0, 40))
        if not reservoir.sample.size:
            empty += 1
            assert np.isnan(reservoir.quantile([0.0, 0.5])).all()
            assert np.isnan(reservoir.cdf([0.0, 50.0])).all()
            reservoir.update(positions(40, 59))
            assert reservoir.sample.size >= 3
            assert reservoir.quantile(0.0) == reservoir.sample.min() >= 40
    expected = runs * comb(20, 4) / comb(40, 4)
    assert abs(empty - expected) < 4 * np.sqrt(expected)


def test_the_published_rule_fills_free_slots_by_the_threshold_too():
    accepted = []
    for seed in range(300):
        reservoir = JumpReservoir(50, "paper", seed=seed).warm_start(np.full(30, -1.0), count=3000)
        reservoir.update(positions(0, 100))
        accepted.append((reservoir.sample >= 0).sum())
    assert np.mean(accepted) == pytest.approx(100 * 31 / 3001, rel=0.2)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({}, {"filled": -200}),
        ({}, {"filled": 5001}),
        ({}, {"position": -100_000}),
        ({}, {"position": 50_000}),
        ({}, {"log_threshold": np.nan}),
        ({}, {"log_threshold": 1.0}),
        ({}, {"taken": -3}),
        ({}, {"taken": 5000}),
        ({}, {"taken": 0}),
        ({"half_life": 10_000.0}, {"full_at": 10**9}),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(options, change):
    reservoir = JumpReservoir(5000, **options)
    reservoir.update(np.arange(100_000.0))
    state, sample = reservoir.state_dict(), reservoir.sample
    with pytest.raises(ValueError, match="must"):
        reservoir.load_state_dict(state | {f"schedule.{name}": value for name, value in change.items()})
    np.testing.assert_array_equal(reservoir.sample, sample)
    reservoir.load_state_dict(state)
