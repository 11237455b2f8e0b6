import numpy as np
import pytest

from daes.distribution.stream_drift import drift_profile, stream_drift


def rows(count):
    random = np.random.default_rng(0)
    values = np.stack(
        [
            random.normal(np.linspace(0, 2, count)),
            random.poisson(np.linspace(0.5, 3, count)).astype(float),
            np.where(np.arange(count) < 200, np.nan, 1.0),
            random.normal(size=count),
        ],
        axis=1,
    )
    values[random.random(values.shape) < 0.1] = np.nan
    values[::97, 3] = np.inf
    return values


@pytest.mark.parametrize("sizes", [[1000], [1, 2, 3, 994], [37] * 28])
@pytest.mark.parametrize("segments", [2, 7, 100])
def test_it_is_the_profile_of_each_whole_column(sizes, segments):
    values = rows(1000)
    batches = np.split(values, np.cumsum(sizes)[:-1])
    found = stream_drift(batches, 1000, segments)
    assert len(found) == 4
    for feature in (0, 1, 2, 3):
        expected = drift_profile(values[:, feature], segments)
        for name in ("psi", "ks", "missing", "counts", "bounds"):
            np.testing.assert_array_equal(getattr(found[feature], name), getattr(expected, name), err_msg=name)
        assert found[feature].bins == expected.bins
        np.testing.assert_array_equal(found[feature].psi_by_chance, expected.psi_by_chance)


def test_too_few_rows_and_bad_segments_are_errors():
    with pytest.raises(ValueError, match="batches must have 1000 rows in total, got fewer"):
        stream_drift([rows(999)], 1000, 10)
    for segments in (1, 1001):
        with pytest.raises(
            ValueError, match=f"segments must lie between 2 and the number of rows, 1000, got {segments!r}"
        ):
            stream_drift([rows(1000)], 1000, segments)


def test_rows_beyond_the_number_are_left_alone():
    values = rows(1000)
    found = stream_drift([values], 500, 5)
    np.testing.assert_array_equal(found[0].psi, drift_profile(values[:500, 0], 5).psi)
