import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_load_begins_when_the_server_is_there(tmp_path):
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    out = tmp_path / "load.json"
    options = ["--rows", "1000", "--load", "1.5", "--reload", "0.5", "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks", "serving", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert found["failed"] == 0
    assert found["requests"] > 0
    assert found["checkpoints_written"] >= 1
