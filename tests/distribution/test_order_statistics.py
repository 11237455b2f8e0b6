"""Order statistics: the mean over batches of batch quantiles, its bias under drift, and its bookkeeping."""

import math

import numpy as np
import pytest

from daes.distribution.order_statistics import OrderStatistics

NAN = float("nan")


def slow_quantile(batch, level):
    """inf{x : F(x) ≥ level}, counting."""
    ordered = sorted(batch)
    for rank, value in enumerate(ordered, start=1):
        if rank / len(ordered) >= level:
            return value
    raise AssertionError(level)


def fed(batches, levels=None):
    estimator = OrderStatistics(levels)
    for batch in batches:
        estimator.update(np.asarray(batch, dtype=float))
    return estimator


def test_kept_quantiles_are_means_over_batches():
    rng = np.random.default_rng(0)
    batches = [rng.lognormal(size=size) for size in (1, 7, 100, 33, 2)]
    estimator = fed(batches)
    levels = [i / 100 for i in range(101)]
    assert estimator.levels.tolist() == levels
    slow = [math.fsum(slow_quantile(batch, level) for batch in batches) / 5 for level in levels]
    np.testing.assert_allclose(estimator.quantile(levels), slow, rtol=1e-13)


def test_one_batch_gives_its_own_quantiles_exactly():
    values = np.random.default_rng(1).normal(size=1000)
    estimator = fed([values])
    assert estimator.quantile(estimator.levels).tolist() == [slow_quantile(values, level) for level in estimator.levels]


def test_other_levels_are_interpolated_and_clamped():
    estimator = fed([[0.0, 10.0, 30.0, 70.0]], levels=[0.25, 0.5, 1.0])
    assert estimator.quantile([[0.0, 0.25, 0.3], [0.5, 0.75, 1.0]]).tolist() == [
        [0.0, 0.0, pytest.approx(2.0)],
        [10.0, 40.0, 70.0],
    ]
    assert estimator.cdf([-1.0, 0.0, 5.0, 40.0, 70.0]).tolist() == [0.0, 0.25, 0.375, 0.75, 1.0]
    single = fed([[0.0, 10.0, 30.0, 70.0]], levels=[0.5])
    assert single.quantile([0.0, 0.5, 1.0]).tolist() == [10.0, 10.0, 10.0]
    assert single.cdf([9.0, 10.0, 11.0]).tolist() == [0.0, 1.0, 1.0]


def test_cdf_inverts_the_quantile():
    rng = np.random.default_rng(2)
    estimator = fed(rng.normal(size=(20, 500)))
    levels = rng.random(200)
    np.testing.assert_allclose(estimator.cdf(estimator.quantile(levels)), levels, atol=1e-12)
    assert estimator.cdf([-np.inf, -1e9, 1e9, np.inf]).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert np.isnan(estimator.cdf([NAN])).all()


def test_cdf_counts_all_of_a_tie():
    estimator = fed([[0.0] * 6 + [1.0, 2.0, 3.0, 4.0]] * 3, levels=np.arange(11) / 10)
    assert estimator.cdf([-1e-9, 0.0, 0.5, 4.0]).tolist() == [0.0, 0.6, pytest.approx(0.65), 1.0]


@pytest.mark.parametrize("level", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("t", [1, 2, 10, 50])
def test_bias_under_drift_has_the_closed_form(t, level):
    a, b, size = -3.0, 17.0, 10_000
    width = (b - a) / t
    grid = (np.arange(size) + 0.5) / size  # a batch that is uniform to within half a grid step
    estimator = fed([a + i * width + width * grid for i in range(t)])
    bias = estimator.quantile(level) - (a + level * (b - a))
    assert bias == pytest.approx((t - 1) * (1 - 2 * level) * (b - a) / (2 * t), abs=1.01 * width / size)


def test_bias_under_drift_holds_for_random_batches():
    a, b, t, size = 0.0, 1.0, 200, 200
    starts = a + np.arange(t)[:, None] * (b - a) / t
    estimator = fed(starts + np.random.default_rng(3).random((t, size)) * (b - a) / t)
    levels = np.linspace(0.05, 0.95, 19)
    bias = (t - 1) * (1 - 2 * levels) * (b - a) / (2 * t)
    # In batch widths: a standard error of at most 0.5/√200/√200 = 0.0025, and 1/200 that a batch cannot resolve.
    np.testing.assert_allclose(estimator.quantile(levels) - levels, bias, atol=(4 * 0.0025 + 1 / size) * (b - a) / t)


def test_without_drift_there_is_no_bias():
    values = np.random.default_rng(4).random((100, 5000))
    levels = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(fed(values).quantile(levels), levels, atol=2e-3)


def test_a_batch_without_values_is_no_batch():
    estimator = fed([[1.0, 2.0], [], [NAN, NAN], [np.inf, -np.inf], [3.0, NAN, 4.0]])
    assert (estimator.batches, estimator.count, estimator.skipped) == (2, 4, 5)
    assert (estimator.minimum, estimator.maximum) == (1.0, 4.0)
    assert estimator.quantile([0.0, 1.0]).tolist() == [2.0, 3.0]


def test_before_the_first_value_everything_is_nan():
    estimator = OrderStatistics()
    estimator.update([NAN])
    assert np.isnan(estimator.quantile([0.0, 0.5])).all()
    assert np.isnan(estimator.cdf([[0.0], [1.0]])).all()
    assert estimator.batches == 0


def test_a_constant_column_stays_exact_and_the_range_of_floats_does_not_overflow():
    estimator = fed([[0.1] * 7] * 1000)
    assert set(estimator.quantile(np.linspace(0, 1, 333))) == {0.1}
    assert estimator.cdf([np.nextafter(0.1, 0), 0.1]).tolist() == [0.0, 1.0]
    most = np.finfo(np.float64).max
    with np.errstate(all="raise"):
        wide = fed([[most]] * 9 + [[-most]] * 9)
        assert wide.quantile(0.3) == pytest.approx(0.0, abs=1e-10 * most)
        wide = fed([[-most, most]])
        wide.load_state_dict(wide.state_dict())
        assert wide.quantile([0.0, 0.5, 1.0]).tolist() == [-most, -most, most]


def test_merge_weighs_by_batches():
    rng = np.random.default_rng(5)
    batches = [rng.normal(i, 1, size=50 + i) for i in range(12)]
    left, right, whole = fed(batches[:3]), fed(batches[3:]), fed(batches)
    left.merge(right)
    assert (left.batches, left.count) == (whole.batches, whole.count)
    np.testing.assert_allclose(left.quantile(left.levels), whole.quantile(whole.levels), rtol=1e-12, atol=1e-12)
    assert (left.minimum, left.maximum) == (whole.minimum, whole.maximum)
    before = left.quantile(0.5)
    left.merge(fed([[NAN]]))
    assert (left.quantile(0.5), left.batches, left.skipped) == (before, 12, 1)


def test_merging_into_an_empty_one_copies():
    filled, empty = fed([[1.0, 2.0, 3.0]]), OrderStatistics()
    empty.merge(filled)
    filled.update([100.0])
    assert empty.quantile([0.0, 0.5, 1.0]).tolist() == [1.0, 2.0, 3.0]


def test_state_goes_on_bit_for_bit():
    batches = np.random.default_rng(6).normal(size=(20, 31))
    straight, first = fed(batches), fed(batches[:11])
    second = OrderStatistics()
    state = first.state_dict()
    first.update([1e6])  # what was saved must not move with what goes on
    second.load_state_dict(state)
    state["means"][:] = 7.0
    first.state_dict()["means"][:] = 7.0
    assert first.quantile(1.0) > 1e4
    for batch in batches[11:]:
        second.update(batch)
    assert second.quantile(second.levels).tolist() == straight.quantile(straight.levels).tolist()
    assert second.state_dict().keys() == straight.state_dict().keys()
    assert (second.batches, second.count) == (20, 620)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": np.zeros(7)}, "means must be 3 finite, nondecreasing values"),
        ({"means": np.array([1.0, 3.0, 2.0])}, "nondecreasing"),
        ({"means": np.array([1.0, NAN, 2.0])}, "finite"),
        ({"batches": 0}, "consistent with count=\\d+, got 0"),
        ({"batches": 99}, "consistent with count=\\d+, got 99"),
        ({"levels": np.array([0.0, 0.4, 1.0])}, "levels"),
        ({"kind": "GKSketch"}, "kind"),
    ],
)
def test_a_corrupt_state_is_an_error(change, message):
    estimator = fed([[1.0, 2.0, 3.0]], levels=[0.0, 0.5, 1.0])
    with pytest.raises(ValueError, match=message):
        estimator.load_state_dict({**estimator.state_dict(), **change})


@pytest.mark.parametrize("levels", [[], [[0.1, 0.2]], 0.5, [0.5, 0.5], [0.6, 0.4], [-0.1, 0.5], [0.5, 1.1], [NAN]])
def test_bad_levels_are_an_error(levels):
    with pytest.raises(ValueError, match="levels must"):
        OrderStatistics(levels)


def test_merging_other_levels_or_kinds_is_an_error():
    estimator = OrderStatistics([0.1, 0.9])
    with pytest.raises(ValueError, match="other must have levels="):
        estimator.merge(OrderStatistics([0.1, 0.8]))
    with pytest.raises(TypeError, match="other must be a OrderStatistics"):
        estimator.merge(np.zeros(3))


def test_levels_cannot_be_changed_from_outside():
    given = np.array([0.25, 0.75])
    estimator = OrderStatistics(given)
    given[0] = 0.9
    assert estimator.levels.tolist() == [0.25, 0.75]
    with pytest.raises(ValueError, match="read-only"):
        estimator.levels[0] = 0.9


def test_memory_is_fixed():
    estimator = fed(np.random.default_rng(7).normal(size=(5, 1000)))
    assert estimator.nbytes == OrderStatistics().nbytes == 2 * 101 * 8
