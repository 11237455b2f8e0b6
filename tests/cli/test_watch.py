"""`daes watch` as a process."""

import json
import re
import signal
import subprocess
import sys
import urllib.request


def test_a_process_that_shows_a_run(trained):
    command = [sys.executable, "-m", "daes", "watch", str(trained), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            while not (found := re.search(r"http://127.0.0.1:\d+", line := server.stderr.readline())):
                assert line
            address = found[0]
            with urllib.request.urlopen(f"{address}/view", timeout=60) as answer:
                assert json.load(answer)["lead"].endswith("; finished.")
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert b"The page asks for new numbers" in answer.read()
        finally:
            server.send_signal(signal.SIGTERM)  # a process in the background may be deaf to SIGINT
        assert server.wait(timeout=60) == 0


def test_what_is_refused(refused, tmp_path):
    assert "no run in" in refused("watch", tmp_path)
