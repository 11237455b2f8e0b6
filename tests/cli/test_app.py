import json
import os
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

import daes
from daes.__main__ import main
from daes.backbone import BACKBONES
from daes.cli.app import COMMANDS, Program, build_app
from daes.cli.options import REGISTRIES, number, registered, whole_number
from daes.embedding import METHODS
from daes.experiments.rivals import RIVALS
from daes.extras import MissingExtraError

runner = CliRunner()


def program_that(raises: BaseException) -> typer.Typer:
    app = typer.Typer(name="daes", cls=Program, pretty_exceptions_enable=False)

    @app.callback()
    def main() -> None: ...

    @app.command()
    def work(size: int = 3) -> None:
        typer.echo("begun")
        raise raises

    return app


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, check=False)


def test_help_lists_every_command_with_its_first_sentence():
    for arguments in ([], ["--help"], ["-h"]):
        result = runner.invoke(build_app(), arguments)
        assert result.exit_code == 0
        assert "Click-through-rate models" in result.stdout
        for command in COMMANDS:
            assert command in result.stdout
    assert "Compare estimators of a column's distribution" in result.stdout


def test_version():
    result = runner.invoke(build_app(), ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"daes {daes.__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_each_example_on_a_line_of_its_own(command):
    documented = str(getattr(import_module(f"daes.cli.{command}"), command).__doc__).partition("Example")[2]
    examples = [line.strip() for line in documented.splitlines() if line.startswith("        ")]
    shown = runner.invoke(build_app(), [command, "--help"], env={"COLUMNS": "140"}).stdout
    assert [line for line in examples if line not in map(str.strip, shown.splitlines())] == []


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from typer.testing import CliRunner; from daes.cli.app import build_app; "
        "result = CliRunner().invoke(build_app(), ['--help']); assert 'distribution' in result.stdout; "
        "print(sorted({'torch', 'pyarrow', 'plotly', 'numpy', 'scipy', 'matplotlib'} & sys.modules.keys()))"
    )
    done = python("-c", script)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("size must be positive, got 0"), 2, "daes: size must be positive, got 0"),
        (TypeError("two\n  lines"), 2, "daes: two lines"),
        (FileNotFoundError("there is no file x.csv"), 2, "daes: there is no file x.csv"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 2, "daes: x.csv: No such file or directory"),
        (PermissionError(13, "Permission denied", "x.csv"), 2, "daes: x.csv: Permission denied"),
        (OSError(28, "No space left on device", "out.html"), 1, "daes: out.html: No space left on device"),
        (OSError(28, "No space left on device"), 1, "daes: No space left on device"),
        (MissingExtraError("plotly is needed here"), 1, "daes: plotly is needed here"),
        (KeyError("x"), 1, "daes: unexpected KeyError: 'x' (--debug shows where)"),
        (RuntimeError(), 1, "daes: unexpected RuntimeError: no message (--debug shows where)"),
        (KeyboardInterrupt(), 130, "daes: interrupted"),
    ],
)
def test_an_error_is_one_sentence_on_stderr_and_a_code(error, code, sentence):
    result = runner.invoke(program_that(error), ["work"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "begun\n", sentence + "\n")


def test_an_interruption_while_the_program_loads_is_one_sentence_too(monkeypatch, capsys):
    def build_app() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("daes.cli.app.build_app", build_app)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "daes: interrupted\n")


def print_table(row, **environment):
    """The last line of a table with one row, printed where there is no terminal."""
    script = (
        f"from daes.cli.console import out; from daes.table import Table; out.print(Table(tuple('abcdef'), [{row!r}]))"
    )
    inherited = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=inherited | environment, text=True, check=True, **pipes)
    return done.stdout.splitlines()[-1].split()


def test_without_a_terminal_no_table_is_cut():
    row = ["a_long_name_of_a_column_of_numbers" * 5, *["0.123456789"] * 5]
    assert print_table(row) == row


def test_in_a_narrow_terminal_no_column_is_lost():
    row = ["name", *(f"0.12345678{digit}" for digit in range(5))]
    assert print_table(row, COLUMNS="40")[-5:] == row[1:]


@pytest.mark.parametrize(
    ("arguments", "closed", "sentence"),
    [
        (["train", "-", "--out", "run"], "<&-", "daes: standard input is closed"),
        (["predict", "run", "x.csv", "--out", "-"], ">&-", "daes: standard output is closed"),
    ],
)
def test_a_closed_stream_is_named(tmp_path, arguments, closed, sentence):
    command = f'"{sys.executable}" -m daes {" ".join(arguments)} {closed}'
    done = subprocess.run(command, shell=True, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, sentence + "\n")


def test_a_sentence_is_not_wrapped_nor_read_as_markup():
    sentence = "the column [bold]price[/bold] " + "is long " * 40
    result = runner.invoke(program_that(ValueError(sentence)), ["work"])
    assert result.stderr == f"daes: {sentence.strip()}\n"


@pytest.mark.parametrize("arguments", [["--debug", "work"], ["work", "--debug"]])
def test_debug_shows_the_traceback(arguments):
    result = runner.invoke(program_that(ValueError("wrong")), arguments)
    assert isinstance(result.exception, ValueError)


def test_debug_by_environment():
    result = runner.invoke(program_that(ValueError("wrong")), ["work"], env={"DAES_DEBUG": "1"})
    assert isinstance(result.exception, ValueError)
    result = runner.invoke(program_that(ValueError("wrong")), ["work"], env={"DAES_DEBUG": "0"})
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["distributoin"], ["'distributoin'", "'distribution'", "(see daes --help)"]),
        (["--fast"], ["--fast", "(see daes --help)"]),
        (["distribution", "--colum", "x"], ["--colum", "--column", "(see daes distribution --help)"]),
        (["distribution", "--size"], ["--size"]),
        (["distribution", "a", "b"], ["b", "(see daes distribution --help)"]),
    ],
)
def test_wrong_usage_is_one_sentence_too(arguments, named):
    result = runner.invoke(build_app(), arguments, prog_name="daes")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("daes: ")
    for part in named:
        assert part in result.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            ["train", "x.csv", "--batch-size", "0", "--lr=fast", "--colour", "red", "--dim", "many"],
            ["No such option: --colour", "--batch-size", "got 0", "--learning-rate", "--dim", "got many"],
        ),
        (["drift", "--segments", "1", "--bins=x"], ["--segments", "--bins", "Missing argument 'DATA'"]),
        (["train", "--lr", "0"], ["above 0 is needed, got 0", "'DATA'", "Missing option '--out'"]),
        (["predict"], ["Missing argument 'RUN'", "Missing argument 'DATA'", "Missing option '--out'"]),
        (
            [
                *("compare", "x.csv", "--methods", "daes,efdd", "--backbones", "deepfn", "--optimizer", "lion"),
                *(
                    "--learning-rate",
                    "0",
                    "--dropout",
                    "1",
                    "--bad-batch",
                    "ignore",
                    "--decimal",
                    ";",
                    "--device",
                    "tpu",
                ),
            ],
            [
                *("got 'efdd' (did you mean 'efd'?)", "got 'deepfn'", "got 'lion'", "above 0 is needed, got 0"),
                *("of at least 0 and below 1 is needed, got 1", "got 'ignore'", "got ';'", "got tpu"),
            ],
        ),
    ],
)
def test_all_that_is_wrong_with_the_options_is_one_sentence(arguments, named):
    result = runner.invoke(build_app(), arguments, prog_name="daes")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    for part in named:
        assert result.stderr.count(part) == 1
    assert "unexpected" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["train", "x.csv", "--typo", "--batch-size", "0", "--out", "run"], 2, "--typo"),
        (["train", "x.csv", "--method", "daess", "--backbone", "fnm", "--out", "run"], 2, "did you mean 'daes'?"),
        (
            ["train", "x.csv", "--key", "id", "--resume", "--overwrite", "--out", "run"],
            2,
            "--overwrite exclude each other",
        ),
        (["train", "--help"], 0, "dcnv2"),
        (["compare", "--help"], 0, "lightgbm"),
    ],
)
def test_options_are_checked_and_explained_without_torch(arguments, code, named):
    script = (
        "import sys; from typer.testing import CliRunner; from daes.cli.app import build_app; "
        f"result = CliRunner().invoke(build_app(), {arguments}); "
        f"assert (result.exit_code, {named!r} in result.output) == ({code}, True), result.output; "
        "print(sorted({'torch', 'pyarrow', 'plotly', 'numpy', 'scipy', 'matplotlib'} & sys.modules.keys()))"
    )
    done = python("-c", script)
    assert done.stdout.strip() == "[]", done.stderr


def test_names_are_known_without_torch_as_the_registries_have_them():
    script = "import json; from daes.cli.options import REGISTRIES, registered; " + (
        "print(json.dumps({kind: registered(kind) for kind in REGISTRIES}))"
    )
    known = json.loads(python("-c", script).stdout)
    for kind, registry in {"method": METHODS, "backbone": BACKBONES, "rival": RIVALS}.items():
        assert sorted(known[kind]) == sorted(registry)
        assert registered(kind) == tuple(registry)
    assert known.keys() == REGISTRIES.keys()


def test_numbers():
    assert number(least=0, below=1).parse("0") == 0
    assert number(above=0).parse("3e-2") == 0.03
    for text in ("0", "-3", "x", "", "nan"):
        with pytest.raises(typer.BadParameter, match=f"a number above 0 is needed, got {text}$"):
            number(above=0).parse(text)
    for text in ("inf", "1e400"):
        with pytest.raises(typer.BadParameter, match=f"a finite number above 0 is needed, got {text}$"):
            number(above=0).parse(text)


def test_whole_numbers():
    assert whole_number(1).parse("8192") == 8192
    for text in ("0", "-3", "1.5", "x", ""):
        with pytest.raises(typer.BadParameter, match=f"at least 1 is needed, got {text}$"):
            whole_number(1).parse(text)


def test_python_m_daes_runs_the_program():
    done = python("-m", "daes", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"daes {daes.__version__}\n", "")
    done = python("-m", "daes", "distribution", "nosuch.parquet", "--column", "x")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "daes: there is no file nosuch.parquet\n")
    done = python("-m", "daes", "distribution", "nosuch.parquet", "--column", "x", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "FileNotFoundError" in done.stderr


def test_a_terminal_without_the_characters_gets_question_marks():
    done = python("-m", "daes", "distribution", "±.parquet", "--column", "x", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (2, "daes: there is no file ?.parquet\n")


def test_the_shell_completes_commands_and_options():
    words = {"_DAES_COMPLETE": "complete_bash"}
    done = python("-m", "daes", **words, COMP_WORDS="daes tra", COMP_CWORD="1")
    assert done.stdout.split() == ["train"]
    done = python("-m", "daes", **words, COMP_WORDS="daes train --bad-", COMP_CWORD="2")
    assert done.stdout.split() == ["--bad-rows", "--bad-batch"]
