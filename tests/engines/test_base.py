"""What holds for every engine: the results are those of one process."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.cli.column import open_numbers
from daes.engines import EngineError, observe_table, summarize_table
from daes.model import CTRModel
from daes.stream.dataset import Dataset

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module", params=["ray", "spark"])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def engine(request, name):
    return request.getfixturevalue(f"{name}_engine")


@pytest.mark.parametrize("file", ["clicks.parquet", "days"])
def test_the_same_summary_as_in_one_process(engine, folder, file):
    data = open_numbers(str(folder / file), None)
    here, there = (summarize_table(data, parts=5, size=300, seed=3, engine=one) for one in (None, engine))
    for column in here.columns:
        np.testing.assert_array_equal(here.reservoir(column).sample, there.reservoir(column).sample)
    assert here.to_dict() == there.to_dict()


def test_the_same_statistics_of_a_model_as_in_one_process(engine):
    data = Dataset.open("adstream:2000")
    here, there = (
        observe_table(CTRModel(data.schema, sizes=50), data, parts=3, engine=one).state_dict() for one in (None, engine)
    )
    for name, wanted in here.items():
        if name.startswith(("evidence.", "numerical.distributions.")):
            torch.testing.assert_close(there[name], wanted, rtol=0, atol=0, equal_nan=True)


def test_a_bad_value_is_a_sentence(engine, folder):
    data = open_numbers(str(folder / "broken"), "price")
    with pytest.raises(EngineError, match=r"b\.csv.*1\.x"):
        summarize_table(data, engine=engine)


def test_the_command(engine, name, folder):
    arguments = ["distribution", str(folder / "clicks.parquet"), f"--{name}", "--size", "500", "--json"]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], list(found["columns"])) == (6000, ["price", "hour"])
    assert found["columns"]["hour"]["quantiles"][2] == pytest.approx(12, abs=2)
