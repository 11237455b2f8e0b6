import numpy as np
import pytest

from daes.paper import ExperimentSettings
from daes.paper.jump_bias import first_values_inclusion, first_values_limit, inclusion

from .conftest import run_and_show


def slow_inclusion(rule, size, length):
    """The chance of each value to be in the sample, value by value."""
    chance = np.zeros(length)
    chance[:size] = 1.0
    for place in range(size + 1, length + 1):
        accepted = size / place if rule == "exact" else 1 - ((place - 1) / place) ** size
        chance[: place - 1] *= 1 - accepted / size
        chance[place - 1] = accepted
    return chance


@pytest.mark.parametrize("rule", ["exact", "paper"])
def test_inclusion_against_a_loop(rule):
    np.testing.assert_allclose(inclusion(rule, 20, 300), slow_inclusion(rule, 20, 300), rtol=1e-9)
    assert inclusion(rule, 20, 300).sum() == pytest.approx(20)


def test_the_limit_is_approached():
    assert first_values_inclusion("paper", 2000, 400_000) == pytest.approx(first_values_limit(), rel=0.005)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    from daes.paper import Execution

    return run_and_show(
        "jump-bias", ExperimentSettings(seeds=1), None, Execution(tmp_path_factory.mktemp("jump") / "work")
    )


def test_simulation_agrees_with_the_closed_form(shown):
    found, markdown, _ = shown
    assert found["runs"] == 80
    assert [part["times"] for part in found["streams"]] == [2, 10, 100]
    for part in found["streams"]:
        for rule in ("paper", "exact"):
            one = part[rule]
            assert one["first"] == pytest.approx(one["first_closed_form"], abs=4 * one["first_error"])
            np.testing.assert_allclose(one["bias_error"], 0, atol=0.02)
        assert part["exact"]["first_closed_form"] == pytest.approx(1)
    at_2m = found["streams"][0]
    assert at_2m["paper"]["bias"][2] < -0.07
    assert abs(at_2m["exact"]["bias"][2]) < 0.01
    assert "1.535" in markdown


def test_the_verdict_follows_the_numbers(shown):
    found, _, verdict = shown
    paper, exact = (f"{found['streams'][-1][rule]['first']:.2f} times" for rule in ("paper", "exact"))
    assert f"the first values {paper} as often as a uniform sample would, the exact rule {exact}." in verdict


def test_the_standard_error_is_that_between_runs(shown):
    # The number of first values in a sample of m out of T without replacement is hypergeometric.
    for part in shown[0]["streams"]:
        share = 1000 / part["length"]
        deviation = np.sqrt(1000 * share * (1 - share) * (part["length"] - 1000) / (part["length"] - 1))
        expected = deviation / 1000 / share / np.sqrt(80)
        assert part["exact"]["first_error"] == pytest.approx(expected, rel=0.35)


def test_rows_bound_the_streams(execution):
    found, _, verdict = run_and_show("jump-bias", ExperimentSettings(rows=10_000, seeds=1), None, execution)
    assert [part["times"] for part in found["streams"]] == [2, 10]
    assert "In a stream 10 times as long as the reservoir" in verdict
    with pytest.raises(ValueError, match="rows must be 2,000 or more, got 1999"):
        run_and_show("jump-bias", ExperimentSettings(rows=1999), None, execution)
