"""`daes serve`: a trained model over HTTP."""

import logging
import os
from contextlib import closing
from functools import partial
from pathlib import Path

from daes.cli.console import note
from daes.cli.options import PORT, RunArgument, number, option, whole_number
from daes.cli.until_stopped import until_stopped

KEY_VARIABLE = "DAES_API_KEY"


def serve(
    run: RunArgument,
    port: int = option("The port; 0 takes a free one.", of=PORT, default=8000),
    host: str = option("The address to listen on.", metavar="ADDRESS", default="127.0.0.1"),
    api_key_file: Path | None = option(
        f"A file that holds the API key; or set {KEY_VARIABLE}.", metavar="FILE", dir_okay=False, default=None
    ),
    without_key: bool = option(
        "Serve without an API key on an address that others can reach.", "--without-key", default=False
    ),
    follow: float = option(
        "Time between checks for a newer model.", of=number(least=0.05, metavar="SECONDS"), default=1.0
    ),
    compile: bool = option(
        "Compile the model in the background: one that `daes.native` has no loops for scores single rows several times "
        "as fast.",
        "--compile",
        default=False,
    ),
    batch_wait: float = option(
        "Time a request waits to be scored together with others.", of=number(least=0, metavar="MS"), default=0.0
    ),
    max_body: int = option("Maximum size of a request body.", of=whole_number(1, "BYTES"), default=8 << 20),
    max_rows: int = option("Maximum rows per request.", of=whole_number(1, "ROWS"), default=10_000),
    max_seconds: float = option("Maximum time per request.", of=number(least=0.01, metavar="SECONDS"), default=10.0),
    drift_window: int = option(
        "Number of recent rows that are compared with training.", of=whole_number(1, "ROWS"), default=10_000
    ),
    threads: int = option("Threads per computation.", of=whole_number(1), default=1),
) -> None:
    """Serve a trained model over HTTP, and follow its training.

    `POST /predict` scores rows, `/docs` describes all addresses and has a form, `/` is a live page, `/drift` compares
    requests with the training rows, `/metrics` is for Prometheus. While RUN is being trained, every new checkpoint goes
    live; one that is damaged or whose scores are not finite is refused, and the previous model stays. Ctrl-C and
    SIGTERM end the server, once the requests in progress are answered.

    Examples:

        daes serve run
        curl localhost:8000/predict -H 'content-type: application/json' -d '{"rows": [{"price": 1.5, "city": "Bern"}]}'
        DAES_API_KEY=secret daes serve run --host 0.0.0.0 --compile
    """
    from daes.extras import require

    for package in ("fastapi", "uvicorn", "prometheus_client", "jinja2"):
        require(package)
    key = _api_key(api_key_file)
    import torch

    from daes.report.live import docs_page, live_page, serving_view
    from daes.serving.app import create_app
    from daes.serving.server import compile_in_background, is_loopback, open_socket, run_server
    from daes.serving.service import Limits, Service

    if not is_loopback(host) and key is None and not without_key:
        raise ValueError(
            f"--host {host} can be reached by others: set {KEY_VARIABLE} or give --api-key-file or --without-key"
        )
    torch.set_num_threads(threads)
    logging.getLogger("daes.serving").setLevel(logging.INFO)
    limits = Limits(body_bytes=max_body, rows=max_rows, seconds=max_seconds)
    with (
        until_stopped(),
        open_socket(host, port) as listening,
        closing(
            Service(run, limits=limits, follow=follow, batch_wait=batch_wait / 1000, drift_window=drift_window)
        ) as service,
    ):
        if compile:
            compile_in_background(service, run)
        app = create_app(
            service,
            api_key=key,
            page=live_page(f"Serving {run}", links=("docs", "drift", "metrics")),
            docs=docs_page(service.model.schema),
            view=partial(serving_view, str(run)),
        )
        shown = f"[{host}]" if ":" in host else host
        note(f"serving {run} on http://{shown}:{listening.getsockname()[1]}")
        run_server(app, listening)


def _api_key(file: Path | None) -> str | None:
    """The key in the file or in the environment; not on the command line, which other users can see."""
    key = os.environ.get(KEY_VARIABLE) if file is None else file.read_text(encoding="utf-8")
    if key is None:
        return None
    if not key.strip():
        raise ValueError(f"the API key must not be empty, but {file or KEY_VARIABLE} is")
    return key.strip()
