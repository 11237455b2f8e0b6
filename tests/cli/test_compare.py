import json
from importlib import import_module

import numpy as np
import pandas as pd

from daes.cli.compare import parse_seeds

QUICK = ("--exclude", "id", "--batch-size", "200", "--dim", "4", "--hidden", "8", "--sample-rows", "300")


def test_the_table_on_ones_own_data(daes, clicks, tmp_path):
    arguments = (
        "compare",
        clicks,
        "--methods",
        "fe,daes",
        "--backbones",
        "fnn",
        "--seeds",
        "2",
        "--out",
        tmp_path / "t",
    )
    result = daes(*arguments, *QUICK, "--no-report")
    assert result.exit_code == 0, result.output
    assert "over the whole stream" in result.stdout
    assert "over its second half" in result.stdout
    assert "4/4" in result.stderr
    assert len((tmp_path / "t" / "results.jsonl").read_text().splitlines()) == 4
    again = daes(*arguments, *QUICK, "--json", "--no-report")
    assert again.stderr == ""
    assert again.json == json.loads((tmp_path / "t" / "comparison.json").read_text())
    assert [row["label"] for row in again.json["rows"]] == ["fe", "daes"]
    assert again.json["subject"] == "daes"


def test_the_papers_protocol(daes, clicks):
    arguments = ("--methods", "efd,ple", "--backbones", "fnn", "--seeds", "7,8", "--protocol", "paper", "--epochs", "2")
    result = daes("compare", clicks, *arguments, "--split", "0.6,0.2,0.2", "--shuffle", *QUICK, "--json")
    assert result.exit_code == 0, result.output
    assert (result.json["seeds"], result.json["measures"]) == ([7, 8], ["auc", "logloss"])
    settings = result.json["trials"][0]["settings"]
    assert settings["offline"]["split"] == [0.6, 0.2, 0.2]
    assert settings["offline"]["shuffle"] is True


def test_options_of_the_other_protocol_are_refused(refused, clicks):
    for given in (("--epochs", "2"), ("--split", "0.6,0.2,0.2"), ("--shuffle",)):
        assert f"{given[0]} is an option of --protocol paper, got --protocol stream" in refused(
            "compare", clicks, *given
        )
    said = refused("compare", clicks, "--protocol", "paper", "--label-delay", "2")
    assert "--label-delay is for one pass over a stream, got 2 and --protocol paper" in said


def test_a_failure_is_reported_and_the_rest_is_kept(daes, clicks, monkeypatch):
    module = import_module("daes.experiments.compare")
    plain = module.run_trial

    def fails(cell, shared, progress=None):
        if cell.label == "fe":
            raise RuntimeError("no luck")
        return plain(cell, shared, progress)

    monkeypatch.setattr(module, "run_trial", fails)
    result = daes("compare", clicks, "--methods", "fe,ple", "--backbones", "fnn", "--seeds", "1", *QUICK)
    assert result.exit_code == 1
    assert "failed: fe on fnn, seed 0: RuntimeError: no luck" in result.stderr
    assert "ple" in result.stdout


def test_a_toml_file_may_hold_everything(daes, clicks, tmp_path):
    config = tmp_path / "table.toml"
    config.write_text(
        f'data = "{clicks}"\nexclude = ["id"]\nmethods = ["fe"]\nbackbones = "lr"\nseeds = 1\nbatch-size = 400\n'
    )
    result = daes("compare", "--config", config, "--json")
    assert result.exit_code == 0, result.output
    assert (result.json["methods"], result.json["backbones"], result.json["seeds"]) == (["fe"], ["lr"], [0])


def test_wrong_input_is_one_sentence(refused, clicks):
    cases = [
        (("--methods", "fe,deas"), "'deas' (did you mean 'daes'?)"),
        (("--backbones", "deepfn"), "'--backbones': must be one of fnn"),
        (("--seeds", "0"), "a whole number of at least 1"),
        (("--seeds", "1,1"), "seeds must be a positive number or distinct seeds"),
        (("--protocol", "papers"), "'--protocol': must be one of stream, paper"),
        (("--protocol", "paper", "--split", "0.5,0.5,0.5"), "split must be three positive parts"),
        (("--split", "a,b,c"), "'--split': a number above 0 and below 1 is needed, got a"),
        (("--split", "0.5,0.5"), "'--split': three numbers are needed, got 0.5,0.5"),
        (("--label", "nothing"), "there is no column 'nothing'"),
    ]
    for arguments, sentence in cases:
        assert sentence in refused("compare", clicks, "--exclude", "id", *arguments), arguments


def test_the_folder_of_a_run_is_left_alone(refused, clicks, trained):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    said = refused("compare", clicks, "--methods", "efd", "--backbones", "fnn", "--out", trained)
    assert said == f"daes: {trained} holds a training run: results need a folder of their own\n"
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_a_file_is_no_folder_of_results(refused, clicks, tmp_path):
    (tmp_path / "table").write_text("mine")
    for out in (tmp_path / "table", tmp_path / "table" / "below"):
        said = refused("compare", clicks, "--methods", "efd", "--backbones", "fnn", "--out", out)
        assert said == f"daes: results are kept in a folder; {tmp_path / 'table'} is a file\n"
    assert (tmp_path / "table").read_text() == "mine"


def test_seeds():
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds(["4", "5"]) == (4, 5)


def test_a_report_is_written(daes, clicks, tmp_path):
    arguments = ("--methods", "fe,ple", "--backbones", "lr", "--seeds", "1", "--out", tmp_path, "--exclude", "id")
    result = daes("compare", clicks, *arguments)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_rows_are_compared_in_the_order_of_their_time(daes, tmp_path):
    generator = np.random.default_rng(0)
    at = np.arange(600)
    rows = pd.DataFrame({"click": (at % 3 == 0).astype(int), "price": generator.normal(size=600), "at": at})
    rows.to_csv(tmp_path / "sorted.csv", index=False)
    rows.sample(frac=1, random_state=0).to_csv(tmp_path / "shuffled.csv", index=False)
    arguments = (
        "--time",
        "at",
        "--methods",
        "fe",
        "--backbones",
        "fnn",
        "--seeds",
        "1",
        "--batch-size",
        "50",
        "--json",
    )
    found = {name: daes("compare", tmp_path / f"{name}.csv", *arguments) for name in ("sorted", "shuffled")}
    assert "they were sorted by 'at'." in found["shuffled"].stderr
    assert "The rows are in the order of 'at'." in found["sorted"].stderr
    metrics = [one.json["trials"][0]["metrics"] for one in found.values()]
    assert metrics[0] == metrics[1]
