"""The `daes` program: its commands, its global options, and how errors are reported."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import daes
from daes.cli.console import err, errors, log_messages
from daes.cli.errors import UsageError, explain
from daes.cli.options import ARGUMENTS, REGISTRIES, option, registered

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
    "backbones",
    "paper",
    "doctor",
)
"""The commands, in the order in which the help lists them.

A command is a module of this package with a function of the same name: its arguments are the options, its docstring
is the help. These modules import quickly: torch and pyarrow are imported within the function.
"""
_ERRORS = "daes.errors"


class Program(TyperGroup):
    """Runs a command and turns an error into one sentence on stderr and an exit code.

    The exit code is 2 for bad input or usage, 1 for a failure and 130 for an interruption. With `--debug`, anywhere on
    the command line, or DAES_DEBUG=1 in the environment, the traceback is shown instead.
    """

    def main(self, args: Sequence[str] | None = None, *arguments: Any, **options: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in given or os.environ.get("DAES_DEBUG", "0") not in ("", "0")
        err.quiet = "--quiet" in given
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a terminal that cannot show ± gets a question mark, not a traceback
                stream.reconfigure(errors="replace")
        try:
            with warnings.catch_warnings(), log_messages():
                if not debug:
                    show = cache(_show_warning)  # once, however often the same rows are read
                    warnings.showwarning = lambda message, *_, **__: show(str(message))
                left = [argument for argument in given if argument not in ("--debug", "--quiet")]
                result = super().main(left, *arguments, **{**options, "standalone_mode": False})
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                raise
            code, sentence = explain(error)
            errors.print(Text.assemble(("daes: ", "bold red"), sentence), soft_wrap=True)
            sys.exit(code)
        # Outside standalone mode click returns the code of an Exit, or whatever the command returns.
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:  # of which some versions of typer say nothing
            raise typer.Abort from interruption


class ProgramCommand(TyperCommand):
    """A command that reports everything that is wrong with its options in one error.

    Its help lists registered names in place of {method}, {backbone} and {rival}.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        parameters: list[Any] = list(self.params)
        for parameter in parameters:
            parameter.handle_parse_result = partial(_collect_error, parameter.handle_parse_result)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        found: list[Any] = ctx.meta.setdefault(_ERRORS, [])
        rest = self._parse(ctx, args, found)
        if len(found) > 1:
            raise UsageError("; ".join(error.format_message().rstrip(".") for error in found), ctx)
        if found:
            raise found[0]
        return rest

    def _parse(self, ctx: Any, args: list[str], found: list[Any]) -> list[str]:
        """Parse, leaving out options that do not exist or lack their value; all errors are added to `found`."""
        try:
            return super().parse_args(ctx, list(args))
        except UsageError as error:
            option = getattr(error, "option_name", None)
            if option or not found:  # after an unknown option its value is an unexpected argument
                found.append(error)
            others = [argument for argument in args if argument.partition("=")[0] != option]
            return self._parse(ctx, others, found) if len(others) < len(args) else []

    def format_help(self, ctx: Any, formatter: Any) -> None:
        parameters: list[Any] = list(self.params)
        for parameter in parameters:
            for kind in REGISTRIES:
                if f"{{{kind}}}" in (parameter.help or ""):
                    parameter.help = parameter.help.replace(f"{{{kind}}}", ", ".join(registered(kind)))
        super().format_help(ctx, formatter)


def _collect_error(handle: Callable[..., Any], ctx: Any, options: Any, args: list[str]) -> tuple[Any, list[str]]:
    """Read a parameter; an error about it is kept in `ctx.meta`, so that the other parameters are read as well."""
    try:
        return handle(ctx, options, args)  # type: ignore[no-any-return]
    except UsageError as error:
        ctx.meta[_ERRORS].append(error)
        return None, args


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
    version: bool = option("Print the version and exit.", "--version", is_eager=True, default=False),
    debug: bool = option(
        "Show the traceback of an error; anywhere on the command line. Or set DAES_DEBUG=1.", "--debug", default=False
    ),
    quiet: bool = option(
        "No progress and no notes, only results and errors; anywhere on the command line.", "--quiet", default=False
    ),
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


def _show_warning(message: str) -> None:
    """Print a warning as one sentence, without the line of code that it comes from."""
    err.print(Text.assemble(("daes: ", "bold yellow"), " ".join(message.split())), soft_wrap=True)
