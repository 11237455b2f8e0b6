"""The commands of docs/walkthrough.md run, on fewer rows, and CSV and Parquet give the same scores."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daes.cli.app import COMMANDS, build_app

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("walkthrough", DOCS / "walkthrough.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_commands_run_and_both_files_give_the_same_scores(script, tmp_path, monkeypatch):
    """In this process but for the servers: a process of its own for each command takes longer than the command."""
    in_a_shell = script.run

    def run(command, folder, code):
        program, *arguments = shlex.split(command)
        if program != "daes":
            return in_a_shell(command, folder, code)
        result = CliRunner().invoke(build_app(), arguments, prog_name="daes")
        assert result.exit_code == code, f"{command}\n{result.output}"
        return result.output

    monkeypatch.setattr(script, "run", run)
    monkeypatch.chdir(tmp_path)
    page = script.walk(tmp_path, 200, demo=False)
    assert "**CSV and Parquet gave the same scores.**" in page
    assert '"scores":' in page


def test_scores_that_differ_are_an_error(script, tmp_path):
    (tmp_path / "scores.csv").write_text("score\n0.5\n\n0.25\n".replace("\n\n", '\n""\n'))
    (tmp_path / "twin.csv").write_text("score\n0.5\n0.25\n")
    assert "the same 2 scores" in script.compare_scores(tmp_path, 3)
    (tmp_path / "twin.csv").write_text("score\n0.5\n0.26\n")
    with pytest.raises(SystemExit, match="1 of them differ"):
        script.compare_scores(tmp_path, 3)


def test_another_exit_code_is_an_error(script, tmp_path):
    with pytest.raises(SystemExit, match=r"`exit 3` ended with 3, expected 0"):
        script.run("exit 3", tmp_path, 0)


def test_the_page_has_every_command(script):
    page = (DOCS / "walkthrough.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\$ daes ([a-z]+)", page, re.MULTILINE))
    assert shown == set(COMMANDS)
