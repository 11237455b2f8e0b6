import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "estimators.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmarks_estimators", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_it_runs_and_writes_json(tmp_path):
    out = tmp_path / "folder" / "estimators.json"
    command = [sys.executable, str(SCRIPT), "--lengths", "20000", "--repeat", "1", "--size", "1000", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Targets of JRS exact, measured on 20,000 values (the targets are meant for 40,000,000)" in done.stdout
    result = json.loads(out.read_text(encoding="utf-8"))
    (stream,) = result["streams"]
    assert stream["length"] == 20_000
    rows = {row["name"]: row for row in stream["rows"]}
    assert rows["NaN scan"]["times_scan"] == rows["DataSketches KLL k=200"]["speed_up_over_kll"] == 1.0
    assert rows["NaN scan"]["max_rank_error"] is None
    assert 0 < rows["JRS exact"]["max_rank_error"] < 1.63 / np.sqrt(1000)  # Kolmogorov's 99 %
    assert rows["JRS exact"]["max_rank_error"] == rows["JRS exact, read each batch"]["max_rank_error"]
    assert rows["JRS exact"]["state_bytes"] == 8000
    for row in rows.values():
        assert row["name"] in done.stdout
        assert row["values_per_second"] == pytest.approx(20_000 / row["seconds"])
    assert [item["wanted"] for item in result["targets"]["items"]] == [10.0, 8.0, 0.004]


def test_rank_errors_are_those_of_the_whole_stream(benchmark):
    length, seed = 600_000, 3  # more than one chunk
    estimators = [None, benchmark.JumpReservoir(500), benchmark.GKSketch(0.01)]
    values = np.concatenate(list(benchmark.chunks(length, seed)))
    assert values.size == length
    for estimator in estimators[1:]:
        estimator.update(values)
    nothing, *errors = benchmark._rank_errors(estimators, length, seed)
    assert nothing is None
    for estimator, error in zip(estimators[1:], errors, strict=True):
        ranks = [(values <= quantile).mean() for quantile in estimator.quantile(benchmark.LEVELS)]
        assert error == pytest.approx(np.abs(ranks - benchmark.LEVELS).max(), abs=1e-12)


def test_targets_are_judged_both_ways(benchmark):
    def row(**measured):
        plain = {"seconds": 1.0, "values_per_second": 1.0, "state_bytes": 8}
        return benchmark.Row(name="JRS exact", **plain, **measured)

    good = benchmark.judge([row(times_scan=8.0, speed_up_over_kll=10.0, max_rank_error=0.004)])
    bad = benchmark.judge([row(times_scan=8.1, speed_up_over_kll=9.9, max_rank_error=0.0041)])
    assert [target.reached for target in good] == [True] * 3
    assert [target.reached for target in bad] == [False] * 3


def test_a_length_must_be_positive():
    done = subprocess.run([sys.executable, str(SCRIPT), "--lengths", "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a positive whole number is needed, got 0" in done.stderr
