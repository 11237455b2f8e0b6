import json

import pytest
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.paper import EXPERIMENTS

runner = CliRunner()


def run(*arguments):
    return runner.invoke(build_app(), ["paper", *map(str, arguments)], prog_name="daes", env={"COLUMNS": "200"})


def test_list_names_every_experiment():
    result = run("list")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in EXPERIMENTS)
    assert json.loads(run("list", "--json").stdout).keys() == EXPERIMENTS.keys()


def test_one_experiment_from_run_to_page(tmp_path):
    out = tmp_path / "results"
    result = run("value-space-limit", "--rows", 2000, "--out", out)
    assert result.exit_code == 0, result.output
    assert "are not the ends of its bucket" in result.stdout
    stem = "value-space-limit.rows2000"
    (out / f"{stem}.png").unlink()
    assert run("figure", out / f"{stem}.json").exit_code == 0
    assert (out / f"{stem}.png").is_file()
    assert run("figure", out / f"{stem}.json", "--out", tmp_path / "x.svg").exit_code == 0
    assert (tmp_path / "x.svg").read_text().lstrip().startswith("<?xml")
    page = tmp_path / "reproduction.md"
    assert run("report", "--results", out, "--out", page).exit_code == 0
    assert "value-space-limit" in page.read_text()


def test_the_folder_may_have_any_name(tmp_path):
    result = run("value-space-limit", "--rows", 2000, "--out", tmp_path / "a[/b]")
    assert result.exit_code == 0, result.output
    assert f"wrote {tmp_path}/a[/b]/value-space-limit.rows2000.json" in result.stdout


def test_results_there_already_need_a_word(tmp_path):
    arguments = ("value-space-limit", "--rows", 2000, "--out", tmp_path)
    assert run(*arguments).exit_code == 0
    again = run(*arguments)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    assert "was there already" in run(*arguments, "--resume").stdout
    assert run(*arguments, "--overwrite").exit_code == 0
    assert run(*arguments, "--overwrite", "--resume").exit_code == 2


def test_json_is_the_file(tmp_path):
    result = run("value-space-limit", "--rows", 2000, "--out", tmp_path, "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "value-space-limit.rows2000.json").read_text())


def test_a_time_limit_stops_with_code_3_and_resume_goes_on(tmp_path):
    arguments = ("overall", "--data", "adstream:400", "--seeds", 3, "--batch-size", 200, "--jobs", 1)
    arguments += ("--methods", "fe,ple", "--backbones", "fnn", "--out", tmp_path, "--resume")
    stopped = run(*arguments, "--time-limit", 1)
    if stopped.exit_code:  # a second may do for six cells
        assert stopped.exit_code == 3
        assert "--resume continues" in stopped.stderr
        assert not (tmp_path / "overall.adstream.stream.rows400.json").exists()
    assert run(*arguments).exit_code == 0
    scores = json.loads((tmp_path / "overall.adstream.stream.rows400.json").read_text())["results"]["scores"]
    assert len(scores["ple"]["fnn"]["auc"]) == 3


def test_cells_that_failed_are_named_at_the_end_and_tried_again(tmp_path, monkeypatch, failing_trials):
    failing_trials("ple", MemoryError("out of memory"))
    arguments = ("overall", "--data", "adstream:400", "--seeds", 1, "--batch-size", 200, "--jobs", 1)
    arguments += ("--methods", "fe,ple", "--backbones", "fnn", "--out", tmp_path, "--resume")
    for _ in range(2):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "failed: overall on adstream: ple on fnn, seed 0: MemoryError: out of memory" in result.stderr
        assert "--resume tries them again" in result.stderr
        assert (tmp_path / "overall.adstream.stream.rows400.json").is_file()
    monkeypatch.undo()
    assert run(*arguments).exit_code == 0
    assert "was there already" in run(*arguments).stdout


def test_options_that_do_nothing_are_an_error_for_one_experiment(monkeypatch):
    result = run("value-space-limit", "--methods", "efd")
    assert result.exit_code == 2
    assert "--methods has no effect on value-space-limit, which uses --rows" in result.stderr
    begun = []
    monkeypatch.setattr("daes.cli.paper._run", lambda what, settings, *more: begun.append(settings.methods))
    assert run("all", "--methods", "efd").exit_code == 0
    assert begun == [("efd",)]


def test_one_failure_among_several_is_reported_at_the_end(tmp_path):
    data = ("--data", "adstream:2500", "--data", f"criteo:{tmp_path / 'nothing.parquet'}")
    result = run("stationarity", *data, "--out", tmp_path)
    assert result.exit_code == 1
    assert "failed: stationarity on criteo" in result.stderr
    assert (tmp_path / "stationarity.adstream.rows2500.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "there is no experiment 'nonsense'"),
        (["figure"], "needs results to draw"),
        (["figure", "missing.json"], "missing.json"),
        (["report", "--results", "nowhere"], "no folder"),
        (["overall", "--protocol", "offline"], "'--protocol': must be one of stream, paper"),
        (["overall", "--data", "nothing:here"], "there is no dataset 'nothing'"),
        (["overall", "--seeds", "0"], "at least 1"),
        (["estimation", "--data", "clicks.parquet"], "does not run on clicks.parquet"),
        (["overall", "--device", "abacus"], "'--device': auto, cpu, cuda or cuda:N is needed, got abacus"),
        (["overall", "--methods", "efd,nonsense"], "methods must be among"),
        (["overall", "--backbones", "fnn,fnn"], "'fnn' occurs twice"),
    ],
)
def test_bad_input_is_a_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_the_ladder_and_its_page(daes, tmp_path):
    options = (
        "--streams adstream --rows-per-stream 200 --seeds 1 --workers 1 --methods ftrl --backbones fnn --given none"
    )
    done = daes("paper", "ladder", "--data", str(tmp_path), *options.split(), "--out", str(tmp_path))
    assert "ladder.rows200.json" in done.stdout
    daes("paper", "why", "--results", str(tmp_path), "--out", str(tmp_path / "why.md"))
    assert "| FTRL |" in (tmp_path / "why.md").read_text()
    failed = daes("paper", "ladder", "--data", "one", "--data", "two", "--out", str(tmp_path / "more"))
    assert failed.exit_code == 2
    assert "--data must name one folder" in failed.stderr
