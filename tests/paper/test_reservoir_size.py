import numpy as np
import pytest
from scipy.stats import lognorm

from daes.paper import Settings
from daes.paper.reservoir_size import asymptotic_variance

from .conftest import run_and_show


def test_variance_by_the_lognormal_density():
    levels = np.array([0.05, 0.5, 0.99])
    density = lognorm(1.0).pdf(lognorm(1.0).ppf(levels))
    expected = levels * (1 - levels) / (500 * density**2) * (1 - 500 / 2000)
    np.testing.assert_allclose(asymptotic_variance(levels, 500, 2000), expected)


def test_error_falls_with_size_and_drift_has_a_floor(means):
    found, markdown, verdict = run_and_show("reservoir-size", Settings(rows=20_000), None, means)
    sizes = found["sizes"]
    assert [part["slots"] for part in sizes] == [100, 300, 1000, 3000, 10_000]
    ratios = np.array([np.divide(part["variance"], part["variance_theory"])[1] for part in sizes])
    assert np.median(ratios) == pytest.approx(1, abs=0.5)  # twenty runs
    assert sizes[0]["rank_error"] > 5 * sizes[-1]["rank_error"]
    assert min(part["drifting_rank_error_now"] for part in sizes) > 0.1
    assert sizes[-1]["bytes"] == 80_000
    assert "| 10,000 | 80 kB | 40 kB |" in markdown
    assert "1/m" in verdict
