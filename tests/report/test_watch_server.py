"""The live page of a run in a browser."""

import shutil
import socket
import struct
import threading
import urllib.error
import urllib.request

import pytest

from daes.report.watch_server import watch_server


@pytest.fixture
def watched(gate_run, tmp_path):
    folder = shutil.copytree(gate_run, tmp_path / "run")
    with watch_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_all_is_drawn_and_fits(chromium, watched, width, dark):
    chromium.open(watched[1], width=width, dark=dark)
    assert chromium.complaints() == []
    charts = "Array.from(document.querySelectorAll('figure svg'), one => one.getAttribute('aria-label'))"
    assert chromium.evaluate(charts) == ["AUC", "LogLoss", "Click rate", "Rows a second", "Clicked against predicted"]
    assert chromium.evaluate("document.getElementById('lead').textContent").endswith("finished.")
    assert chromium.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    labels = chromium.evaluate("Array.from(document.querySelectorAll('[data-chart=auc] text'), one => one.textContent)")
    assert {"1000", "2000", "3000", "4000"} & set(labels)


def test_a_run_that_is_gone_and_another_path(watched):
    folder, address = watched
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/nothing")
    shutil.rmtree(folder)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{address}/view")


def test_a_client_that_goes_away_and_a_file_of_another_form(watched, capfd):
    folder, address = watched
    host, _, port = address.removeprefix("http://").partition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing it is a reset
            client.sendall(b"GET /view HTTP/1.0\r\n\r\n")
    (folder / "metrics.json").write_text('{"metrics": 3}')
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{address}/view")
    assert capfd.readouterr().err == ""


def test_a_port_that_is_none(gate_run):
    with pytest.raises(OSError, match="cannot serve on port 99999"):
        watch_server(gate_run, 99999)
