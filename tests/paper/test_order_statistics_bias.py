import numpy as np

from daes.paper import Settings
from daes.paper.order_statistics_bias import closed_form, drifting_uniform

from .conftest import run_and_show


def test_the_stream_is_uniform_as_a_whole_and_drifts_by_batches():
    batches = drifting_uniform(4, 1000, seed=0)
    for number, batch in enumerate(batches):
        assert number / 4 <= batch.min() < batch.max() <= (number + 1) / 4


def test_closed_form_by_the_papers_sum():
    for batches in (1, 3, 10):
        for level in (0.1, 0.5, 0.8):
            mean = sum((i - 1 + level) / batches for i in range(1, batches + 1)) / batches
            assert np.isclose(closed_form(batches, np.array([level]))[0], mean - level)


def test_simulation_agrees_with_the_formula_and_the_reservoir_has_no_bias(means):
    found, markdown, verdict = run_and_show("order-statistics-bias", Settings(rows=20_000, seeds=2), None, means)
    for part in found["streams"]:
        np.testing.assert_allclose(part["order-statistics"], part["closed_form"], atol=0.02)
        np.testing.assert_allclose(part["reservoir"], 0, atol=0.04)
    assert "OS, closed form" in markdown
    assert "holds" in verdict
