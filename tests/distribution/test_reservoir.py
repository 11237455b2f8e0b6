"""Plain and jump reservoirs: the law of the sample, splits, merges, resuming, adapting."""

import json

import numpy as np
import pytest
from scipy import stats

from daes.distribution import JumpReservoir, Reservoir

STREAM = np.random.default_rng(5).lognormal(sigma=2, size=60_000)

EVERY_KIND = {
    "plain": lambda seed=0, **more: Reservoir(500, seed, **more),
    "exact": lambda seed=0, **more: JumpReservoir(500, seed=seed, **more),
    "paper": lambda seed=0, **more: JumpReservoir(500, "paper", seed=seed, **more),
    "expiry": lambda seed=0, **more: JumpReservoir(500, seed=seed, expiry=7000, **more),
    "decay": lambda seed=0, **more: JumpReservoir(500, seed=seed, half_life=4000, **more),
    "stability": lambda seed=0, **more: JumpReservoir(500, seed=seed, stability=0.1, min_size=50, **more),
}
UNIFORM_KINDS = ("plain", "exact")
every_kind = pytest.mark.parametrize("kind", EVERY_KIND)


def feed(reservoir, values, batch):
    for start in range(0, len(values), batch):
        reservoir.update(values[start : start + batch])
    return reservoir


def plain_reservoir_oracle(values, size, seed):
    """Reservoir sampling a value at a time, as in the textbook."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    kept = []
    for t, value in enumerate(values, start=1):
        if t <= size:
            kept.append(value)
            continue
        place = int(rng.random() * t)
        if place < size:
            kept[place] = value
    return kept


def test_plain_reservoir_equals_the_textbook():
    assert feed(Reservoir(37, seed=11), STREAM[:3000], 113).sample.tolist() == plain_reservoir_oracle(
        STREAM[:3000], 37, 11
    )


def test_plain_reservoir_draws_once_a_value_after_filling():
    assert feed(Reservoir(500), STREAM, 8192).draws == len(STREAM) - 500


@pytest.mark.parametrize("kind", UNIFORM_KINDS)
@pytest.mark.parametrize("seed", [0, 1000, 2000])
def test_sample_is_uniform_over_the_stream(kind, seed):
    held = np.zeros(20)
    for run in range(60):
        sample = feed(EVERY_KIND[kind](seed + run), np.arange(20_000.0), 700).sample
        assert sample.size == 500
        held += np.histogram(sample, bins=20, range=(0, 20_000))[0]
    assert stats.chisquare(held).pvalue > 0.001


@every_kind
@pytest.mark.parametrize("batch", [1, 7, 8192, 60_000])
def test_the_split_into_batches_does_not_matter(kind, batch):
    values = STREAM[:9000] if batch == 1 else STREAM
    reference = feed(EVERY_KIND[kind](), values, 1234)
    other = feed(EVERY_KIND[kind](), values, batch)
    np.testing.assert_array_equal(other.sample, reference.sample)
    assert other.draws == reference.draws


@every_kind
@pytest.mark.parametrize("at", [0, 123, 500, 7000, 30_001])
def test_a_saved_reservoir_goes_on_bit_for_bit(kind, at):
    whole = feed(EVERY_KIND[kind](), STREAM, 1000)
    first = feed(EVERY_KIND[kind](), STREAM[:at], 1000)
    second = EVERY_KIND[kind](seed=99)
    second.load_state_dict(first.state_dict())
    feed(second, STREAM[at:], 777)
    np.testing.assert_array_equal(second.sample, whole.sample)
    assert (second.count, second.minimum, second.maximum, second.draws) == (
        whole.count,
        whole.minimum,
        whole.maximum,
        whole.draws,
    )


@every_kind
def test_state_is_arrays_and_plain_values(kind):
    state = feed(EVERY_KIND[kind](), STREAM, 8192).state_dict()
    arrays = [value for value in state.values() if isinstance(value, np.ndarray)]
    assert all(array.dtype.kind in "fi" for array in arrays)
    json.dumps({name: value for name, value in state.items() if not isinstance(value, np.ndarray)})


@every_kind
def test_reading_changes_nothing(kind):
    silent, read = EVERY_KIND[kind](), EVERY_KIND[kind]()
    for start in range(0, len(STREAM), 999):
        silent.update(STREAM[start : start + 999])
        read.update(STREAM[start : start + 999])
        read.quantile([0.1, 0.9])
    np.testing.assert_array_equal(silent.sample, read.sample)


@every_kind
def test_quantiles_and_cdf_are_those_of_the_sample(kind):
    reservoir = EVERY_KIND[kind]()
    for start in range(0, 20_000, 2500):
        reservoir.update(STREAM[start : start + 2500])
        ordered = np.sort(reservoir.sample)
        levels = np.linspace(0, 1, 41)
        expected = [
            ordered[max(0, np.flatnonzero(np.arange(1, ordered.size + 1) / ordered.size >= a)[0])] for a in levels
        ]
        np.testing.assert_array_equal(reservoir.quantile(levels), expected)
        points = np.array([[0.0, ordered[0]], [ordered[30], np.inf]])
        np.testing.assert_allclose(reservoir.cdf(points), [[np.mean(ordered <= p) for p in row] for row in points])


def test_quantile_is_the_inverted_cdf_where_level_times_size_rounds_up():
    reservoir = JumpReservoir(100)
    reservoir.update(np.arange(1.0, 101.0))
    assert 0.07 * 100 > 7  # the trap
    assert reservoir.quantile(0.07) == 7
    assert reservoir.quantile(0.0) == 1
    assert reservoir.quantile(1.0) == 100


@pytest.mark.parametrize("kind", UNIFORM_KINDS)
@pytest.mark.parametrize(
    ("first", "second"), [(3000, 9000), (200, 9000), (9000, 200), (150, 200), (0, 3000), (3000, 0)]
)
def test_merge_is_uniform_over_both_streams_and_goes_on(kind, first, second):
    later, runs = 4000, 250
    total = first + second + later
    held = np.zeros(total)
    before = np.zeros(first + second)
    for run in range(runs):
        a, b = EVERY_KIND[kind](2 * run), EVERY_KIND[kind](2 * run + 1)
        a.update(np.arange(first, dtype=float))
        b.update(np.arange(first, first + second, dtype=float))
        a.merge(b)
        assert a.count == first + second
        assert a.sample.size == min(500, first + second)
        assert np.unique(a.sample).size == a.sample.size
        before[a.sample.astype(int)] += 1
        a.update(np.arange(first + second, total, dtype=float))
        held[a.sample.astype(int)] += 1
    for counts in (before, held):
        if counts.size > 500:
            bins = np.array([part.sum() for part in np.array_split(counts, 10)])
            sizes = np.array([part.size for part in np.array_split(counts, 10)])
            assert stats.chisquare(bins, bins.sum() * sizes / sizes.sum()).pvalue > 0.001


def test_how_many_members_come_from_each_stream_is_hypergeometric():
    from_first = []
    for run in range(3000):
        a, b = JumpReservoir(20, seed=2 * run), JumpReservoir(20, seed=2 * run + 1)
        a.update(np.zeros(60))
        b.update(np.ones(90))
        a.merge(b)
        from_first.append(int((a.sample == 0).sum()))
    law = stats.hypergeom(150, 60, 20)
    ks = np.arange(4, 13)
    observed = np.array([np.sum(np.clip(from_first, 4, 12) == k) for k in ks])
    expected = law.pmf(ks)
    expected[0], expected[-1] = law.cdf(4), law.sf(11)
    assert stats.chisquare(observed, 3000 * expected).pvalue > 0.001


def test_merging_many_in_any_order_has_the_same_law():
    lengths = [4000, 700, 2500, 300]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for order in [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)]:
        held = np.zeros(4)
        for run in range(300):
            parts = [JumpReservoir(500, seed=10 * run + i) for i in range(4)]
            for i, part in enumerate(parts):
                part.update(np.arange(starts[i], starts[i + 1], dtype=float))
            merged = parts[order[0]]
            for i in order[1:]:
                merged.merge(parts[i])
            held += np.histogram(merged.sample, bins=starts)[0]
        assert stats.chisquare(held, held.sum() * np.array(lengths) / 7500).pvalue > 0.001


def test_a_merged_reservoir_is_saved_and_goes_on():
    a, b = JumpReservoir(500, seed=1), JumpReservoir(500, seed=2)
    a.update(STREAM[:9000])
    b.update(STREAM[9000:20_000])
    a.merge(b)
    c = JumpReservoir(500)
    c.load_state_dict(a.state_dict())
    for reservoir in (a, c):
        feed(reservoir, STREAM[20_000:], 512)
    np.testing.assert_array_equal(a.sample, c.sample)


def test_expiry_keeps_only_young_values_uniformly():
    held = np.zeros(20_000)
    for run in range(300):
        reservoir = feed(JumpReservoir(200, seed=run, expiry=4000), np.arange(18_000.0), 900)
        held[reservoir.sample.astype(int)] += 1
    # The last discard, at 16 000, dropped what came before 12 000.
    assert held[:12_000].sum() == 0
    bins = held[12_000:18_000].reshape(12, -1).sum(1)
    assert stats.chisquare(bins).pvalue > 0.001


def test_expiry_discards_at_the_position_not_at_the_batch():
    reservoir = JumpReservoir(100, expiry=1000)
    reservoir.update(np.arange(1000.0))
    reservoir.update(np.arange(1000.0, 2000.0))
    assert reservoir.sample.min() >= 1000


def test_half_life_follows_a_shift():
    old, new = np.zeros(50_000), np.ones(10_000)
    share = [feed(JumpReservoir(1000, seed=s, half_life=5000), np.r_[old, new], 1000).sample.mean() for s in range(20)]
    assert np.mean(share) == pytest.approx(1 - 2 ** (-10_000 / 5000), abs=0.02)


@pytest.mark.parametrize(("history", "count"), [(3000, None), (3000, 1000), (300, None), (300, 900)])
def test_warm_start_stands_for_its_count_of_values(history, count):
    later, runs = 3000, 300
    stood_for = count or history
    from_history = 0
    for run in range(runs):
        reservoir = JumpReservoir(400, seed=run).warm_start(np.full(history, -1.0), count)
        assert reservoir.count == stood_for
        reservoir.update(np.arange(later, dtype=float))
        from_history += (reservoir.sample == -1).mean()
    assert from_history / runs == pytest.approx(stood_for / (stood_for + later), rel=0.06)


def test_warm_start_picks_from_history_uniformly():
    held = np.zeros(10)
    for run in range(200):
        sample = JumpReservoir(100, seed=run).warm_start(np.arange(2000.0)).sample
        held += np.histogram(sample, bins=10, range=(0, 2000))[0]
    assert stats.chisquare(held).pvalue > 0.001


def test_stability_chooses_few_slots_where_few_suffice():
    rng = np.random.default_rng(0)
    spread = feed(JumpReservoir(20_000, stability=0.02, min_size=100), rng.normal(size=200_000), 4096)
    constant = feed(JumpReservoir(20_000, stability=0.02, min_size=100), np.ones(200_000), 4096)
    assert constant.capacity == 100
    # Half the Kolmogorov distance of the halves of n values is about 0.87/√n.
    assert 500 < spread.capacity < 6000
    assert spread.nbytes == spread.capacity * 8
    error = np.abs(stats.norm.cdf(spread.quantile(np.arange(0.05, 1, 0.05))) - np.arange(0.05, 1, 0.05)).max()
    assert error < 0.05


def test_stability_needs_two_members_to_compare():
    alone = feed(JumpReservoir(1, stability=0.02), np.arange(10.0), 3)
    assert (alone.capacity, alone.sample.size) == (1, 1)
    constant = feed(JumpReservoir(100, stability=0.02, min_size=1), np.ones(3000), 500)
    assert constant.capacity == 2
    history = JumpReservoir(5, stability=0.02).warm_start([3.0], count=1000)
    assert feed(history, np.arange(2000.0), 500).count == 3000


def test_stability_keeps_the_sample_uniform_when_it_shrinks():
    held = np.zeros(10)
    for run in range(200):
        reservoir = feed(
            JumpReservoir(400, seed=run, stability=0.2, min_size=50),
            np.arange(10_000.0) % 100 * 1e6 + np.arange(10_000.0),
            500,
        )
        assert reservoir.capacity < 400
        held += np.histogram(reservoir.sample % 1e6 // 1000, bins=10, range=(0, 10))[0]
    assert stats.chisquare(held).pvalue > 0.001


def test_stability_grows_again_where_the_error_is_too_large():
    rng = np.random.default_rng(1)
    reservoir = JumpReservoir(2000, stability=0.03, min_size=50)
    feed(reservoir, np.ones(4000), 500)
    assert reservoir.capacity == 50
    feed(reservoir, rng.normal(size=300_000), 5000)
    assert reservoir.capacity > 100
    assert reservoir.sample.size > 100


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_values_that_are_not_finite_are_skipped_and_counted(kind):
    dirty = np.array([np.nan, 1.0, np.inf, 2.0, -np.inf, np.nan, 3.0])
    reservoir = EVERY_KIND[kind]()
    reservoir.update(dirty)
    reservoir.update(np.array([np.nan, np.inf]))
    reservoir.update([])
    assert (reservoir.count, reservoir.skipped) == (3, 6)
    assert (reservoir.minimum, reservoir.maximum) == (1.0, 3.0)
    assert sorted(reservoir.sample) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_before_the_first_value_all_is_nan(kind):
    reservoir = EVERY_KIND[kind]()
    reservoir.update([np.nan])
    assert np.isnan([reservoir.minimum, reservoir.maximum]).all()
    assert np.isnan(reservoir.quantile([0.0, 0.5])).all()
    assert np.isnan(reservoir.cdf([1.0])).all()


def test_error_messages_name_argument_and_value():
    for make, message in [
        (lambda: JumpReservoir(0), "size must be a positive integer, got 0"),
        (lambda: JumpReservoir(-3), "size must be a positive integer, got -3"),
        (lambda: Reservoir(2.5), "size must be .*, got 2.5"),
        (lambda: JumpReservoir(10, "quick"), "skip must be one of exact, paper, got 'quick'"),
        (lambda: JumpReservoir(10, seed=-1), "seed must be a non-negative integer, got -1"),
        (lambda: JumpReservoir(10, expiry=5, half_life=5), "only one of .* can be set, got expiry, half_life"),
        (lambda: JumpReservoir(10, "paper", expiry=5), "expiry needs skip='exact'"),
        (lambda: JumpReservoir(10, expiry=0), "expiry must be a positive integer, got 0"),
        (lambda: JumpReservoir(10, stability=2.0), r"stability must lie in \(0, 1\), got 2.0"),
        (lambda: JumpReservoir(10).quantile([0.5, 1.5]), r"levels must lie in \[0, 1\], got 1.5"),
        (lambda: JumpReservoir(10).quantile([np.nan]), "got nan"),
        (lambda: JumpReservoir(10).update([[1.0]]), r"one-dimensional, got shape \(1, 1\)"),
        (lambda: JumpReservoir(10).warm_start([]), "at least one finite value, got none among 0"),
        (
            lambda: JumpReservoir(10).warm_start([1.0, 2.0], count=1),
            "count must be at least 2, the number of members kept, got 1",
        ),
        (lambda: JumpReservoir(10).warm_start([1.0], count=2.5), "count must be a positive integer, got 2.5"),
        (lambda: JumpReservoir(10, expiry=4).warm_start([1.0]), "cannot be used with expiry"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError, match="values must be numeric, got dtype"):
        JumpReservoir(10).update(np.array(["a"]))


def test_merging_other_kinds_sizes_or_itself_is_an_error():
    a = JumpReservoir(10)
    a.update([1.0])
    with pytest.raises(TypeError, match="other must be a JumpReservoir to merge, got Reservoir"):
        a.merge(Reservoir(10))
    with pytest.raises(ValueError, match="other must have size=10 to merge, got 20"):
        a.merge(JumpReservoir(20))
    with pytest.raises(ValueError, match="other must have skip='exact' to merge, got 'paper'"):
        a.merge(JumpReservoir(10, "paper"))
    with pytest.raises(ValueError, match="got this JumpReservoir itself"):
        a.merge(a)
    old, new = JumpReservoir(10, half_life=5), JumpReservoir(10, half_life=5)
    new.update([1.0])
    with pytest.raises(ValueError, match="half_life cannot be merged"):
        old.merge(new)


def test_loading_a_state_that_does_not_fit_is_an_error():
    state = feed(JumpReservoir(10), STREAM[:100], 10).state_dict()
    with pytest.raises(ValueError, match="state must have size=20, got 10"):
        JumpReservoir(20).load_state_dict(state)
    with pytest.raises(ValueError, match="state must have kind='Reservoir', got 'JumpReservoir'"):
        Reservoir(10).load_state_dict({**Reservoir(10).state_dict(), **state})
    with pytest.raises(ValueError, match="another version: sample missing"):
        JumpReservoir(10).load_state_dict({k: v for k, v in state.items() if k != "sample"})
    with pytest.raises(ValueError, match="at most 10 values, got shape"):
        JumpReservoir(10).load_state_dict({**state, "sample": np.zeros(11)})


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({}, {"sample": np.zeros((2, 2))}),
        ({}, {"sample": np.zeros(11)}),
        ({"expiry": 50}, {"born": np.zeros(3, np.int64)}),
        ({"stability": 0.1, "min_size": 2}, {"capacity": 4}),
    ],
)
def test_a_state_that_is_refused_changes_nothing(options, change):
    reservoir, other = JumpReservoir(10, **options), JumpReservoir(10, seed=1, **options)
    reservoir.update(np.arange(8.0))
    other.update(np.arange(9.0) + 100)
    with pytest.raises(ValueError, match=r"state's (sample|born) must"):
        reservoir.load_state_dict({**other.state_dict(), **change})
    np.testing.assert_array_equal(reservoir.sample, np.arange(8.0))
    assert (reservoir.count, reservoir.seed, reservoir.maximum) == (8, 0, 7.0)
