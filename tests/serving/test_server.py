"""The server process."""

import os
import subprocess
import sys
import time
from pathlib import Path

# A server that ends while its model is being compiled, by a program that only notes its number.
SCRIPT = """
import sys, time
from pathlib import Path
from daes.serving import server

program, noted = Path(sys.argv[1]), Path(sys.argv[2])
program.write_text(f"#!/bin/sh\\necho $$ > {noted}.new && mv {noted}.new {noted}\\nexec sleep 60\\n")
program.chmod(0o755)
server.compiler, server.sys.executable = (lambda: "g++"), str(program)
server.compile_in_background(None, "run")
while not noted.exists():
    time.sleep(0.01)
"""


def test_compiling_ends_with_the_server(tmp_path):
    noted = tmp_path / "noted"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "program"), str(noted)]
    subprocess.run(command, env=environment, check=True, timeout=60)
    number, until = int(noted.read_text()), time.monotonic() + 10
    while is_running(number) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_running(number)


def is_running(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
