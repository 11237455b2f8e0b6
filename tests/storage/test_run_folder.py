import json
import math
import shutil
from pathlib import Path

import pytest

from daes.storage.lock import LockHeldError
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


def test_what_a_killed_run_was_writing_does_not_count_and_is_cleared(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / ".config.json.0123abcd.tmp").write_text('{"form')
    assert not run.exists
    with run.locked():
        assert [entry.name for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")] == []
    assert not run.exists
    (tmp_path / ".notes.0123abcd.tmp").write_text("mine")
    with run.locked():
        assert (tmp_path / ".notes.0123abcd.tmp").exists()
    assert run.exists


def test_a_run_is_what_its_configuration_says(tmp_path):
    run = RunFolder(tmp_path)
    assert not run.is_run
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 768}')
    assert not run.is_run
    run.write("config", {"format": "daes.run"})
    assert run.is_run


def test_how_the_data_were_read_is_in_the_configuration(tmp_path):
    run = RunFolder(tmp_path)
    assert run.data_options() == {}
    known = {"format": "daes.run", "version": 1}
    run.write("config", {**known, "data": {"options": {"separator": ";"}}})
    assert run.data_options() == {"separator": ";"}
    for data, named in ((None, "'data', got None"), ({}, "'options' in 'data', got None")):
        run.write("config", {**known, "data": data})
        with pytest.raises(ValueError, match=rf"config\.json must have an object called {named}"):
            run.data_options()


def test_one_writer_at_a_time(tmp_path):
    run = RunFolder(tmp_path / "run")
    with (
        run.locked(),
        pytest.raises(LockHeldError, match=r"run is in use: process \d+ on .* is writing there"),
        RunFolder(tmp_path / "run").locked(),
    ):
        pass
    with run.locked():
        pass


def old_and_new(folder):
    """A run with a report and a note of its owner, and a complete replacement without a report."""
    run = RunFolder(folder)
    for which, name in ((run, "old"), (run.replacement, "new")):
        which.write("config", {"format": "daes.run", "name": name})
        which.write("metrics", {"name": name})
        for part in (which.model, which.checkpoints):
            part.mkdir()
            (part / name).write_text(name)
    run.report.write_text("old")
    (folder / "notes.txt").write_text("mine")
    return run


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("lock", "lock.holder")
    }


def test_a_replacement_takes_the_place_of_the_run_alone(tmp_path):
    run = old_and_new(tmp_path)
    run.replace()
    assert set(contents(tmp_path)) == {"config.json", "metrics.json", "model/new", "checkpoints/new", "notes.txt"}
    assert (run.read("config")["name"], run.read("metrics")["name"]) == ("new", "new")


def test_a_replacement_that_is_killed_anywhere_is_finished(tmp_path, monkeypatch):
    class Kill(BaseException):
        pass

    genuine = {name: getattr(Path, name) for name in ("rename", "mkdir")}
    genuine["rmtree"] = shutil.rmtree
    expected, steps = None, 0
    for deadly in range(100):
        folder = tmp_path / str(deadly)
        run = old_and_new(folder)
        left = deadly

        def or_die(name):
            def call(*arguments, **options):
                nonlocal left
                if not left:
                    raise Kill
                left -= 1
                return genuine[name](*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", or_die("rename"))
            patch.setattr(Path, "mkdir", or_die("mkdir"))
            patch.setattr(shutil, "rmtree", or_die("rmtree"))
            try:
                run.replace()
                killed = False
            except Kill:
                killed = True
        if deadly == 0:
            assert run.replacement.is_run
            run.replace()
        run.recover()
        expected = expected or contents(folder)
        assert contents(folder) == expected
        assert run.read("config")["name"] == "new"
        steps += killed
        if not killed:
            break
    assert steps > 10


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
