"""The memory benchmark runs and writes what it saw."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident set from Linux's /proc")
def test_memory_is_watched_along_the_stream(tmp_path):
    out = tmp_path / "memory.json"
    command = [sys.executable, SCRIPT, "--rows", "3000", "--points", "3", "--batch-size", "500", "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    seen = json.loads(out.read_text())["resident_megabytes"]
    assert [rows for rows, _ in seen] == [500, 1000, 2000, 3000]
    assert all(megabytes > 50 for _, megabytes in seen)
