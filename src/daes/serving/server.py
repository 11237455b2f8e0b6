"""The server process: a socket, uvicorn, and the compilation of the model in the background."""

import atexit
import ipaddress
import logging
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn

from daes.serving.compiled import CompiledScores, compiler
from daes.serving.service import Service

_log = logging.getLogger("daes.serving")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this host.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_socket(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 takes a free one. An error names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise OSError(f"cannot serve on {host} port {port}: {getattr(error, 'strerror', None) or error}") from error


def run_server(app: Any, listening: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM; requests in progress are still answered."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=10, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listening])


def compile_in_background(service: Service, folder: str | Path) -> None:
    """Compile the model in a separate process, which ends with this one, and score with the code once it is ready."""
    if compiler() is None:
        raise RuntimeError("--compile needs a C++ compiler: install g++ or clang++, or set CXX")

    def run() -> None:
        with tempfile.TemporaryDirectory(prefix="daes-compiled-") as temporary:
            path = Path(temporary) / "scores.pt2"
            command = [sys.executable, "-m", "daes.serving.compiled", str(folder), str(path)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as compiling:
                atexit.register(compiling.terminate)
                _, errors = compiling.communicate()
            if compiling.returncode:
                _log.warning("the model could not be compiled: %s", errors[-500:].strip())
                return
            try:
                service.model.use(CompiledScores(path))
            except (ValueError, RuntimeError) as error:
                _log.warning("the compiled model is not used: %s", error)
            else:
                _log.info("the model is compiled")

    Thread(target=run, name="daes-compile", daemon=True).start()
