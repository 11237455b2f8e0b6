import json
import subprocess
import sys
from pathlib import Path

from daes.embedding import METHODS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "layers.py"
PHASES = ("eval forward", "train forward", "train forward + backward")


def test_it_runs_and_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "folder" / "layers.json"
    small = ["--rows", "64", "--features", "2", "--dim", "4", "--bins", "3", "--seen", "200", "--repeat", "1"]
    command = [sys.executable, str(SCRIPT), *small, "--device", "cpu", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(out.read_text(encoding="utf-8"))
    assert (result["rows"], result["features"], result["dim"], result["bins"]) == (64, 2, 4, 3)
    layers = {layer["name"]: layer for layer in result["layers"]}
    # Documents that were run in this process before may have registered methods of their own.
    own = {name for name, entry in METHODS.items() if entry.cls.__module__.startswith("daes.")}
    assert own <= layers.keys()
    assert {"rtdl's PLE", "daes-gate, 160 contexts", "daes-tran, a context a row"} <= layers.keys()
    assert set(layers["efd"]["ratio"].values()) == {1.0}
    for name, layer in layers.items():
        assert name in done.stdout
        assert layer["synchronises"] is None
        for phase in PHASES:
            assert layer["milliseconds"][phase] > 0


def test_bad_sizes_are_refused() -> None:
    command = [sys.executable, str(SCRIPT), "--rows", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a positive whole number is needed, got 0" in done.stderr
