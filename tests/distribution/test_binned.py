import numpy as np
import pytest

from daes import native
from daes.distribution import ks_statistic, psi
from daes.distribution.binned import DriftBins
from daes.distribution.drift import psi_of_masses


def columns(count, seed, shift=0.0):
    """A continuous feature, one of many ties and zeros, a constant one, and one of few values."""
    random = np.random.default_rng(seed)
    return np.stack(
        [
            random.lognormal(shift, size=count),
            random.poisson(1 + shift, count) * (random.random(count) < 0.5),
            np.full(count, 3.0 + shift),
            random.integers(0, 3, count) + shift,
        ],
        axis=1,
    ).astype(np.float64)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_psi_is_that_of_the_samples(shift):
    reference, other = columns(5000, 0), columns(3000, 1, shift)
    bins = DriftBins(reference)
    expected = [psi(reference[:, feature], other[:, feature]) for feature in range(4)]
    np.testing.assert_allclose(bins.psi(bins.count(other)), expected, rtol=1e-12)
    np.testing.assert_allclose(bins.psi(bins.expected), 0.0, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
def test_ks_is_at_most_a_hundredth_below_that_of_the_samples(shift):
    reference, other = columns(5000, 0), columns(3000, 1, shift)
    bins = DriftBins(reference)
    found = bins.ks(bins.count(other))
    exact = np.array([ks_statistic(reference[:, feature], other[:, feature]) for feature in range(4)])
    assert (found <= exact + 1e-12).all()
    assert found[0] >= exact[0] - 0.011
    if shift:
        assert (found > 0.05).all()


def test_counts_add_up_and_stack():
    reference, other = columns(1000, 0), columns(600, 1)
    bins = DriftBins(reference)
    parts = np.stack([bins.count(part) for part in np.split(other, 6)])
    np.testing.assert_array_equal(parts.sum(axis=0), bins.count(other))
    assert bins.psi(parts).shape == bins.ks(parts).shape == (6, 4)
    np.testing.assert_array_equal(bins.psi(parts)[2], bins.psi(parts[2]))
    np.testing.assert_array_equal(bins.ks(parts)[2], bins.ks(parts[2]))


@pytest.mark.parametrize("rows", [0, 1, 30, 4000])
def test_psi_of_many_rows_is_that_of_each_bit_for_bit(rows):
    random = np.random.default_rng(rows)
    bins = DriftBins(columns(5000, 0))
    parts = random.integers(0, rows + 1, (50, *bins.expected.shape)) * (random.random((50, 1, 1)) < 0.9)
    parts[:, :, : rows % 7] = 0
    found = bins.psi(parts)
    for feature in range(4):
        reference = bins._coarse(bins.expected, feature)
        for row, others in zip(found[:, feature], bins._coarse(parts, feature), strict=True):
            if others.sum():
                assert row == psi_of_masses(reference / reference.sum(), others / others.sum(), 1e-4)
            else:
                assert np.isnan(row)


@pytest.mark.parametrize("step", [1, 3, -1])
def test_counts_of_compiled_loops_are_those_without(monkeypatch, step):
    values = np.vstack([columns(700, 1, 0.5), np.full((2, 4), np.nan), [[np.inf] * 4, [-np.inf] * 4]])
    values[::5, 2] = np.nan
    values = values.astype(np.float32)[::step]
    reference = columns(500, 0).astype(np.float32)
    bins = DriftBins(reference)
    found = bins.count(values)
    monkeypatch.setattr(native, "_library", None)
    np.testing.assert_array_equal(found, bins.count(values))
    np.testing.assert_array_equal(bins.expected, DriftBins(reference).expected)
    np.testing.assert_array_equal(DriftBins(reference).expected, DriftBins(reference.astype(np.float64)).expected)


def test_missing_and_infinite_values_are_left_out():
    values = np.array([[1.0], [np.nan], [2.0], [np.inf], [-np.inf], [3.0]])
    bins = DriftBins(values)
    assert bins.expected.sum() == 3
    np.testing.assert_array_equal(bins.count([[np.nan], [np.inf]]), np.zeros_like(bins.expected))
    assert np.isnan(bins.psi(bins.count([[np.nan]]))).all()
    assert np.isnan(bins.ks(bins.count([[np.nan]]))).all()


def test_a_feature_without_a_value_has_no_drift_to_speak_of():
    reference = np.array([[1.0, np.nan], [2.0, np.nan]])
    bins = DriftBins(reference)
    counts = bins.count([[1.0, 5.0], [2.0, 6.0]])
    assert np.isnan(bins.psi(counts)).tolist() == [False, True]
    assert np.isnan(bins.ks(counts)).tolist() == [False, True]
    assert bins.filled.tolist()[1] == 0


def test_filled_bins_are_those_with_a_value_of_the_reference():
    bins = DriftBins(np.stack([np.arange(100.0), np.repeat([0.0, 1.0], 50), np.full(100, 7.0)], axis=1))
    assert bins.filled.tolist() == [10, 2, 1]


def test_a_state_gives_the_same_bins():
    bins = DriftBins(columns(500, 0))
    again = DriftBins.from_state(bins.state_dict())
    counts = bins.count(columns(300, 1, 0.5))
    np.testing.assert_array_equal(again.count(columns(300, 1, 0.5)), counts)
    np.testing.assert_array_equal(again.psi(counts), bins.psi(counts))
    np.testing.assert_array_equal(again.ks(counts), bins.ks(counts))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="reference must have shape"):
        DriftBins([1.0, 2.0])
    with pytest.raises(ValueError, match=r"values must have shape \(B, 1\)"):
        DriftBins([[1.0]]).count([[1.0, 2.0]])


@pytest.mark.filterwarnings("error")
def test_the_lowest_float_may_be_a_cut():
    lowest = -np.finfo(float).max
    reference = np.array([[lowest]] * 50 + [[1.0], [2.0]] * 10)
    values = np.array([[lowest], [1.0], [5.0]])
    bins = DriftBins(reference)
    np.testing.assert_allclose(bins.psi(bins.count(values)), psi(reference[:, 0], values[:, 0]))
