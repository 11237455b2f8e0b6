import json
import shutil

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
pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java, which is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def engine():
    from daes.engines.spark import SparkEngine

    made = SparkEngine()
    yield made
    made.session.stop()


@pytest.mark.parametrize("name", ["clicks.parquet", "days"])
def test_the_same_summary_as_in_one_process(engine, folder, name):
    data = open_numbers(str(folder / name), None)
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


def test_a_frame(engine, folder, table):
    from daes.engines.spark import summarize_frame

    frame = engine.session.read.parquet(str(folder / "clicks.parquet")).repartition(3)
    summary = summarize_frame(frame, size=10_000)
    assert summary.columns == ("price", "hour")
    assert (summary.rows, summary.missing.tolist()) == (6000, [table["price"].null_count, 0])
    np.testing.assert_array_equal(
        np.sort(summary.reservoir("price").sample), np.sort(table["price"].drop_null().to_numpy())
    )
    with pytest.raises(ValueError, match="frame must have a column of numbers, got city"):
        summarize_frame(frame.select("city"))


def test_the_command(engine, folder):
    arguments = ["distribution", str(folder / "clicks.parquet"), "--spark", "--size", "500", "--json"]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], list(found["columns"])) == (6000, ["price", "hour"])
    assert found["columns"]["hour"]["quantiles"][2] == pytest.approx(12, abs=2)
