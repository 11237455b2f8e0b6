"""What is judged agrees with what the sections of the page say."""

import pytest

from daes.paper import EXPERIMENTS, Execution, ExperimentSettings
from daes.paper.running import run_experiment


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jump-bias", []),
        ("reservoir-size", ["The variance falls as 1/m", "standard errors in 0 of"]),
        ("order-statistics-bias", ["standard errors in 0 of 95 cases"]),
        ("value-space-limit", ["are not the ends of its bucket"]),
    ],
)
def test_simulations_are_judged_as_their_sections_say(name, said, tmp_path):
    settings = ExperimentSettings(rows=20_000, seeds=1)
    result, _ = run_experiment(EXPERIMENTS[name], settings, None, Execution(tmp_path))
    parts, sentence = EXPERIMENTS[name].judge(result)
    verdict = EXPERIMENTS[name].verdict(result)
    assert list(parts) == [words in verdict for words in said]
    assert "nan" not in sentence
