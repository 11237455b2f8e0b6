import json

import pytest
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.storage.run_folder import RunFolder

pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("ray_cluster")]
ray = pytest.importorskip("ray", reason="ray is not installed")


def run(*arguments):
    return CliRunner().invoke(build_app(), ["train", *map(str, arguments)])


@pytest.mark.parametrize("tables", ["no", "torch", "torchrec"])
def test_a_killed_worker_is_replaced_and_the_run_finishes(tables, tmp_path, kill_a_worker):
    if tables == "torchrec":
        pytest.importorskip("torchrec", reason="torchrec is not installed")
    out = tmp_path / "run"
    killed = kill_a_worker(out)
    options = ["--backbone", "fnn", "--batch-size", "256", "--checkpoint-every", "5000", "--no-report", "--json"]
    result = run("adstream:40000", *options, "--ray", "--workers", "2", "--divide-tables", tables, "--out", out)
    assert killed()
    assert result.exit_code == 0, result.output
    assert "workers were lost and replaced 1 time;" in result.stderr
    found = json.loads(result.stdout)
    assert found["resumed_at"] >= 5000
    assert (found["rows"], found["world_size"]) == (40_000, 2)
    assert RunFolder(out).read("metrics")["rows"] == 40_000
    assert RunFolder(out).read("config")["options"]["divide_tables"] == tables
    assert "deprecated" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_bad_input_is_a_sentence_and_not_tried_again(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("click,price\n1,2.0\n7,3.0\n")
    result = run(path, "--ray", "--workers", "2", "--no-report", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "label column 'click' must hold 0 and 1 only" in result.stderr
    assert "replaced" not in result.stderr
