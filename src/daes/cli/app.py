"""The `daes` program: its commands, the options they share, and how errors are reported."""

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import daes
from daes.cli.console import err, errors
from daes.cli.errors import UsageError, explain, without_option
from daes.cli.options import ARGUMENTS, LEFT_OUT, REGISTRIES, option, registered

COMMANDS = (
    "demo",
    "train",
    "evaluate",
    "predict",
    "export",
    "serve",
    "watch",
    "compare",
    "drift",
    "context",
    "distribution",
    "methods",
    "paper",
    "doctor",
)
"""The commands, in the order in which the help lists them.

A command is a module of this package with a function of the same name: its arguments are the options, its docstring
is the help. These modules import quickly: torch and pyarrow are imported within the function.
"""


class Program(TyperGroup):
    """Runs a command; an error becomes one sentence on stderr and an exit code.

    2 is bad input or usage, 1 a failure, 130 an interruption. With `--debug`, anywhere on the command line, or
    DAES_DEBUG=1 in the environment the traceback is shown instead.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in given or os.environ.get("DAES_DEBUG", "0") not in ("", "0")
        err.quiet = "--quiet" in given
        for stream in (sys.stdout, sys.stderr):
            _never_fail_on_characters(stream)
        try:
            with warnings.catch_warnings():
                if not debug:
                    warnings.showwarning = _show_warning
                result = super().main(
                    [argument for argument in given if argument not in ("--debug", "--quiet")],
                    prog_name,
                    complete_var,
                    standalone_mode=False,
                    windows_expand_args=windows_expand_args,
                    **extra,
                )
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                raise
            code, sentence = explain(error)
            errors.print(Text.assemble(("daes: ", "bold red"), sentence), soft_wrap=True)
            sys.exit(code)
        # Without its standalone mode click returns the code that an Exit was raised with, and what a command returns.
        sys.exit(result if isinstance(result, int) else 0)


class ProgramCommand(TyperCommand):
    """A command that names all that is wrong with its options in one error.

    Its help lists registered names in place of {method}, {backbone} and {rival}.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        required = {parameter.name: parameter.required for parameter in self.params}
        try:
            return self._parse(ctx, args)
        finally:
            for parameter in self.params:
                parameter.required = required[parameter.name]

    def _parse(self, ctx: Any, args: list[str]) -> list[str]:
        found: list[Exception] = []
        left = list(args)
        while True:
            try:
                rest: list[str] = super().parse_args(ctx, list(left))
                break
            except UsageError as error:
                extra = type(error) is UsageError  # after an unknown option its value is an unexpected argument
                if not (extra and found):
                    found.append(error)
                shorter = without_option(left, error)
                if extra or (len(shorter) == len(left) and not _left_out(ctx, error)):
                    break
                left = shorter
        if len(found) == 1:
            raise found[0]
        if found:
            raise UsageError("; ".join(error.format_message().rstrip(".") for error in found), ctx)  # type: ignore[attr-defined]
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            text = getattr(parameter, "help", None) or ""
            for kind in REGISTRIES:
                if f"{{{kind}}}" in text:
                    text = text.replace(f"{{{kind}}}", ", ".join(registered(kind)))
                    parameter.help = text  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _left_out(ctx: Any, error: Exception) -> bool:
    """Leave out the parameter that an error is about: it is missing, or wrong in the configuration file."""
    parameter = getattr(error, "param", None)
    out: set[str] = ctx.meta.setdefault(LEFT_OUT, set())
    if parameter is None or parameter.name in out:
        return False
    parameter.required = False
    out.add(parameter.name)
    return True


def build_app() -> typer.Typer:
    """The program with all its commands."""
    app = typer.Typer(
        name="daes",
        cls=Program,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback(invoke_without_command=True)(_program)
    for name in COMMANDS:
        app.command(name=name, cls=ProgramCommand)(getattr(import_module(f"daes.cli.{name}"), name))
    return app


def _program(
    context: typer.Context,
    version: Annotated[bool, option("Print the version and exit.", "--version", is_eager=True)] = False,
    debug: Annotated[
        bool, option("Show the traceback of an error, anywhere on the command line. Or set DAES_DEBUG=1.", "--debug")
    ] = False,
    quiet: Annotated[
        bool, option("No progress and no notes, only results and errors; anywhere on the command line.", "--quiet")
    ] = False,
) -> None:
    """Click-through-rate models that learn from a stream and know the distribution of its numerical features.

    `daes COMMAND --help` explains a command. Results go to standard output; progress, notes and errors to standard
    error. The exit code is 2 for bad input, 1 for a failure.
    """
    if version:
        typer.echo(f"daes {daes.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning is a sentence too, without the line of code that it comes from."""
    err.print(Text.assemble(("daes: ", "bold yellow"), " ".join(str(message).split())), soft_wrap=True)


def _never_fail_on_characters(stream: TextIO) -> None:
    # A terminal that cannot show ± gets a question mark, not a traceback.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
