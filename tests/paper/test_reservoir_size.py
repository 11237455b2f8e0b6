import numpy as np
import pytest
from scipy.stats import lognorm

from daes.paper import EXPERIMENTS, ExperimentSettings
from daes.paper.reservoir_size import asymptotic_variance, exponents

from .conftest import make_result, run_and_show


def test_variance_by_the_lognormal_density():
    levels = np.array([0.05, 0.5, 0.99])
    density = lognorm(1.0).pdf(lognorm(1.0).ppf(levels))
    expected = levels * (1 - levels) / (500 * density**2) * (1 - 500 / 2000)
    np.testing.assert_allclose(asymptotic_variance(levels, 500, 2000), expected)


def test_error_falls_with_size_and_drift_has_a_floor(execution):
    settings = ExperimentSettings(rows=20_000, seeds=1)
    found, markdown, verdict = run_and_show("reservoir-size", settings, None, execution)
    sizes = found["sizes"]
    assert found["runs"] == 40
    assert [part["slots"] for part in sizes] == [100, 300, 1000, 3000, 10_000]
    ratios = np.array([np.divide(part["variance"], part["variance_theory"])[1] for part in sizes])
    assert np.median(ratios) == pytest.approx(1, abs=0.4)  # forty runs
    assert sizes[0]["rank_error"] > 5 * sizes[-1]["rank_error"]
    assert min(part["drifting_rank_error_now"] for part in sizes) > 0.1
    assert sizes[-1]["bytes"] == 80_000
    assert "| 10,000 | 80 kB | 40 kB |" in markdown
    assert "| m | at 10 % | at 50 % | at 90 % | at 99 % |" in markdown
    assert "The variance falls as 1/m" in verdict
    # Were it to fall as 1/√m, the verdict would say so.
    slow = [{**part, "variance": [v * part["slots"] ** 0.5 for v in part["variance"]]} for part in sizes]
    slow = [{**part, "variance_error": [v * part["slots"] ** 0.5 for v in part["variance_error"]]} for part in slow]
    moved = make_result("reservoir-size", {**found, "sizes": slow}, settings)
    assert "does not fall as 1/m" in EXPERIMENTS["reservoir-size"].verdict(moved)


def test_exponents_of_an_exact_law():
    found = {
        "length": 10**9,
        "sizes": [
            {"slots": m, "variance": [3 / m * (1 - m / 1e9), 5 / m**2], "variance_error": [0.3 / m, 0.5 / m**2]}
            for m in (100, 1000, 10_000)
        ],
    }
    powers, errors = exponents(found)
    np.testing.assert_allclose(powers, [-1, -2], atol=1e-4)
    # The slope of three points, ln 10 apart, each with an error of a tenth.
    np.testing.assert_allclose(errors, 0.1 / np.sqrt(2) / np.log(10), rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 100, 1999])
def test_too_few_values_are_an_error(execution, rows):
    with pytest.raises(ValueError, match=f"rows must be 2,000 or more, got {rows}"):
        run_and_show("reservoir-size", ExperimentSettings(rows=rows), None, execution)
