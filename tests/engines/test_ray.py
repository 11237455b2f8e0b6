import json

import numpy as np
import pytest
from typer.testing import CliRunner

from daes.cli.app import build_app

pytestmark = pytest.mark.engines
ray = pytest.importorskip("ray", reason="ray is not installed")


def test_a_ray_dataset(ray_engine, folder, table):
    from daes.engines.ray import summarize_dataset

    summary = summarize_dataset(ray.data.read_parquet(str(folder / "clicks.parquet")), size=10_000)
    assert summary.columns == ("price", "hour")
    assert (summary.rows, summary.skipped.tolist()) == (6000, [table["price"].null_count, 0])
    np.testing.assert_array_equal(
        np.sort(summary.reservoir("price").sample), np.sort(table["price"].drop_null().to_numpy())
    )
    with pytest.raises(ValueError, match="dataset must have a column of numbers, got city"):
        summarize_dataset(ray.data.from_arrow(table.select(["city"])))


def test_trials_of_a_comparison_are_spread(ray_engine, tmp_path):
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


def test_a_task_that_is_lost_is_named(ray_engine):
    from daes.engines.ray import RayTasks
    from daes.experiments.workers import WorkerExit

    ((item, outcome),) = RayTasks()(_die, None, ["one"])
    assert item == "one"
    assert isinstance(outcome, WorkerExit)
    assert str(outcome).startswith("Ray could not do it")


def test_no_task_is_begun_once_it_is_enough(ray_engine):
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
