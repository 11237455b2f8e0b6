"""`daes watch`: a live page of a run while it trains."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from daes.cli.console import err
from daes.cli.options import whole_number


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of `daes train`.", show_default=False)],
    port: Annotated[
        int, typer.Option("--port", parser=whole_number(0), metavar="N", help="The port; 0 takes a free one.")
    ] = 8001,
) -> None:
    """Show a run on a live page while it trains: metrics, clicks, speed, calibration and drift.

    The page is on this machine alone, and is made of the files of RUN: training does not know of it. Ctrl-C ends it.

    Example:

        daes watch run
    """
    from daes.report.live import live_page
    from daes.report.live_run import training_view

    training_view(run)
    page = live_page(f"Training {run}").encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self.answer(200, "text/html; charset=utf-8", page)
            elif self.path == "/view":
                self.answer(200, "application/json", json.dumps(training_view(run)).encode())
            else:
                self.answer(404, "text/plain; charset=utf-8", b"there is only /\n")

        def answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not logged."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise OSError(f"cannot serve on port {port}: {getattr(error, 'strerror', None) or error}") from error
    with server:
        err.print(f"watching {run} on http://127.0.0.1:{server.server_port}", soft_wrap=True, markup=False)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
