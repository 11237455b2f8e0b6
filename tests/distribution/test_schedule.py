"""Which positions of a stream are accepted: the laws, without any values."""

from copy import deepcopy

import numpy as np
import pytest
from scipy import integrate, stats

from daes.distribution.adaptive_schedule import DecaySchedule
from daes.distribution.schedule import (
    BLOCK,
    ExactSchedule,
    PaperSchedule,
    Schedule,
    smallest_keys,
    threshold_after,
)


def members(schedule: Schedule, length: int) -> np.ndarray:
    """The stream positions that a reservoir following the schedule holds after `length` values."""
    positions, slots = schedule.take(length)
    held = np.zeros(schedule.size, np.int64)
    held[slots] = positions
    return held[held > 0]


def inclusion(make, length: int, runs: int) -> np.ndarray:
    """How often each position is held, over many seeds."""
    held = np.zeros(length + 1)
    for seed in range(runs):
        held[members(make(seed), length)] += 1
    return held[1:]


@pytest.mark.parametrize("size", [1, 10, 300])
def test_exact_rule_holds_every_position_equally_often(size):
    length, runs = 3000, 300
    held = inclusion(lambda seed: ExactSchedule(size, seed), length, runs)
    assert held.sum() == size * runs
    per_bin = held.reshape(20, -1).sum(1)
    assert stats.chisquare(per_bin).pvalue > 0.001


def test_exact_rule_accepts_with_probability_size_over_position():
    size, length, runs = 50, 2000, 400
    accepted = np.zeros(length + 1)
    for seed in range(runs):
        accepted[ExactSchedule(size, seed).take(length).positions] += 1
    position = np.arange(1, length + 1)
    expected = np.minimum(1, size / position)
    assert (accepted[1 : size + 1] == runs).all()
    bins = np.arange(size, length).reshape(26, -1)
    deviation = [(accepted[1:][b].sum() - runs * expected[b].sum()) / np.sqrt(runs * expected[b].sum()) for b in bins]
    assert np.abs(deviation).max() < 4


def test_published_rule_keeps_the_first_values_half_again_as_often():
    size, length, runs = 1000, 20_000, 200
    held = inclusion(lambda seed: PaperSchedule(size, seed), length, runs) / runs / (size / length)
    assert held[:size].mean() == pytest.approx(1.5, abs=0.02)
    assert 0.94 < held[size : 4 * size].mean() < 0.99
    assert 0.94 < held[-5 * size :].mean() < 1.0


def test_published_rule_follows_its_own_recursion():
    """Algorithm 1 of the paper, a value at a time, on the same random numbers."""
    schedule = PaperSchedule(20, 7)
    positions, slots = schedule.take(5000)
    bits = np.random.PCG64(np.random.SeedSequence(7, spawn_key=(0,)))
    gaps = ((bits.random_raw(BLOCK) >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53
    t, k, expected = 20, 0, []
    following = t + int(np.floor(t * (gaps[0] ** (-1 / 20) - 1))) + 1
    while following <= 5000:
        t = following
        expected.append(t)
        k += 1
        following = t + int(np.floor(t * (gaps[k] ** (-1 / 20) - 1))) + 1
    assert positions[20:].tolist() == expected
    assert slots.max() < 20


@pytest.mark.parametrize("later", [29_300_000, 36_200_000])
def test_numbers_drawn_follow_both_closed_forms(later):
    size = 100_000
    length = size + later
    exact, paper = ExactSchedule(size, 1), PaperSchedule(size, 1)
    exact.take(length)
    paper.take(length)
    assert exact.draws == pytest.approx(2 * size * np.log(length / size), rel=0.01)
    area, _ = integrate.quad(lambda x: 1 - np.exp(-1 / x), 1, length / size)
    assert paper.draws == pytest.approx(2 * size * area, rel=0.01)


def test_free_slots_fill_at_the_threshold():
    """After old members were discarded, a value passes with probability W until the slots are full again."""
    gaps = []
    for seed in range(40):
        schedule = ExactSchedule(100, seed)
        schedule.restart(position=1000, filled=40, log_threshold=np.log(0.2))
        positions, slots = schedule.take(10_000)
        assert slots[:60].tolist() == list(range(40, 100))
        gaps.extend(np.diff(positions[:60]))
    assert np.mean(gaps) == pytest.approx(5, rel=0.05)


@pytest.mark.parametrize(("size", "half_life"), [(50, 400.0), (200, 1000.0), (50, 30.0)])
def test_decay_halves_inclusion_with_every_half_life(size, half_life):
    length, runs = 1200, 1500
    held = inclusion(lambda seed: DecaySchedule(size, half_life, seed), length, runs)
    age = length - np.arange(1, length + 1)
    shape = 2.0 ** (-age / half_life)
    expected = shape * held.sum() / shape.sum()
    # Wide enough bins, oldest first, for the normal approximation of counts.
    edges = np.searchsorted(expected.cumsum(), np.linspace(0, expected.sum(), 16)[1:-1])
    observed, wanted = (np.array([part.sum() for part in np.split(x, edges)]) for x in (held, expected))
    assert ((observed - wanted) ** 2 / wanted).sum() < stats.chi2.ppf(0.999, observed.size - 1)


def test_decay_is_plain_sampling_when_nothing_dies():
    schedule = DecaySchedule(100, 1e12, 0)
    schedule.take(5000)
    assert schedule.acceptance(5000) == pytest.approx(100 / 5000, rel=1e-3)


def test_decay_uses_no_more_slots_than_live_values():
    assert DecaySchedule(1000, 30.0, 0).size == int(1 / (1 - 2 ** (-1 / 30)))


@pytest.mark.parametrize("half_life", [0.4, 1.0, 1.5, 2.3])
def test_a_half_life_of_few_values_is_exact(half_life, monkeypatch):
    monkeypatch.setattr("daes.distribution.schedule.BLOCK", 16)
    length, runs = 60, 4000
    held = inclusion(lambda seed: DecaySchedule(10, half_life, seed), length, runs)[::-1]
    size = DecaySchedule(10, half_life, 0).size
    expected = runs * size * (1 - 2 ** (-1 / half_life)) * 2 ** (-np.arange(length) / half_life)
    deviation = (held - expected)[expected > 20] / np.sqrt(expected[expected > 20])
    assert np.abs(deviation).max() < 4


@pytest.mark.parametrize("make", [ExactSchedule, PaperSchedule, lambda size, seed: DecaySchedule(size, 5000.0, seed)])
def test_takes_of_any_length_give_the_same_acceptances(make):
    whole = make(700, 3).take(60_000)
    parts = make(700, 3)
    taken = [parts.take(end) for end in [1, 2, 699, 700, 701, *range(1000, 60_000, 997), 60_000]]
    for column in range(2):
        np.testing.assert_array_equal(np.concatenate([t[column] for t in taken]), whole[column])


@pytest.mark.parametrize("make", [ExactSchedule, PaperSchedule, lambda size, seed: DecaySchedule(size, 5000.0, seed)])
@pytest.mark.parametrize("at", [0, 350, 700, 5000, 59_999])
def test_a_saved_schedule_goes_on_and_so_does_a_copy(make, at):
    schedule = make(700, 3)
    schedule.take(at)
    loaded, copy = make(700, 3), deepcopy(schedule)
    loaded.load_state_dict(schedule.state_dict())
    expected = schedule.take(90_000)
    for other in (loaded, copy):
        got = other.take(90_000)
        np.testing.assert_array_equal(got.positions, expected.positions)
        np.testing.assert_array_equal(got.slots, expected.slots)
        assert other.draws == schedule.draws


def test_a_stream_beyond_any_length_is_served():
    schedule = ExactSchedule(10, 0)
    positions, _ = schedule.take(10**17)
    assert (np.diff(positions) > 0).all()
    assert positions[-1] <= 10**17


def test_smallest_keys_are_order_statistics():
    rng = np.random.default_rng(0)
    last = [smallest_keys(rng, 20, 100)[-1] for _ in range(2000)]
    assert stats.kstest(last, stats.beta(20, 81).cdf).pvalue > 0.001
    first = [smallest_keys(rng, 20, 100)[0] for _ in range(2000)]
    assert stats.kstest(first, stats.beta(1, 100).cdf).pvalue > 0.001


def test_threshold_after_is_one_while_everything_is_kept():
    rng = np.random.default_rng(0)
    assert threshold_after(rng, 5, 5) == 0.0
    assert threshold_after(rng, 0, 0) == 0.0


@pytest.mark.parametrize(("kept", "count"), [(0, 5), (1, 2), (10, 99)])
def test_threshold_after_is_the_smallest_key_not_kept(kept, count):
    rng = np.random.default_rng(0)
    drawn = [np.exp(threshold_after(rng, kept, count)) for _ in range(2000)]
    keys = np.sort(rng.random((2000, count)), axis=1)[:, kept]
    assert stats.ks_2samp(drawn, keys).pvalue > 0.001


@pytest.mark.parametrize("half_life", [0, -1.0, float("nan"), float("inf")])
def test_half_life_must_be_positive_and_finite(half_life):
    with pytest.raises(ValueError, match="half_life must be a positive number"):
        DecaySchedule(10, half_life, 0)
