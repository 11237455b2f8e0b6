"""Requests at random and from the description: whatever is sent, the server answers, never with an error of its own.

`DAES_FUZZ=100000 python -m pytest -m engines tests/serving/test_fuzz.py` sends so many; schemathesis runs where it is
installed.
"""

import json
import os
import random
import shutil
import subprocess
import threading
import time
from contextlib import closing

import pytest
from fastapi.testclient import TestClient

from daes.serving.app import create_app
from daes.serving.openapi import ARROW
from daes.serving.server import open_socket
from daes.serving.service import Service

NAMES = ("price", "age", "city", "device", "click", "prize", "", "\x00", "rows", "id", "labels")
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        2**53 + 1,
        -(2**63),
        10**30,
        1e300,
        -1e-300,
        "",
        "a",
        "Zürich",
        "\x00",
        "3.0",
        "1e-05",
    ),
    *("2024-01-05T10:00:00Z", "x" * 3000, "😀", [], {}, [1], {"a": 1}, float("nan"), float("inf"), -0.0),
)
PIECES = (
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"1e999",
    b"-",
    b"null",
    b"NaN",
)


class Fuzzer:
    """Requests that are nearly right, in JSON and in Arrow."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def row(self):
        draw = self.random
        return {draw.choice(NAMES[: draw.choice((4, 5, 11))]): draw.choice(VALUES) for _ in range(draw.randrange(5))}

    def body(self):
        draw = self.random
        content = {"rows": [self.row() for _ in range(draw.randrange(4))]}
        if draw.random() < 0.2:
            content[draw.choice(NAMES)] = draw.choice(VALUES)
        if draw.random() < 0.1:
            content = draw.choice(VALUES)
        body = json.dumps(content).encode()
        for _ in range(draw.choice((0, 0, 1, 3))):
            at = draw.randrange(len(body) + 1)
            body = body[:at] + draw.choice(PIECES) + body[at + draw.randrange(4) :]
        return body

    def request(self):
        draw = self.random
        path = "/labels" if draw.random() < 0.1 else "/predict"
        kind = draw.choice(("application/json", "application/json", "application/json", ARROW, "text/plain", "a/b; c"))
        return path, self.body(), kind


@pytest.mark.engines
def test_random_requests(trained):
    requests = int(os.environ.get("DAES_FUZZ", "2000"))
    fuzzer, found = Fuzzer(int(os.environ.get("DAES_FUZZ_SEED", "0"))), {}
    with closing(Service(trained, follow=3600)) as service:
        client = TestClient(create_app(service), raise_server_exceptions=False)
        for _ in range(requests):
            path, body, kind = fuzzer.request()
            status = client.post(path, content=body, headers={"content-type": kind}).status_code
            assert status in (200, 404, 409, 413, 415, 422), (status, path, kind, body)
            found[status] = found.get(status, 0) + 1
    print(found)
    assert {200, 415, 422} <= found.keys()


@pytest.mark.engines
@pytest.mark.skipif(shutil.which("schemathesis") is None, reason="schemathesis is not installed")
def test_requests_made_from_the_description(trained):
    import uvicorn

    with closing(Service(trained, follow=3600)) as service, open_socket("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/openapi.json"
        command = ["schemathesis", "run", address, "--max-examples", os.environ.get("DAES_FUZZ_EXAMPLES", "100")]
        done = subprocess.run([*command, "--suppress-health-check", "all"], capture_output=True, text=True, check=False)
        server.should_exit = True
        thread.join(timeout=30)
    assert done.returncode == 0, done.stdout[-5000:]
