import numpy as np
import pytest

from daes.paper import Settings
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


def test_simulation_agrees_with_the_closed_form(means):
    found, markdown, verdict = run_and_show("jump-bias", Settings(rows=1000), None, means)
    assert found["runs"] == 40
    for part in found["streams"]:
        for rule in ("paper", "exact"):
            one = part[rule]
            # 40 runs of 1000 members: the standard error of a ratio near 1 is below 4 %.
            assert one["first"] == pytest.approx(one["first_closed_form"], abs=0.12)
            np.testing.assert_allclose(one["bias_error"], 0, atol=0.02)
        assert part["exact"]["first_closed_form"] == pytest.approx(1)
    at_2m = found["streams"][0]
    assert at_2m["paper"]["bias"][2] < -0.07
    assert abs(at_2m["exact"]["bias"][2]) < 0.01
    assert "1.535" in markdown
    assert "not uniform" in verdict
