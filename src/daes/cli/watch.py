"""`daes watch`: a live page of a run while it trains."""

from pathlib import Path
from typing import Annotated

import typer

from daes.cli.console import note
from daes.cli.options import PORT, option
from daes.cli.until_stopped import until_stopped


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `daes train`.", show_default=False)],
    port: int = option("The port; 0 takes a free one.", of=PORT, default=8001),
) -> None:
    """Show a run on a live page while it trains: metrics, clicks, speed, calibration and drift.

    Only this machine can reach the page. It is made from the files of RUN, so training is not affected. Ctrl-C and
    SIGTERM end the server.

    Example:

        daes watch run
    """
    from daes.report.watch_server import watch_server

    with until_stopped(), watch_server(run, port) as server:
        note(f"watching {run} on http://127.0.0.1:{server.server_port}")
        server.serve_forever()
