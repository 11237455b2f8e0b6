"""`daes train --ray`: the same command in workers of Ray Train."""

import os
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
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
    blames: bool = False
    """Whether it only ended because another worker has failed."""


@dataclass(frozen=True)
class TrainCommand:
    """Runs `daes train` in a worker.

    Args:
        arguments: of the command.
        directory: where it is run.
        out: the run's folder.
    """

    arguments: tuple[str, ...]
    directory: str
    out: str

    def __call__(self, attempt: int) -> Outcome:
        from daes.cli.app import build_app
        from daes.cli.errors import explain
        from daes.training.processes.group import LostProcessError, OtherProcessError

        os.chdir(self.directory)
        code, blames = 0, False
        with redirect_stdout(StringIO()) as said, redirect_stderr(StringIO()) as told:
            try:
                build_app()(["train", *self._arguments(attempt), "--no-ray", "--debug"])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            except LostProcessError:
                raise  # Ray starts all workers again
            except (Exception, KeyboardInterrupt) as error:
                code, sentence = explain(error)
                blames = isinstance(error, OtherProcessError)
                told.write(f"daes: {sentence}\n")
        return Outcome(code, said.getvalue(), told.getvalue(), blames)

    def _arguments(self, attempt: int) -> Sequence[str]:
        """The arguments; those of a later attempt continue what the one before has left."""
        from daes.storage.run_folder import RunFolder

        if not attempt:
            return self.arguments
        if "--overwrite" in self.arguments and not RunFolder(self.out).replacement.exists:
            return self.arguments
        return [argument for argument in self.arguments if argument not in ("--overwrite", "--resume")] + ["--resume"]


def train_with_ray(arguments: Sequence[str], out: Path, workers: int, *, use_gpu: bool) -> None:
    """Run `daes train` with these arguments in workers of Ray Train, and say what the first of them says."""
    from daes.engines.ray_train import run_workers

    folder = out.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    note(f"training in {counted(workers, 'worker')} of Ray")
    command = TrainCommand(_without_workers(arguments), str(Path.cwd()), str(out.absolute()))
    outcomes, replaced = run_workers(command, workers, folder=folder, use_gpu=use_gpu)
    if replaced:
        times = counted(replaced, "time")
        note(f"workers were lost and replaced {times}; the run went on from its last checkpoint")
    shown = next((one for one in outcomes if one.exit_code and not one.blames), outcomes[0])
    if not err.quiet or shown.exit_code:
        typer.echo(shown.stderr, err=True, nl=False)
    typer.echo(shown.stdout, nl=False)
    if shown.exit_code:
        raise typer.Exit(shown.exit_code)


def _without_workers(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments without --workers and its value.

    >>> _without_workers(["a.csv", "--ray", "--workers", "2", "--out=run", "--workers=3"])
    ('a.csv', '--out=run')
    """
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--workers":
            skip = True
        elif argument != "--ray" and not argument.startswith("--workers="):
            kept.append(argument)
    return tuple(kept)
