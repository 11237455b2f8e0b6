"""`daes serve` as a process, and what it refuses."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("fastapi")


def post(address, body, key=None):
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    with urllib.request.urlopen(
        urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=60
    ) as answer:
        return json.load(answer)


def test_a_process_that_serves_and_ends(trained, tmp_path):
    key = tmp_path / "key"
    key.write_text("secret\n")
    command = [sys.executable, "-m", "daes", "serve", str(trained), "--port", "0", "--api-key-file", str(key)]
    environment = {**os.environ, "COLUMNS": "300"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            said = ""
            while not (found := re.search(r"serving .* on (http://127.0.0.1:\d+)", said)):
                line = server.stderr.readline()
                assert line, said
                said += line
            with pytest.raises(urllib.error.HTTPError, match="401"):
                post(f"{found[1]}/predict", {"rows": [{}]})
            answer = post(f"{found[1]}/predict", {"rows": [{"price": 2.5, "city": "city 3"}]}, "secret")
            assert 0 < answer["scores"][0] < 1
            assert b"daes-key" in urllib.request.urlopen(found[1], timeout=60).read()
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0
        assert "Traceback" not in server.stderr.read()


def test_what_is_refused(refused, trained, tmp_path, monkeypatch):
    monkeypatch.delenv("DAES_API_KEY", raising=False)
    assert "can be reached by others: set DAES_API_KEY" in refused("serve", trained, "--host", "0.0.0.0")
    monkeypatch.setenv("DAES_API_KEY", " ")
    assert "the API key must not be empty" in refused("serve", trained)
    monkeypatch.delenv("DAES_API_KEY")
    assert "there is no folder" in refused("serve", tmp_path / "nosuch")
    said = refused("serve", trained, "--port", "99999")
    assert "a whole number of at most 65535 is needed, got 99999" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot serve on 127.0.0.1 port {port}" in refused("serve", trained, "--port", port, code=1)


def test_without_the_extra(refused, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    said = refused("serve", trained, code=1)
    assert said == "daes: fastapi is needed here and not installed: pip install 'daes[serve]'\n"
