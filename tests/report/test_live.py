"""The live page of a server in a browser: all is drawn, it fits, it follows, and the form of /docs works."""

import json
import threading
import time
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient

from daes.report.live import docs_page, live_page, serving_view
from daes.serving.app import create_app
from daes.serving.server import open_socket
from daes.serving.service import Service

uvicorn = pytest.importorskip("uvicorn")

OVERFLOW = """[document.documentElement.scrollWidth - window.innerWidth,
    ...Array.from(document.querySelectorAll('svg, h1, h2, h3, p, dd'),
        element => element.getBoundingClientRect().right - window.innerWidth)]"""


def make_app(service, **options):
    return create_app(
        service,
        page=live_page("Serving run", links=("docs",)),
        docs=docs_page(service.model.schema),
        view=partial(serving_view, "run"),
        **options,
    )


class Running:
    """A server in a thread, on a free port."""

    def __init__(self, app):
        self.socket = open_socket("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()
        end = time.monotonic() + 30
        while not self.server.started and time.monotonic() < end:
            time.sleep(0.01)

    def close(self):
        self.server.should_exit = True
        self.thread.join(timeout=30)
        self.socket.close()


@pytest.fixture(scope="module")
def service(hostile_run):
    made = Service(hostile_run, follow=3600)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(service):
    made = Running(make_app(service))
    with TestClient(make_app(service)) as client:
        random = np.random.default_rng(0)
        names = service.model.schema.numerical
        for _ in range(30):
            rows = [{name: float(random.lognormal()) for name in names} for _ in range(20)]
            answer = client.post("/predict", content=json.dumps({"rows": rows})).json()
            labels = [int(random.random() < score) for score in answer["scores"]]
            client.post("/labels", json={"id": answer["id"], "labels": labels})
    time.sleep(1.1)  # the charts show seconds that are over
    yield made
    made.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_all_is_drawn_and_fits(chromium, running, width, dark):
    chromium.open(running.address, width=width, dark=dark)
    assert chromium.complaints() == []
    assert all(url.startswith(running.address) for url in chromium.requests())
    charts = chromium.evaluate(
        "Array.from(document.querySelectorAll('figure svg'), one => one.getAttribute('aria-label'))"
    )
    assert charts == ["Requests a second", "Latency", "Scores", "Clicked against predicted"]
    assert chromium.evaluate("document.querySelectorAll('[data-chart=scores] rect').length") == 40
    assert chromium.evaluate("document.querySelectorAll('#drift tbody tr').length") == 9
    assert max(chromium.evaluate(OVERFLOW)) <= 0.5
    ground = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark


def test_a_value_between_two_that_are_missing_is_drawn(chromium, running):
    chromium.open(running.address)
    drawn = chromium.evaluate("""(() => {
        const series = [{name: "a", values: [1, null, 2, 3, null, 4]}];
        const chart = {id: "x", title: "x", x: [0, 1, 2, 3, 4, 5], series: series};
        const figure = figureOf(chart);
        document.body.append(figure);
        draw(figure, chart);
        const dots = Array.from(figure.querySelectorAll("circle"), dot => Number(dot.getAttribute("cx")));
        const lines = figure.querySelector("path").getTotalLength();
        return [dots.length, dots[1] > dots[0], lines > 0];
    })()""")
    assert drawn == [2, True, True]


def test_names_from_data_run_nothing(chromium, running):
    chromium.open(running.address)
    assert chromium.evaluate("typeof window.hacked") == "undefined"
    assert chromium.evaluate("document.querySelector('#drift td').textContent") == "<script>window.hacked=1</script>"
    chromium.open(f"{running.address}/docs")
    assert chromium.evaluate("typeof window.hacked") == "undefined"
    assert chromium.complaints() == []


def test_it_follows(chromium, running, service):
    chromium.open(running.address)
    count = "document.querySelectorAll('#facts dd')[4].textContent"
    before = chromium.evaluate(count)
    service.traffic.request(200, 0.001, 1)
    chromium.evaluate("ask()")
    assert int(chromium.evaluate(count)) == int(before) + 1


def test_a_server_that_is_gone_is_said(chromium, service):
    made = Running(make_app(service, api_key=None))
    chromium.open(made.address)
    made.close()
    chromium.evaluate("ask()")
    assert "the server does not answer" in chromium.evaluate("document.getElementById('state').textContent")


def test_a_key_is_asked_for(chromium, service):
    made = Running(make_app(service, api_key="secret"))
    chromium.open(made.address)
    assert chromium.evaluate("getComputedStyle(document.getElementById('key')).display") == "flex"
    chromium.evaluate("""(async () => {
        document.querySelector('#key input').value = 'secret';
        document.querySelector('#key').requestSubmit();
        await ask();
    })()""")
    assert chromium.evaluate("document.querySelectorAll('#facts dd').length") == 8
    assert chromium.evaluate("getComputedStyle(document.getElementById('key')).display") == "none"
    made.close()


def test_the_form_of_the_description_works(chromium, running):
    chromium.open(f"{running.address}/docs", width=390)
    chromium.evaluate("""(async () => {
        document.getElementById('form').requestSubmit();
        while (!/scores|detail/.test(document.getElementById('answer').textContent))
            await new Promise(done => setTimeout(done, 20));
    })()""")
    answer = chromium.evaluate("document.getElementById('answer').textContent")
    assert answer.startswith("200")
    assert '"scores"' in answer
    assert max(chromium.evaluate(OVERFLOW)) <= 0.5
