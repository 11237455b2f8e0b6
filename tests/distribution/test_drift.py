from collections.abc import Mapping
from itertools import pairwise
from math import log
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from daes.distribution import ESTIMATORS
from daes.distribution.base import DistributionEstimator, Floats, State
from daes.distribution.drift import kl_divergence, ks_by_chance, ks_statistic, psi
from daes.distribution.stream_drift import drift_profile


class Formula(DistributionEstimator):
    """Knows the distribution x ↦ x^power on [0, 1] by its formula."""

    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power
        self.count, self.minimum, self.maximum = 1000, 0.0, 1.0

    def _quantile(self, levels: Floats) -> Floats:
        return levels ** (1 / self.power)

    def _cdf(self, values: Floats) -> Floats:
        return np.clip(values, 0, 1) ** self.power

    def _absorb(self, values: Floats) -> None: ...
    def _merge(self, other: Self) -> None: ...
    def _state(self) -> State:
        return {}

    def _load(self, state: Mapping[str, Any]) -> None: ...


class Keeper(Formula):
    """Remembers all values, and gives the same answers as the sample itself."""

    def __init__(self, values: Any) -> None:
        DistributionEstimator.__init__(self)
        self.update(values)

    def _absorb(self, values: Floats) -> None:
        self.values = values

    def _quantile(self, levels: Floats) -> Floats:
        return np.quantile(self.values, levels, method="inverted_cdf")

    def _cdf(self, values: Floats) -> Floats:
        return np.array([np.mean(self.values <= value) for value in values])


def slow_masses(reference: list[float], others: list[list[float]], bins: int) -> list[list[float]]:
    cuts = sorted({float(np.quantile(reference, i / bins, method="inverted_cdf")) for i in range(1, bins)})
    lowest_is_a_cut = cuts[0] == min(reference)
    masses = []
    for values in others:
        intervals = [sum(1 for x in values if low < x <= high) for low, high in pairwise(cuts)]
        if lowest_is_a_cut:
            first = [sum(1 for x in values if x < cuts[0]), sum(1 for x in values if x == cuts[0])]
        else:
            first = [sum(1 for x in values if x <= cuts[0])]
        counts = [*first, *intervals, sum(1 for x in values if x > cuts[-1])]
        assert sum(counts) == len(values)
        masses.append([count / len(values) for count in counts])
    return masses


def slow_raise(masses: list[float], filled: list[bool], floor: float) -> list[float]:
    raised = [max(mass, floor) if fill else mass for mass, fill in zip(masses, filled, strict=True)]
    return [mass / sum(raised) for mass in raised]


def slow_psi(expected: list[float], actual: list[float], bins: int, floor: float) -> float:
    e, a = slow_masses(expected, [expected, actual], bins)
    filled = [x > 0 or y > 0 for x, y in zip(e, a, strict=True)]
    e, a = slow_raise(e, filled, floor), slow_raise(a, filled, floor)
    return sum((y - x) * log(y / x) for x, y, fill in zip(e, a, filled, strict=True) if fill)


def slow_kl(true: list[float], estimated: list[float], bins: int, floor: float) -> float:
    p, q = slow_masses(true, [true, estimated], bins)
    q = slow_raise(q, [x > 0 for x in p], floor)
    return sum(x * log(x / y) for x, y in zip(p, q, strict=True) if x > 0)


clustered = st.lists(st.integers(-3, 6).map(float), min_size=1, max_size=60)
spread = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)
samples = st.one_of(clustered, spread)


@given(samples, samples, st.integers(2, 12))
@settings(max_examples=200, deadline=None)
def test_psi_and_kl_are_their_formulas(first: list[float], second: list[float], bins: int) -> None:
    assert psi(first, second, bins) == pytest.approx(slow_psi(first, second, bins, 1e-4), abs=1e-12)
    assert kl_divergence(first, second, bins) == pytest.approx(slow_kl(first, second, bins, 1e-6), abs=1e-12)
    assert psi(first, second, bins, floor=0.01) == pytest.approx(slow_psi(first, second, bins, 0.01), abs=1e-12)
    assert kl_divergence(first, second, bins, floor=0.01) == pytest.approx(
        slow_kl(first, second, bins, 0.01), abs=1e-12
    )


@pytest.mark.filterwarnings("ignore:ks_2samp")  # about its p-value, which is not used
@given(samples, samples)
@settings(max_examples=200, deadline=None)
def test_ks_is_exact(first: list[float], second: list[float]) -> None:
    expected = ks_2samp(first, second).statistic
    assert ks_statistic(first, second) == pytest.approx(expected, abs=1e-12)
    assert ks_statistic(Keeper(first), second) == pytest.approx(expected, abs=1e-12)
    assert ks_statistic(first, Keeper(second)) == pytest.approx(expected, abs=1e-12)
    assert ks_statistic(Keeper(first), Keeper(second), points=60) == pytest.approx(expected, abs=1e-12)


@given(samples, samples)
@settings(max_examples=50, deadline=None)
def test_an_estimator_is_read_like_the_sample_it_stands_for(first: list[float], second: list[float]) -> None:
    for measure in (psi, kl_divergence):
        expected = measure(first, second)
        for a in (first, Keeper(first)):
            for b in (second, Keeper(second)):
                assert measure(a, b) == pytest.approx(expected, abs=1e-12)


@given(samples)
@settings(max_examples=50, deadline=None)
def test_nothing_lies_between_a_distribution_and_itself(values: list[float]) -> None:
    assert psi(values, values) == 0
    assert kl_divergence(values, values) == 0
    assert ks_statistic(values, values) == 0


def test_closed_forms() -> None:
    uniform, square = Formula(1), Formula(2)
    edges = np.arange(101) / 100
    p, q = np.diff(edges), np.diff(edges**2)
    assert isinstance(uniform, DistributionEstimator)
    assert kl_divergence(uniform, square) == pytest.approx((p * np.log(p / q)).sum(), rel=1e-12)
    p, q = np.diff(edges[::10]), np.diff(edges[::10] ** 2)
    assert psi(uniform, square) == pytest.approx(((p - q) * np.log(p / q)).sum(), rel=1e-12)
    # sup |x − x²| = 1/4, attained at x = 1/2
    assert ks_statistic(uniform, square) == pytest.approx(0.25, abs=1e-8)
    assert ks_statistic(uniform, square, points=3) == pytest.approx(0.25, abs=1 / 3)
    # a sample against a formula: the largest gap is just below a jump, 0.5 − 0
    assert ks_statistic([0.5, 0.5, 0.6, 0.9], uniform) == pytest.approx(0.5)
    assert ks_statistic(uniform, [0.2, 0.3, 0.4, 0.45]) == pytest.approx(0.55)


def test_ties_share_a_cut_and_keep_their_mass() -> None:
    true = [0.0] * 60 + [1.0] * 30 + [2.0] * 10
    estimated = [0.0] * 50 + [1.0] * 30 + [2.0] * 20
    expected = 0.6 * log(0.6 / 0.5) + 0.1 * log(0.1 / 0.2)
    assert kl_divergence(true, estimated) == pytest.approx(expected)
    assert psi(true, estimated) == pytest.approx(0.1 * log(0.6 / 0.5) + 0.1 * log(0.2 / 0.1))


@pytest.mark.parametrize("moved", [4.0, 6.0])
def test_a_constant_that_moves_is_seen_in_both_directions(moved: float) -> None:
    before, after = [5.0] * 100, [moved] * 100
    assert ks_statistic(before, after) == 1
    assert psi(before, after) > 5
    assert kl_divergence(before, after) == pytest.approx(log(1e6), rel=1e-3)


def test_the_floor_decides_what_an_empty_bin_costs() -> None:
    true, estimated = [0.0, 1.0], [0.0, 0.0]
    costs = [kl_divergence(true, estimated, bins=2, floor=floor) for floor in (1e-2, 1e-4, 1e-8)]
    # each side of 0.5·ln(0.5/(1/(1+f))) + 0.5·ln(0.5/(f/(1+f)))
    assert costs == pytest.approx([0.5 * log(0.25 * (1 + f) ** 2 / f) for f in (1e-2, 1e-4, 1e-8)])


def test_a_sample_of_the_truth_has_the_divergence_of_theory() -> None:
    """2·m·KL of a sample of m values follows chi-square with bins − 1 degrees of freedom."""
    random = np.random.default_rng(7)
    truth = random.lognormal(size=200_000)
    runs, size = 40, 5000
    found = [2 * size * kl_divergence(truth, random.choice(truth, size)) for _ in range(runs)]
    assert np.mean(found) == pytest.approx(99, abs=4 * np.sqrt(2 * 99 / runs))


def test_values_that_are_not_finite_are_left_out() -> None:
    clean, dirty = [1.0, 2.0, 3.0], [np.nan, 1.0, np.inf, 2.0, 3.0, -np.inf]
    for measure in (psi, kl_divergence, ks_statistic):
        assert measure(clean, dirty) == 0
        assert measure(dirty, clean) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [1.0]), "must have a finite value, got none among 0"),
        (([1.0], [np.nan, np.inf]), "must have a finite value, got none among 2"),
        ((np.ones((2, 2)), [1.0]), r"must be one-dimensional, got shape \(2, 2\)"),
        ((["a"], [1.0]), "must be numeric, got dtype"),
        ((Keeper([]), [1.0]), "must have seen a value, got Keeper with count=0"),
    ],
)
def test_bad_samples_are_errors(arguments: tuple[Any, Any], message: str) -> None:
    for measure, names in [(psi, "expected|actual"), (kl_divergence, "true|estimated"), (ks_statistic, "a|b")]:
        with pytest.raises((ValueError, TypeError), match=f"^({names}).*{message}"):
            measure(*arguments)


@pytest.mark.parametrize("measure", [psi, kl_divergence, drift_profile])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 1}, "bins must be at least 2, got 1"),
        ({"bins": 0}, "bins must be a positive integer, got 0"),
        ({"bins": 2.5}, "bins must be a positive integer, got 2.5"),
        ({"floor": 0.0}, r"floor must lie in \(0, 1/bins\), got 0.0"),
        ({"floor": 0.5, "bins": 2}, r"floor must lie in \(0, 1/bins\), got 0.5 with bins=2"),
    ],
)
def test_bad_binning_is_an_error(measure: Any, options: dict[str, Any], message: str) -> None:
    second = 2 if measure is drift_profile else [1.0]
    with pytest.raises(ValueError, match=message):
        measure([1.0, 2.0], second, **options)


def test_bad_points_are_an_error() -> None:
    with pytest.raises(ValueError, match="points must be a positive integer, got 0"):
        ks_statistic([1.0], [1.0], points=0)


def drifting_column() -> Floats:
    random = np.random.default_rng(3)
    column = np.floor(random.lognormal(mean=np.linspace(0, 1, 1003), sigma=1.0))
    column[random.random(1003) < np.linspace(0, 0.5, 1003)] = np.nan
    column[17] = np.inf
    return column


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_profile_compares_each_segment_with_the_first(dtype: Any) -> None:
    column = drifting_column().astype(dtype)
    profile = drift_profile(column, segments=7, bins=5)
    parts = [column[profile.bounds[s] : profile.bounds[s + 1]] for s in range(7)]
    assert np.array_equal(np.concatenate(parts), column, equal_nan=True)
    assert {part.size for part in parts} == {143, 144}
    assert profile.segments == 7
    assert profile.psi == pytest.approx([psi(parts[0], part, 5) for part in parts])
    finite = [part[np.isfinite(part)] for part in parts]
    assert profile.ks == pytest.approx([ks_2samp(finite[0], part).statistic for part in finite])
    assert profile.missing == pytest.approx([np.mean(~np.isfinite(part)) for part in parts])
    assert list(profile.counts) == [part.size for part in finite]
    assert profile.psi[0] == profile.ks[0] == 0
    assert profile.missing[-1] > 0.3
    assert "0 segments without any" in str(profile)


def test_one_segment_a_value_is_allowed_and_more_are_not() -> None:
    assert list(drift_profile([1.0, 1.0, 2.0], segments=3).ks) == [0, 0, 1]
    with pytest.raises(ValueError, match="segments must lie between 2 and the number of rows, 3, got 4"):
        drift_profile([1.0, 1.0, 2.0], segments=4)


def test_segments_without_values_are_unknown_and_counted() -> None:
    nothing = [np.nan] * 3
    profile = drift_profile([1.0, 2.0, 3.0, *nothing, 1.0, 2.0, 4.0, *nothing], segments=4)
    assert list(np.isnan(profile.psi)) == list(np.isnan(profile.ks)) == [False, True, False, True]
    assert list(np.isnan(profile.psi_by_chance)) == list(np.isnan(profile.ks_by_chance)) == [False, True, False, True]
    assert list(profile.missing) == [0, 1, 0, 1]
    assert "4 segments, 6 values, 2 segments without any" in str(profile)


def test_an_empty_first_segment_leaves_only_the_missing_rate() -> None:
    profile = drift_profile([np.nan, np.nan, 1.0, np.nan], segments=2)
    assert np.isnan(profile.psi).all()
    assert np.isnan(profile.ks).all()
    assert np.isnan(profile.psi_by_chance).all()
    assert list(profile.missing) == [1, 0.5]
    assert "1 segments without any" in str(profile)
    assert "the first segment has no finite value" in str(profile)


@pytest.mark.parametrize(
    ("column", "segments", "message"),
    [
        ([np.nan, np.inf], 2, "column must have a finite value, got none among 2"),
        ([1.0, 2.0], 1, "segments must lie between 2 and the number of rows, 2, got 1"),
        ([1.0, 2.0], 0, "segments must be a positive integer, got 0"),
        ([1.0, 2.0], 2.0, "segments must be a positive integer, got 2.0"),
        ([], 2, "segments must lie between 2 and the number of rows, 0, got 2"),
        (["a", "b"], 2, "column must be numeric, got dtype <U1"),
    ],
)
def test_bad_columns_are_errors(column: Any, segments: int, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        drift_profile(column, segments)


def test_no_ks_by_chance_is_above_one() -> None:
    by_chance = ks_by_chance([1, 2, 0, 1000], 1)
    assert by_chance[[0, 1]].tolist() == [1.0, 1.0]
    assert np.isnan(by_chance[2])
    assert by_chance[3] == pytest.approx(np.sqrt(np.pi / 2) * np.log(2), rel=1e-3)


def test_without_drift_a_profile_shows_what_chance_alone_gives() -> None:
    profiles = [drift_profile(np.random.default_rng(seed).normal(size=3000), segments=2) for seed in range(300)]
    psi_found = np.array([profile.psi[1] for profile in profiles])
    ks_found = np.array([profile.ks[1] for profile in profiles])
    # PSI is about 2/1500 times a chi-square variable with nine degrees of freedom.
    assert psi_found.mean() == pytest.approx(profiles[0].psi_by_chance[1], abs=4 * psi_found.std() / np.sqrt(300))
    # Kolmogorov's law is a limit: at this size the mean is some 2 % smaller.
    assert ks_found.mean() == pytest.approx(profiles[0].ks_by_chance[1], rel=0.06)
    assert profiles[0].psi_by_chance[0] == profiles[0].ks_by_chance[0] == 0


@pytest.mark.parametrize("extremes", [[1e308], [-1e308], [1e308, -1e308], [np.finfo(float).max, -np.finfo(float).max]])
@pytest.mark.parametrize("repeat", [1, 50])
@pytest.mark.filterwarnings("error")
def test_the_largest_floats_give_finite_results(extremes: list[float], repeat: int) -> None:
    random = np.random.default_rng(0)
    column = random.permutation(np.concatenate([random.normal(size=500), np.repeat(extremes, repeat)]))
    for function in (psi, kl_divergence, ks_statistic):
        for first, second in ((column, column[:100]), (column[:100], column), (column, random.normal(size=100))):
            exact = function(first, second)
            assert np.isfinite(exact)
            for make in ESTIMATORS.values():
                one, other = make(), make()
                one.update(first)
                other.update(second)
                assert np.isfinite([function(one, second), function(first, other), function(one, other)]).all()
    profile = drift_profile(column, segments=5)
    assert np.isfinite([profile.psi, profile.ks]).all()
