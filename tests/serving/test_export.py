"""An exported run scores in an interpreter that cannot import daes, and scores as daes does."""

import json
import math
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch

from daes.model import CTRModel
from daes.model.export import model_digest
from daes.serving.export import export_run
from daes.serving.rows import hash_text
from daes.stream.batch import batch_from_table
from daes.stream.schema import Schema

pytest.importorskip("onnxruntime")

BEFORE = """
import importlib.util, json, sys

class NoDaes:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "daes":
            raise ImportError("daes is not installed here")

sys.meta_path.insert(0, NoDaes())
model_file, rows_file, requests_file = sys.argv[1:]
spec = importlib.util.spec_from_file_location("model_rows", rows_file)
model_rows = importlib.util.module_from_spec(spec)
spec.loader.exec_module(model_rows)
requests = json.load(open(requests_file))

def inputs(columns):
    import numpy as np
    numerical, categorical = model_rows.prepare(requests, columns["numerical"], columns["categorical"])
    with np.errstate(over="ignore"):
        return {"numerical": np.array(numerical, np.float64).astype(np.float32), "categorical": np.array(categorical)}
"""
SCORE = {
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(model_file)
metadata = session.get_modelmeta().custom_metadata_map
given = inputs(json.loads(metadata["daes.schema"]))
(scores,) = session.run(["probability"], given)
""",
    "torch": """
import torch
found = {"daes.json": ""}
program = torch.export.load(model_file, extra_files=found)
metadata = json.loads(found["daes.json"])
given = inputs(json.loads(metadata["daes.schema"]))
with torch.no_grad():
    scores = program.module()(**{name: torch.from_numpy(array) for name, array in given.items()})[1].numpy()
""",
}
AFTER = """
assert "daes" not in sys.modules
hashes = json.loads(metadata["daes.hashes"])
assert {text: model_rows.hash_text(text) for text in hashes} == hashes
print(json.dumps({"scores": scores.tolist(), "metadata": metadata}))
"""


def expected_scores(model, requests):
    """The scores of daes, each row read as a table of its own: its values may be of any type."""
    schema = Schema(None, model.schema.numerical, model.schema.categorical)
    scores = []
    for row in requests:
        columns = {}
        for name in (*schema.numerical, *schema.categorical):
            value = row.get(name)
            if name in schema.numerical and value is not None:
                value = math.inf if isinstance(value, int) and value > 1e300 else float(value)
            columns[name] = [value]
        scores.append(model.predict_proba(batch_from_table(pa.table(columns), schema))[0])
    return scores


@pytest.fixture(scope="module")
def program(trained, tmp_path_factory):
    """A run as a torch program: where it is, and what was exported."""
    out = tmp_path_factory.mktemp("torch") / "model.pt2"
    return out, *export_run(trained, out)


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_scores_without_daes_are_those_of_daes(kind, trained, requests, tmp_path, request):
    if kind == "onnx":
        out = tmp_path / "model.onnx"
        loaded, beside = export_run(trained, out)
    else:
        out, loaded, beside = request.getfixturevalue("program")
    (tmp_path / "requests.json").write_text(json.dumps(requests))
    arguments = [str(path) for path in (out, beside, tmp_path / "requests.json")]
    script = BEFORE + SCORE[kind] + AFTER
    done = subprocess.run(
        [sys.executable, "-IB", "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    model = CTRModel.from_pretrained(trained / "model")
    expected = expected_scores(model, requests)
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-5)
    assert np.std(expected) > 0.05
    metadata = found["metadata"]
    assert metadata["daes.format"] == f"daes.{kind}"
    assert Schema.from_json(metadata["daes.schema"]) == model.schema
    assert metadata["daes.sha256"] == model_digest(model.freeze()) == model_digest(loaded.model)
    assert {path.name for path in out.parent.iterdir()} - {"requests.json"} == {out.name, "model_rows.py"}


def test_any_number_of_rows(trained, program):
    scores = torch.export.load(program[0]).module()
    model = CTRModel.from_pretrained(trained / "model")
    for rows in (0, 1, 2, 300):
        numerical, categorical = torch.randn(rows, 2), torch.randint(0, 9, (rows, 2))
        with torch.no_grad():
            found = scores(numerical=numerical, categorical=categorical)
            torch.testing.assert_close(found[0], model(numerical, categorical))


def test_rows_for_an_exported_model_lack_what_was_missing_in_training(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["data"]["options"] = {"missing": ["", "-999"], "missing_categories": ["", 'no "city"']}
    (run / "config.json").write_text(json.dumps(config))
    _, beside = export_run(run, tmp_path / "model.pt2")
    prepare = runpy.run_path(str(beside))["prepare"]
    numbers, hashes = prepare(
        [{"price": -999, "city": 'no "city"'}, {"price": 2.5, "city": "-999"}], ["price"], ["city"]
    )
    assert math.isnan(numbers[0][0])
    assert (numbers[1], hashes) == ([2.5], [[0], [hash_text("-999")]])


@pytest.mark.parametrize(
    ("out", "kind", "message"),
    [
        ("model.bin", None, r"out must end in .onnx or .pt2, or the format must be given, got .*model.bin"),
        ("model.onnx", "onix", r"format must be among onnx, torch, got 'onix' \(did you mean 'onnx'\?\)"),
    ],
)
def test_what_cannot_be_written(trained, tmp_path, out, kind, message):
    with pytest.raises(ValueError, match=message):
        export_run(trained, tmp_path / out, kind)
    assert not list(tmp_path.iterdir())
