"""`daes train --ray` without Ray; `tests/engines/test_ray_train.py` has the rest."""

import json
import sys

import pytest
from typer.testing import CliRunner

from daes.cli.app import build_app
from daes.cli.ray_train import arguments_of_attempt, train_in_worker
from daes.storage.run_folder import RunFolder

OPTIONS = ("adstream:600", "--backbone", "fnn", "--batch-size", "200", "--no-report", "--json")


@pytest.fixture(autouse=True)
def same_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # a command changes it, as it may in a process of its own


def train(folder, *arguments, attempt=0):
    return train_in_worker((*OPTIONS, "--out", str(folder / "run"), *arguments), folder, folder / "run", attempt)


def test_a_worker_does_what_the_command_does(tmp_path):
    outcome = train(tmp_path)
    assert (outcome.exit_code, outcome.other_failed) == (0, False)
    assert json.loads(outcome.stdout)["rows"] == 600
    assert "the rows are simulated" in outcome.stderr


def test_a_later_attempt_continues(tmp_path):
    assert train(tmp_path).exit_code == 0
    assert train(tmp_path).exit_code == 2  # there is a run
    again = train(tmp_path, attempt=1)
    assert json.loads(again.stdout)["resumed_at"] == 600


def test_a_later_attempt_to_replace_a_run_leaves_the_old_one_alone(tmp_path):
    """Workers that are lost before the new run has begun have left nothing to continue."""
    assert train(tmp_path).exit_code == 0
    replacing = train(tmp_path, "--overwrite", "--seed", "1", attempt=1)
    assert json.loads(replacing.stdout)["resumed_at"] is None
    begun = RunFolder(tmp_path / "run").replacement.path
    begun.mkdir()
    (begun / "config.json").write_text("{}")
    arguments = arguments_of_attempt(["--overwrite"], tmp_path / "run", attempt=1)
    assert "--resume" in arguments
    assert "--overwrite" not in arguments


def test_options_of_ray_are_ignored_in_a_worker(tmp_path):
    assert json.loads(train(tmp_path, "--ray", "--workers", "3").stdout)["rows"] == 600


def test_bad_input_is_an_outcome(tmp_path):
    outcome = train(tmp_path, "--limit", "0")
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("daes: ")


@pytest.mark.parametrize("arguments", [["train", "--out", "run"], ["compare", "--seeds", "1", "--backbones", "fnn"]])
def test_ray_is_not_installed(monkeypatch, arguments):
    monkeypatch.setitem(sys.modules, "ray", None)
    name, *options = arguments
    result = CliRunner().invoke(build_app(), [name, "adstream:600", "--ray", *options])
    assert result.exit_code == 1
    assert "daes: ray is needed here and not installed: pip install 'daes[ray]'\n" in result.stderr
