"""The experiments on data in the AutoML format."""

import numpy as np
import pytest

from daes.paper import ExperimentSettings
from daes.stream.dataset import Dataset

from .conftest import run_and_show

ROWS = 2200


@pytest.fixture(scope="module")
def automl(tmp_path_factory) -> Dataset:
    folder = tmp_path_factory.mktemp("automl")
    rng = np.random.default_rng(0)
    (folder / "ad_feat.type").write_text("Time\nNumerical\nNumerical\nCategorical\nCategorical\nMulti-value\n")
    rows = [
        f"{1000 + row} {rng.poisson(2)} {rng.lognormal():.3f} {rng.integers(3)} {rng.integers(50)} {rng.integers(9)},7"
        for row in range(ROWS)
    ]
    (folder / "ad_train1.data").write_text("\n".join(rows) + "\n")
    (folder / "ad_train1.solution").write_text("\n".join(str(rng.integers(2)) for _ in range(ROWS)) + "\n")
    return Dataset.open(f"automl:{folder}")


def test_stationarity(automl, execution):
    found, _, verdict = run_and_show("stationarity", ExperimentSettings(), automl, execution)
    (profile,) = found["profiles"]
    assert list(profile["series"]) == ["I1", "I2"]
    assert profile["segments_a_day"] is None
    assert "day to day" not in verdict


def test_estimation(automl, execution):
    found, _, _ = run_and_show("estimation", ExperimentSettings(seeds=1), automl, execution)
    assert (found["clustered"]["feature"], found["spread"]["feature"]) == ("I1", "I2")


def test_overall(automl, execution):
    settings = ExperimentSettings(
        rows=400, seeds=1, batch_size=200, methods=("fe", "ple", "daes-gate"), backbones=("fnn",)
    )
    _, markdown, _ = run_and_show("overall", settings, automl, execution)
    assert "The paper's figures, AutoML:" in markdown
