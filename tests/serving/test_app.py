"""The service over HTTP: what it answers to good and to bad requests, and while the model changes."""

import asyncio
import json
import math
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daes.model import CTRModel
from daes.serving.app import create_app
from daes.serving.openapi import ARROW, example_row
from daes.serving.scorer import Scorer
from daes.serving.service import Limits, Service
from daes.storage.checkpoint import CheckpointStore

ARROW_TYPE = {"content-type": ARROW}


def arrow(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def service(trained):
    made = Service(trained, limits=Limits(body_bytes=1 << 20, rows=1000), follow=3600)
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(service):
    return TestClient(create_app(service, page="<p>page</p>", docs="<p>docs</p>"), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def scorer(trained):
    return Scorer(CTRModel.from_pretrained(trained / "model"))


def sent(client, content, **options):
    return client.post("/predict", content=json.dumps(content), headers={"content-type": "application/json"}, **options)


class TestScores:
    def test_rows(self, client, scorer, requests):
        answer = sent(client, {"rows": requests})
        assert answer.status_code == 200
        assert answer.json()["model"] == "model"
        np.testing.assert_allclose(answer.json()["scores"], scorer.score_rows(requests), rtol=1e-6)

    def test_no_rows(self, client):
        assert sent(client, {"rows": []}).json()["scores"] == []

    def test_arrow(self, client, scorer):
        table = pa.table({"price": [1.5, None], "city": ["city 3", "Bern"]})
        answer = client.post("/predict", content=arrow(table), headers=ARROW_TYPE)
        assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW)
        scores = pa.ipc.open_stream(answer.content).read_all()["score"]
        np.testing.assert_allclose(scores, scorer.score_table(table), rtol=1e-6)
        assert answer.headers["x-model"] == "model"

    def test_labels_of_a_request(self, trained):
        with closing(Service(trained, follow=3600)) as service, TestClient(create_app(service)) as client:
            first = sent(client, {"rows": [{"price": 1.0}, {"price": 2.0}, {}]}).json()
            assert client.post("/labels", json={"id": first["id"], "labels": [1, 0, None]}).json() == {"labels": 2}
            sent(client, {"rows": [{}], "id": "mine"})
            assert client.post("/labels", json={"id": "mine", "labels": [True, 1]}).status_code == 409
            assert client.post("/labels", json={"id": "mine", "labels": [True]}).json() == {"labels": 1}
            again = client.post("/labels", json={"id": "mine", "labels": [1]})
            assert (again.status_code, again.json()["detail"][0]["loc"]) == (404, ["body", "id"])
            metrics = client.get("/status").json()["traffic"]["labels"]["metrics"]
            assert metrics["rows"] == 3


BAD = [
    ("{", ["body"], "the body must be valid JSON"),
    ("[" * 100_000, ["body"], "the body must be valid JSON"),
    (f'{{"rows": [{{"price": {"9" * 5000}}}]}}', ["body"], "the body must be valid JSON"),
    ("[]", ["body"], "the body must be a JSON object, got list"),
    ("{}", ["body", "rows"], "rows must be a list of objects, got null"),
    ('{"rows": {}}', ["body", "rows"], "rows must be a list of objects, got dict"),
    ('{"rows": [], "row": 1}', ["body", "row"], "the body must have no keys but rows and id"),
    ('{"rows": [{}, 3]}', ["body", "rows", 1], "must be an object with a value for each column, got int"),
    ('{"rows": [{"price": "x"}]}', ["body", "rows", 0, "price"], "must be a number, got 'x'"),
    ('{"rows": [{}, {"city": [1]}]}', ["body", "rows", 1, "city"], "must be a text, a number or a boolean, got [1]"),
    ('{"rows": [{"city": "\\ud800"}]}', ["body", "rows", 0, "city"], "must be valid Unicode"),
    ('{"rows": [{"prize": 1}]}', ["body", "rows", 0, "prize"], "there is no column 'prize'; did you mean 'price'?"),
    ('{"rows": [], "id": ""}', ["body", "id"], "id must be a text of 1 to 200 characters"),
    ('{"rows": [], "id": 5}', ["body", "id"], "id must be a text of 1 to 200 characters, got 5"),
]


class TestBadRequests:
    @pytest.mark.parametrize(("body", "where", "message"), BAD)
    def test_what_is_wrong_is_named(self, client, body, where, message):
        answer = client.post("/predict", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        (detail,) = answer.json()["detail"]
        assert detail["loc"] == where
        assert message in detail["msg"]

    def test_too_much(self, client):
        answer = sent(client, {"rows": [{}] * 1001})
        assert (answer.status_code, answer.json()["detail"][0]["msg"]) == (
            422,
            "a request may have at most 1000 rows, got 1001 or more",
        )
        assert client.post("/predict", content=b" " * (1 << 20 | 1)).status_code == 413
        parts = (b" " * 1000 for _ in range(2000))  # without a length
        assert client.post("/predict", content=parts).status_code == 413
        many = arrow(pa.table({"price": pa.nulls(5000, pa.float32())}))
        assert client.post("/predict", content=many, headers=ARROW_TYPE).status_code == 422

    def test_another_content_type(self, client):
        answer = client.post("/predict", content="a=b", headers={"content-type": "text/csv"})
        assert (answer.status_code, "got 'text/csv'" in answer.json()["detail"][0]["msg"]) == (415, True)

    def test_arrow_that_is_none(self, client):
        good = arrow(pa.table({"price": [1.5] * 100, "city": ["Bern"] * 100}))
        for body in (b"", b"nothing", good[:40], good[:300], good[:-400], good[:200] + b"\xff" * 64 + good[264:]):
            assert client.post("/predict", content=body, headers=ARROW_TYPE).status_code in (200, 422)
        for table, message in (
            (pa.table({"price": ["x"]}), "column 'price' must hold numbers"),
            (pa.table({"prize": [1]}), "there is no column 'prize'; did you mean 'price'?"),
            (pa.table({"city": [[1]]}), "column 'city': a category must be"),
        ):
            answer = client.post("/predict", content=arrow(table), headers=ARROW_TYPE)
            assert (answer.status_code, message in answer.json()["detail"][0]["msg"]) == (422, True)

    @pytest.mark.parametrize("labels", [None, 1, [2], ["1"], [[]], [math.nan]])
    def test_labels(self, client, labels):
        body = json.dumps({"id": "x", "labels": labels})
        assert client.post("/labels", content=body).status_code == 422

    def test_other_methods_and_paths(self, client):
        assert client.get("/predict").status_code == 405
        assert client.get("/nothing").status_code == 404


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["price", "age", "city", "device", "click", "x"]), JSON), max_size=4)
BODIES = st.one_of(
    JSON.map(json.dumps).map(str.encode),
    ROWS.map(lambda rows: json.dumps({"rows": rows}).encode()),
    st.binary(max_size=200),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BODIES, st.sampled_from(["application/json", ARROW, "text/plain"]), st.sampled_from(["/predict", "/labels"]))
def test_no_body_is_an_error_of_the_server(client, body, kind, path):
    answer = client.post(path, content=body, headers={"content-type": kind})
    assert answer.status_code in (200, 404, 413, 415, 422)
    if answer.status_code == 200 and path == "/predict":
        assert all(0 <= score <= 1 for score in answer.json()["scores"])


class TestKey:
    @pytest.fixture
    def locked(self, service):
        return TestClient(create_app(service, api_key="secret", page="page"))

    @pytest.mark.parametrize("path", ["/metrics", "/drift", "/status"])
    def test_what_needs_it(self, locked, path):
        assert locked.get(path).status_code == 401
        assert locked.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert locked.get(path, headers={"authorization": "Bearer secret"}).status_code == 200

    def test_scores_need_it(self, locked):
        assert sent(locked, {"rows": [{}]}).status_code == 401
        good = {"authorization": "Bearer secret"}
        assert locked.post("/predict", json={"rows": [{}]}, headers=good).status_code == 200

    @pytest.mark.parametrize("path", ["/", "/docs", "/healthz", "/readyz", "/openapi.json"])
    def test_what_does_not(self, locked, path):
        assert locked.get(path).status_code == 200


class TestState:
    def test_health_and_readiness(self, client):
        assert client.get("/healthz").json() == {"alive": True}
        state = client.get("/readyz").json()
        assert state["ready"] is True
        assert state["refused"] is None
        assert state["model"]["version"] == "model"
        assert state["model"]["rows"] == 2000

    def test_metrics(self, client):
        sent(client, {"rows": [{}, {}]})
        text = client.get("/metrics").text
        assert 'daes_requests_total{status="200"}' in text
        assert "daes_request_seconds_bucket" in text
        assert "daes_model_age_seconds" in text

    def test_the_pages(self, client):
        page = client.get("/")
        assert (page.text, page.headers["content-type"]) == ("<p>page</p>", "text/html; charset=utf-8")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert client.get("/docs").text == "<p>docs</p>"

    def test_the_description_has_an_example_that_works(self, client, service):
        description = client.get("/openapi.json").json()
        body = description["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
        columns = body["schema"]["properties"]["rows"]["items"]["properties"]
        assert set(columns) == {"price", "age", "city", "device", "click"}
        assert body["example"] == {"rows": [example_row(service.model.schema)]}
        assert client.post("/predict", json=body["example"]).status_code == 200


def test_requests_that_come_together_are_scored_together(trained, requests, scorer):
    with closing(Service(trained, follow=3600, batch_wait=0.05)) as service, TestClient(create_app(service)) as client:
        batches = []
        original = service.traffic.scored
        service.traffic.scored = lambda scores: (batches.append(len(scores)), original(scores))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda row: sent(client, {"rows": [row]}).json()["scores"][0], requests))
    np.testing.assert_allclose(answers, scorer.score_rows(requests), rtol=1e-6)
    assert sum(batches) == len(requests)
    assert len(batches) < len(requests)


@pytest.mark.parametrize("path", ["/predict", "/labels"])
def test_a_client_that_does_not_send_its_body(trained, path):
    with closing(Service(trained, follow=3600, limits=Limits(seconds=0.1))) as service:
        app, answers = create_app(service), []
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "app": app}

        async def receive():
            await asyncio.sleep(3600)

        async def send(message):
            answers.append(message)

        asyncio.run(app(scope, receive, send))
    assert answers[0]["status"] == 503


@pytest.mark.parametrize("path", ["/predict", "/labels"])
def test_a_client_that_leaves_is_no_error_of_the_server(trained, path):
    with closing(Service(trained, follow=3600)) as service:
        app, answers = create_app(service), []
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "app": app}
        messages = [
            {"type": "http.request", "body": b'{"rows"', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive():
            return messages.pop(0)

        async def send(message):
            answers.append(message)

        asyncio.run(app(scope, receive, send))  # raises nothing, which the server would log as an error
    assert answers[0]["status"] == 400
    assert service.traffic.by_status == ({400: 1} if path == "/predict" else {})


def test_a_length_with_too_many_digits_to_be_read(trained):
    with closing(Service(trained, follow=3600)) as service:
        app, answers = create_app(service), []
        headers = [(b"content-length", b"9" * 5000)]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/predict",
            "headers": headers,
            "query_string": b"",
            "app": app,
        }

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            answers.append(message)

        asyncio.run(app(scope, receive, send))
    assert answers[0]["status"] == 413


def test_more_rows_than_may_wait(trained):
    with (
        closing(Service(trained, follow=3600, limits=Limits(waiting_rows=5), batch_wait=0.5)) as service,
        TestClient(create_app(service)) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        answers = list(pool.map(lambda _: sent(client, {"rows": [{}] * 3}), range(4)))
    found = sorted(answer.status_code for answer in answers)
    assert found[0] == 200
    assert found[-1] == 503
    assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 503)


class TestModelsThatChange:
    @pytest.fixture
    def run(self, trained, tmp_path):
        return shutil.copytree(trained, tmp_path / "run")

    def add(self, run, step, change=None):
        """A checkpoint of a later step, of a model that says something else."""
        with CheckpointStore(run / "checkpoints", keep=99) as store:
            state = store.load(20).state
            for name, tensor in state["step"]["model"].items():
                if name.startswith("backbone."):
                    state["step"]["model"][name] = tensor * 0.5 if change is None else change(tensor)
            return store.save(step, state)

    def test_a_new_checkpoint_goes_live_and_a_bad_one_does_not(self, run):
        with closing(Service(run, follow=3600)) as service, TestClient(create_app(service)) as client:
            before = sent(client, {"rows": [{"price": 1.0}]}).json()
            self.add(run, 30)
            assert service.model.refresh()
            after = sent(client, {"rows": [{"price": 1.0}]}).json()
            assert (before["model"], after["model"]) == ("model", "step 30")
            assert before["scores"] != after["scores"]

            self.add(run, 40).write_bytes(b"nothing")
            assert not service.model.refresh()
            self.add(run, 50, lambda tensor: tensor * math.nan)
            assert not service.model.refresh()
            assert not service.model.refresh()
            state = client.get("/readyz").json()
            assert state["ready"] is True
            assert state["model"]["version"] == "step 30"
            assert state["refused"]["version"] == "step 50"
            assert "scores of test rows are not finite" in state["refused"]["reason"]
            assert "daes_model_refused_total 2.0" in client.get("/metrics").text
            assert sent(client, {"rows": [{"price": 1.0}]}).json()["scores"] == after["scores"]

            self.add(run, 60)
            assert service.model.refresh()
            assert client.get("/readyz").json()["refused"] is None

    def test_no_request_fails_while_models_change(self, run):
        expected = {}
        with closing(Service(run, follow=0.02)) as service, TestClient(create_app(service)) as client:
            stop = threading.Event()

            def ask(number):
                found = []
                while not stop.is_set():
                    answer = sent(client, {"rows": [{"price": 1.0}] * (1 + number)})
                    found.append((answer.status_code, answer.json()["model"], *answer.json()["scores"]))
                return found

            with ThreadPoolExecutor(3) as pool:
                asking = [pool.submit(ask, number) for number in range(3)]
                for step in range(30, 36):
                    self.add(run, step, lambda tensor, step=step: tensor * (step / 60))
                    end = time.monotonic() + 20
                    while service.model.current.version.step != step and time.monotonic() < end:
                        time.sleep(0.01)
                    expected[f"step {step}"] = service.model.current.scorer.score_rows([{"price": 1.0}])[0]
                stop.set()
                answers = [answer for one in asking for answer in one.result()]
        assert {status for status, *_ in answers} == {200}
        assert len({model for _, model, *_ in answers}) >= 5
        for _, model, *scores in answers:
            assert model == "model" or scores == pytest.approx([expected[model]] * len(scores), rel=1e-6)

    def test_a_refused_model_leaves_no_trace_in_drift(self, run):
        with closing(Service(run, follow=3600)) as service:
            before = service.model.current.learned
            self.add(run, 50, lambda tensor: tensor * math.nan)
            assert not service.model.refresh()
            assert service.model.current.learned is before

    def test_a_run_that_has_no_model_yet(self, run):
        aside = run.parent / "aside"
        shutil.move(run / "model", aside)
        shutil.rmtree(run / "checkpoints")
        with closing(Service(run, follow=0.05)) as service, TestClient(create_app(service)) as client:
            assert client.get("/readyz").status_code == 503
            answer = sent(client, {"rows": [{}]})
            assert (answer.status_code, "no model yet" in answer.json()["detail"][0]["msg"]) == (503, True)
            shutil.move(aside, run / "model")
            end = time.monotonic() + 20
            while client.get("/readyz").status_code != 200 and time.monotonic() < end:
                time.sleep(0.02)
            assert sent(client, {"rows": [{}]}).status_code == 200

    def test_what_cannot_be_served(self, run, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            Service(tmp_path / "nosuch")
        with pytest.raises(FileNotFoundError, match="no run and no saved model"):
            Service(tmp_path)
        (run / "model" / "model.safetensors").write_bytes(b"nothing")
        shutil.rmtree(run / "checkpoints")
        with pytest.raises(ValueError, match=r"cannot be served: .*SHA-256 differs"):
            Service(run)
