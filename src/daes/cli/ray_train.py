"""`daes train --ray`: the same command in workers of Ray Train."""

import os
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

import typer

from daes.cli.console import err, note
from daes.formatting import counted


@dataclass(frozen=True)
class Outcome:
    """What the command did in one worker."""

    exit_code: int
    stdout: str
    stderr: str
    other_failed: bool = False
    """Whether it only ended because another worker failed."""


def train_with_ray(arguments: Sequence[str], out: Path, workers: int, *, use_gpu: bool) -> None:
    """Run `daes train` with these arguments in workers of Ray Train, and print what the first of them prints."""
    from daes.engines.ray_train import run_workers
    from daes.extras import require

    require("ray")
    run = out.absolute()
    run.parent.mkdir(parents=True, exist_ok=True)
    note(f"training in {counted(workers, 'worker')} of Ray")
    work = partial(train_in_worker, arguments, Path.cwd(), run)
    outcomes, replaced = run_workers(work, workers, folder=run.parent, use_gpu=use_gpu)
    if replaced:
        note(f"workers were lost and replaced {counted(replaced, 'time')}; the run went on from its last checkpoint")
    shown = next((one for one in outcomes if one.exit_code and not one.other_failed), outcomes[0])
    if not err.quiet or shown.exit_code:
        typer.echo(shown.stderr, err=True, nl=False)
    typer.echo(shown.stdout, nl=False)
    if shown.exit_code:
        raise typer.Exit(shown.exit_code)


def train_in_worker(arguments: Sequence[str], directory: Path, out: Path, attempt: int) -> Outcome:
    """Run `daes train` in this process.

    Args:
        arguments: those of the command.
        directory: the directory to run it in.
        out: the run's folder.
        attempt: how often the workers have been started before.
    """
    from daes.cli.app import build_app
    from daes.cli.errors import explain
    from daes.training.processes.group import LostProcessError, OtherProcessError

    os.chdir(directory)
    code, other_failed = 0, False
    given = arguments_of_attempt(arguments, out, attempt)
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        try:
            build_app()(["train", *given, "--no-ray", "--debug"])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except LostProcessError:
            raise  # Ray starts all workers again
        except (Exception, KeyboardInterrupt) as error:
            code, sentence = explain(error)
            other_failed = isinstance(error, OtherProcessError)
            stderr.write(f"daes: {sentence}\n")
    return Outcome(code, stdout.getvalue(), stderr.getvalue(), other_failed)


def arguments_of_attempt(arguments: Sequence[str], out: Path, attempt: int) -> list[str]:
    """The arguments; those of a later attempt continue what the one before has left."""
    from daes.storage.run_folder import RunFolder

    if not attempt or ("--overwrite" in arguments and not RunFolder(out).replacement.exists):
        return list(arguments)
    return [argument for argument in arguments if argument not in ("--overwrite", "--resume")] + ["--resume"]
