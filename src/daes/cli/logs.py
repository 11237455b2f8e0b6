"""Log messages on standard error, for the commands that run until they are stopped."""

import logging

from rich.text import Text

from daes.cli.console import err


class _ToConsole(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        style = "bold yellow" if record.levelno >= logging.WARNING else "dim"
        at = self.formatter.formatTime(record, "%H:%M:%S") if self.formatter else ""
        err.print(Text.assemble((f"{at} ", style), record.getMessage()), soft_wrap=True)


def show_log(name: str) -> None:
    """Show what a logger of the package is told, from INFO on."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _ToConsole) for handler in logger.handlers):
        handler = _ToConsole()
        handler.setFormatter(logging.Formatter())
        logger.addHandler(handler)
