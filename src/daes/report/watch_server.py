"""The live page of a run over HTTP, on this machine alone, with the standard library."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from daes.report.live import live_page
from daes.report.live_run import training_view


def watch_server(run: str | Path, port: int) -> ThreadingHTTPServer:
    """A server of the page at `/` on 127.0.0.1; port 0 takes a free port. A folder without a run is an error."""
    training_view(run)
    page = live_page(f"Training {run}").encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self.answer(200, "text/html; charset=utf-8", page)
            elif self.path == "/view":
                self.view()
            else:
                self.answer(404, "text/plain; charset=utf-8", b"there is only /\n")

        def view(self) -> None:
            try:
                content = json.dumps(training_view(run)).encode()
            except (OSError, ValueError, LookupError, TypeError) as error:  # the run is being replaced, or is gone
                self.answer(503, "text/plain; charset=utf-8", f"{error}\n".encode())
            else:
                self.answer(200, "application/json", content)

        def answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not logged."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that has closed its connection is no error of the server's."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    try:
        return Server(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise OSError(f"cannot serve on port {port}: {getattr(error, 'strerror', None) or error}") from error
