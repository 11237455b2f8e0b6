"""Requests at random and from the description: whatever is sent, the server answers, never with an error of its own.

`DAES_FUZZ=100000 python -m pytest -m slow -s tests/serving/test_fuzz.py` sends so many of either kind.
"""

import json
import os
import random
from collections import Counter
from contextlib import closing

import hypothesis
import pyarrow as pa
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import strategies

from daes.serving.app import create_app
from daes.serving.openapi import ARROW
from daes.serving.service import Limits, Service

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


@pytest.mark.slow
def test_random_requests(trained):
    requests = int(os.environ.get("DAES_FUZZ", "2000"))
    fuzzer, found = Fuzzer(int(os.environ.get("DAES_FUZZ_SEED", "0"))), Counter()
    with closing(Service(trained, follow=3600)) as service:
        client = TestClient(create_app(service), raise_server_exceptions=False)
        for _ in range(requests):
            path, body, kind = fuzzer.request()
            status = client.post(path, content=body, headers={"content-type": kind}).status_code
            assert status in (200, 404, 409, 413, 415, 422), (status, path, kind, body)
            found[status] += 1
    print(dict(found))
    assert {200, 415, 422} <= found.keys()


@strategies.composite
def arrow_streams(draw):
    """Arrow streams of columns that the model has or has not, of many types, some with bytes that are changed."""
    rows = draw(strategies.integers(0, 3))
    numbers = strategies.none() | strategies.floats() | strategies.integers(-(2**63), 2**63 - 1).map(float)
    text = strategies.none() | strategies.text(max_size=5)
    lists = strategies.none() | strategies.lists(strategies.integers(0, 9), max_size=2)
    kinds = {pa.float64(): numbers, pa.string(): text, pa.list_(pa.int64()): lists, pa.null(): strategies.none()}
    columns = {}
    for name in draw(strategies.lists(strategies.sampled_from(NAMES), max_size=4, unique=True)):
        kind = draw(strategies.sampled_from(list(kinds)))
        columns[name] = pa.array(draw(strategies.lists(kinds[kind], min_size=rows, max_size=rows)), kind)
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = bytearray(sink.getvalue())
    for place in draw(strategies.lists(strategies.integers(0, len(body) - 1), max_size=3)):
        body[place] = draw(strategies.integers(0, 255))
    return bytes(body)


schemathesis.openapi.media_type(ARROW, arrow_streams() | strategies.binary())


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/predict", "/labels"])
@pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.value)
def test_requests_made_from_the_description(trained, path, mode):
    left, seed = int(os.environ.get("DAES_FUZZ", "400")) // 4, int(os.environ.get("DAES_FUZZ_SEED", "0"))
    found = Counter()
    # Few rows at most, since what breaks that rule is made as well; a body that is too large is refused with 413.
    rejection = {"expected-statuses": [400, 404, 409, 413, 415, 422]}
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": rejection}})
    with closing(Service(trained, follow=3600, limits=Limits(rows=100))) as service:
        described = schemathesis.openapi.from_asgi("/openapi.json", create_app(service), config=config)[path]["POST"]

        def send(case):
            # Arrow streams are made here, not from the description, which does not tell good ones from bad ones.
            checks = [schemathesis.checks.not_a_server_error] if case.media_type == ARROW else None
            found[case.media_type, case.call_and_validate(checks=checks).status_code] += 1

        given = hypothesis.given(case=described.as_strategy(generation_mode=mode))
        while left > 0:  # thousands at a time: what hypothesis remembers of a run slows it down
            options = {"deadline": None, "database": None, "suppress_health_check": list(hypothesis.HealthCheck)}
            settings = hypothesis.settings(max_examples=min(left, 2000), phases=[hypothesis.Phase.generate], **options)
            hypothesis.seed(seed)(settings(given(send)))()
            left, seed = left - 2000, seed + 1
    print(dict(found))
    assert all(status < 500 for _, status in found)
