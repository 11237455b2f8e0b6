"""Errors as exit codes and sentences."""

import typer

from daes.extras import MissingExtraError
from daes.memory import out_of_memory

BAD_INPUT = 2
FAILURE = 1
INTERRUPTED = 130

# Some versions of typer depend on click, others contain it: its exceptions are reached through those of typer.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
ClickException: type[Exception] = UsageError.__bases__[0]

_INPUT_ERRORS = (ValueError, TypeError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code and the sentence for an error.

    For a wrong argument the library raises a `ValueError` or `TypeError` that names the argument and its value; these,
    and files that cannot be opened, are bad input. A missing extra, a full disk, too little memory, the library's own
    error classes (training that cannot continue) and unexpected errors are failures.

    >>> explain(ValueError("size must be a positive integer, got 0"))
    (2, 'size must be a positive integer, got 0')
    >>> explain(KeyError("x"))
    (1, "unexpected KeyError: 'x' (--debug shows where)")
    """
    if isinstance(error, ClickException):
        return getattr(error, "exit_code", FAILURE), _usage(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED, "interrupted"
    if sentence := out_of_memory(error):
        return FAILURE, sentence
    if isinstance(error, _INPUT_ERRORS):
        return BAD_INPUT, _sentence(error)
    if isinstance(error, OSError | MissingExtraError) or type(error).__module__.partition(".")[0] == "daes":
        return FAILURE, _sentence(error)
    return FAILURE, f"unexpected {type(error).__name__}: {_sentence(error)} (--debug shows where)"


def _usage(error: Exception) -> str:
    message: str = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return " ".join(message.split()).rstrip(".") + hint


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or "no message"
