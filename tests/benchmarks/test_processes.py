import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "processes.py"


@pytest.mark.parametrize("options", [[], ["--apart"]])
def test_it_runs_and_writes_json(options: list[str], tmp_path: Path) -> None:
    out = tmp_path / "folder" / "processes.json"
    small = ["random:3000", "--skip", "1000", "--batch-size", "100", "--weak", "--processes", "1,2"]
    command = [sys.executable, str(SCRIPT), *small, *options, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(out.read_text(encoding="utf-8"))
    assert (one["processes"], two["processes"], two["apart"]) == (1, 2, bool(options))
    assert (two["auc"] == one["auc"]) is bool(options)  # models apart are trained as one is
    assert (two["exchanges"] == 0) is bool(options)
    for found in (one, two):
        assert 1800 <= found["rows"] <= 2000
        assert found["rows_per_second"] > 0
