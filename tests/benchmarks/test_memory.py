"""The memory benchmark runs and writes what it saw."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.memory import DrawnStream

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident set from Linux's /proc")
def test_memory_is_watched_along_the_stream(tmp_path):
    out = tmp_path / "memory.json"
    command = [sys.executable, SCRIPT, "--rows", "3000", "--points", "3", "--batch-size", "500", "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    seen = json.loads(out.read_text())["points"]
    assert [point["rows"] for point in seen] == [500, 1000, 2000, 3000]
    assert all(point["resident_megabytes"] > 50 for point in seen)


def test_rows_are_those_of_the_stream_whoever_draws_them():
    stream = DrawnStream(1000, processes=1, seconds=60.0)
    drawn = list(stream.iter_batches(stream.schema, 300))
    assert [len(batch) for batch in drawn] == [300, 300, 300, 100]
    np.testing.assert_array_equal(drawn[3].categorical, stream.batch(900, 1000).categorical)
    stream.seconds = 0.0
    assert len(list(stream.iter_batches(stream.schema, 300))) == 1
