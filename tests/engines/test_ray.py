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
ray = pytest.importorskip("ray", reason="ray is not installed")


@pytest.fixture(scope="module")
def engine():
    from daes.engines.ray import RayEngine

    yield RayEngine()
    ray.shutdown()


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


def test_a_ray_dataset(engine, folder, table):
    from daes.engines.ray import summarize_dataset

    summary = summarize_dataset(ray.data.read_parquet(str(folder / "clicks.parquet")), size=10_000)
    assert summary.columns == ("price", "hour")
    assert (summary.rows, summary.missing.tolist()) == (6000, [table["price"].null_count, 0])
    np.testing.assert_array_equal(
        np.sort(summary.reservoir("price").sample), np.sort(table["price"].drop_null().to_numpy())
    )
    with pytest.raises(ValueError, match="dataset must have a column of numbers, got city"):
        summarize_dataset(ray.data.from_arrow(table.select(["city"])))


def test_the_command(engine, folder):
    arguments = ["distribution", str(folder / "clicks.parquet"), "--ray", "--size", "500", "--json"]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], list(found["columns"])) == (6000, ["price", "hour"])
    assert found["columns"]["hour"]["quantiles"][2] == pytest.approx(12, abs=2)


def test_trials_of_a_comparison_are_spread(engine, tmp_path):
    arguments = ["compare", "adstream:2000", "--methods", "fe,ple", "--backbones", "fnn", "--seeds", "1"]
    found = []
    for more in (["--ray", "--out", str(tmp_path / "table")], []):
        done = CliRunner().invoke(build_app(), [*arguments, "--batch-size", "500", "--json", "--no-report", *more])
        assert done.exit_code == 0, done.output
        found.append({one["label"]: one["metrics"] for one in json.loads(done.stdout)["trials"]})
    assert found[0].keys() == {"fe", "ple"}
    for label, metrics in found[0].items():
        assert metrics["auc"] == pytest.approx(found[1][label]["auc"], abs=1e-6)
    assert len((tmp_path / "table" / "results.jsonl").read_text().splitlines()) == 2


def test_a_task_that_is_lost_is_named(engine):
    from daes.engines.ray import RayTasks
    from daes.experiments.workers import WorkerExit

    ((item, outcome),) = RayTasks()(_die, None, ["one"])
    assert item == "one"
    assert isinstance(outcome, WorkerExit)
    assert str(outcome).startswith("Ray could not do it")


def test_no_task_is_begun_once_it_is_enough(engine):
    from daes.engines.ray import RayTasks

    done = []
    for item, result in RayTasks(at_once=1)(_double, None, range(5), enough=lambda: len(done) >= 2):
        done.append((item, result))
    assert done == [(0, 0), (1, 2)]


def _double(shared, item, note):
    return 2 * item


def _die(shared, item, note):
    import os

    os._exit(1)
