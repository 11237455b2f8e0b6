import json
import math

import pytest

from daes.storage.run_folder import RunFolder, read_json, write_json
from daes.training.environment import environment


def test_what_is_written_is_strict_json_and_comes_back(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.write("history", {"auc": [math.nan, 0.5, math.inf], "pair": (1, 2)})
    text = (tmp_path / "run" / "history.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"auc": [None, 0.5, None], "pair": [1, 2]}
    assert run.read("history") == {"auc": [None, 0.5, None], "pair": [1, 2]}


def test_a_write_that_fails_leaves_the_old_content(tmp_path):
    path = tmp_path / "metrics.json"
    write_json(path, {"rows": 1})
    with pytest.raises(TypeError):
        write_json(path, {"rows": object()})
    assert read_json(path) == {"rows": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]


def test_what_a_killed_run_was_writing_is_cleared_with_the_rest(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / ".config.json.0123abcd.tmp").write_text('{"form')
    run.clear()
    assert not run.exists
    run.write("config", {"format": "daes.run"})
    (tmp_path / ".metrics.json.0123abcd.tmp").write_text('{"ro')
    (tmp_path / ".notes.0123abcd.tmp").write_text("mine")
    run.clear()
    assert [entry.name for entry in tmp_path.iterdir()] == [".notes.0123abcd.tmp"]


def test_files_that_are_not_as_they_should_be(tmp_path):
    run = RunFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no run in .*: it has no config\.json"):
        run.read_config()
    (tmp_path / "config.json").write_text('{"format": "daes.run", "vers')
    with pytest.raises(ValueError, match=r"config.json is not whole, valid JSON"):
        run.read_config()
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="must hold a JSON object, got a list"):
        run.read_config()
    (tmp_path / "config.json").write_text('{"format": "daes.run", "version": 99}')
    with pytest.raises(ValueError, match=r'must have "format": "daes\.run" and "version": 1, got .*99'):
        run.read_config()


def test_the_environment_says_what_a_result_was_made_with():
    found = environment()
    assert found["packages"]["torch"]
    assert found["cores"] >= 1
    assert (found["device"], found["accelerator"]) == ("cpu", None)
    json.dumps(found, allow_nan=False)
