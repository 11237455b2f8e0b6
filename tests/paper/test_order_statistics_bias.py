import re

import numpy as np
import pytest

from daes.distribution import OrderStatistics
from daes.paper import EXPERIMENTS, Execution, ExperimentSettings
from daes.paper.order_statistics_bias import closed_form, drifting_uniform, sampling_error, simulation_error
from daes.paper.running import run_experiment

from .conftest import make_result, run_and_show


def test_the_stream_is_uniform_as_a_whole_and_drifts_by_batches():
    batches = drifting_uniform(4, 1000, seed=0)
    for number, batch in enumerate(batches):
        assert number / 4 <= batch.min() < batch.max() <= (number + 1) / 4


def test_closed_form_by_the_papers_sum():
    for batches in (1, 3, 10):
        for level in (0.1, 0.5, 0.8):
            mean = sum((i - 1 + level) / batches for i in range(1, batches + 1)) / batches
            assert np.isclose(closed_form(batches, np.array([level]))[0], mean - level)


def test_simulation_agrees_with_the_formula_and_the_reservoir_has_no_bias(execution):
    found, markdown, verdict = run_and_show(
        "order-statistics-bias", ExperimentSettings(rows=20_000, seeds=2), None, execution
    )
    for part in found["streams"]:
        np.testing.assert_allclose(part["order-statistics"], part["closed_form"], atol=0.02)
        np.testing.assert_allclose(part["reservoir"], 0, atol=0.04)
    assert "OS, closed form" in markdown
    assert verdict.count("more than 4 standard errors in 0 of 95") == 2


def test_the_formula_fails_where_the_simulation_says_so(execution):
    settings = ExperimentSettings(rows=20_000, seeds=2)
    found, _, _ = run_and_show("order-statistics-bias", settings, None, execution)
    beyond = "more than 4 standard errors in [1-9]"
    for name, sentence in (
        ("closed_form", f"at most, {beyond}"),
        ("reservoir", f"error of a reservoir is .* at most, {beyond}"),
    ):
        streams = [{**part, name: [value + 0.08 for value in part[name]]} for part in found["streams"]]
        moved = make_result("order-statistics-bias", {**found, "streams": streams}, settings)
        assert re.search(sentence, EXPERIMENTS["order-statistics-bias"].verdict(moved))


def test_errors_of_the_simulation_are_those_of_theory():
    levels = np.array([0.1, 0.5, 0.8])
    found = []
    for seed in range(400):
        estimate = OrderStatistics(np.array([0.0, *levels, 1.0]))
        for batch in drifting_uniform(5, 400, seed):
            estimate.update(batch)
        found.append(estimate.quantile(levels) - levels - closed_form(5, levels))
    expected = (simulation_error(5, 2000, 1, levels) - 1 / 2000) / 4
    np.testing.assert_allclose(np.std(found, axis=0), expected, rtol=0.15)
    sampled = [np.quantile(np.random.default_rng(seed).random(500), levels) for seed in range(400)]
    np.testing.assert_allclose(np.std(sampled, axis=0), (sampling_error(500, 1, levels) - 1 / 500) / 4, rtol=0.15)


@pytest.mark.parametrize("rows", [1, 30, 1999])
def test_too_few_values_are_an_error(execution, rows):
    with pytest.raises(ValueError, match=f"rows must be 2,000 or more, got {rows}"):
        run_and_show("order-statistics-bias", ExperimentSettings(rows=rows), None, execution)


def test_a_formula_that_fails_does_not_hold(tmp_path):
    name = "order-statistics-bias"
    result, _ = run_experiment(EXPERIMENTS[name], ExperimentSettings(rows=20_000, seeds=1), None, Execution(tmp_path))
    result.results["streams"][1]["order-statistics"][3] += 0.1
    parts, sentence = EXPERIMENTS[name].judge(result)
    assert parts == (False,)
    assert "at most, more than 4 standard errors in 1 of 95 cases" in sentence
