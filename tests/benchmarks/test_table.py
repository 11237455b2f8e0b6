"""The tables of benchmarks/README.md are those of docs/results, and a new one can be compared with them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.table import README, RESULTS, Entry, read, table, write

from benchmarks import guard

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_readme_shows_what_was_measured(name):
    shown = README.read_text(encoding="utf-8").partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    assert table(read(RESULTS / f"speed-{name}.json")) in shown


def test_what_was_not_measured_again_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["python -m benchmarks cpu", "--data", "/somewhere/rows.parquet"])
    out = tmp_path / "new" / "speed.json"
    write("cpu", [Entry("a", 1.0, "×"), Entry("b", 2.0, "s", 3.0, higher=False)], {}, out)
    write("cpu", [Entry("b", 4.0, "s", 3.0, higher=False), Entry("c", 5.0, "×")], {}, out)
    assert [(entry.what, entry.value, entry.reached) for entry in read(out)] == [
        ("a", 1.0, None),
        ("b", 4.0, False),
        ("c", 5.0, None),
    ]
    assert json.loads(out.read_text(encoding="utf-8"))["command"] == "python -m benchmarks cpu --data rows.parquet"


def test_the_guard_finds_ratios_that_got_worse():
    before = [Entry("up", 1.0, "×"), Entry("down", 1.0, "×", higher=False), Entry("seconds", 1.0, "s")]
    level = [Entry("up", 0.9, "×"), Entry("down", 1.1, "×", higher=False), Entry("seconds", 9.0, "s")]
    assert guard.worse(before, level, tolerance=0.15) == []
    now = [Entry("up", 0.8, "×"), Entry("down", 1.2, "×", higher=False), Entry("new", 0.1, "×")]
    assert guard.worse(before, now, tolerance=0.15) == ["up: 0.8 × after 1 ×", "down: 1.2 × after 1 ×"]


def test_the_scripts_are_listed(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "benchmarks", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    names = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")} - {"table"}
    listed = run("--help")
    assert listed.returncode == 0
    assert names == {line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")}
    assert run().stdout == listed.stdout
    wrong = run("nosuch")
    assert (wrong.returncode, wrong.stderr) == (1, "there is no benchmark 'nosuch'\n")
    speeds = RESULTS / "speed-cpu.json"
    same = run("guard", str(speeds), str(speeds))
    assert (same.returncode, same.stdout) == (0, "no ratio got worse\n")
    part = tmp_path / "part.json"
    write("cpu", [entry for entry in read(speeds) if "FNN" not in entry.what], {}, part)
    fewer = run("guard", str(speeds), str(part)).stdout.splitlines()
    assert fewer[0] == "no ratio got worse"
    assert fewer[1].startswith("not measured: FNN, batch 8192: a pass over the fastest peer; ")
