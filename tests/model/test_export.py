"""Every method and every backbone through ONNX, as whole models; what the file says of itself."""

import json
import sys
from itertools import cycle

import numpy as np
import pytest
import torch

from daes.backbone import BACKBONES
from daes.embedding import METHODS, NotFittedError
from daes.extras import MissingExtraError
from daes.model import CTRModel
from daes.model.export import FORMAT, VERSION
from daes.model.tabled import tabled
from daes.stream.batch import Batch
from daes.stream.hashing import hash_text
from daes.stream.schema import Schema

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SCHEMA = Schema("click", ("price", "age", "stay"), ("city", "device", "hour"))
CELLS = list(zip(METHODS, cycle(BACKBONES), strict=False))
"""An export takes seconds, so every method meets one backbone and every backbone one method at least."""
QUICK = ("efd", "plr", "daes-gate", "daes")


def make_batch(rows=60, seed=0, schema=SCHEMA, hard=False):
    rng = np.random.default_rng(seed)
    numerical = rng.lognormal(sigma=2, size=(rows, schema.num_numerical)).astype(np.float32)
    numerical[rng.random(numerical.shape) < 0.1] = np.nan
    categorical = rng.integers(0, 4, (rows, schema.num_categorical)) * (2**61 - 12345)
    if hard:  # infinite, far outside, unseen
        numerical[::5], numerical[1::5] = np.inf, -np.inf
        numerical[2::5] *= 1e6
        categorical[::3] = 2**63 - 1
    signs = [numerical[:, :1] > 1, categorical[:, :1] == 0]  # clicks that can be learned
    chance = 0.1 + 0.8 * np.concatenate([sign for sign in signs if sign.shape[1]], 1).mean(1)
    return Batch(numerical, categorical, (rng.random(rows) < chance).astype(np.float32))


def trained(embedding="daes-gate", backbone="fnn", schema=SCHEMA, **options):
    torch.manual_seed(0)
    model = CTRModel.from_sample(
        schema, make_batch(schema=schema), embedding=embedding, backbone=backbone, dim=4, **options
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for seed in range(30):
        batch = make_batch(seed=seed, schema=schema)
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
        model.count(model.prepare(batch))
    return model


def run(session, batch):
    given = {"numerical": batch.numerical, "categorical": batch.categorical}
    outputs = session.run(None, {entry.name: given[entry.name] for entry in session.get_inputs()})
    return dict(zip([entry.name for entry in session.get_outputs()], outputs, strict=True))


def assert_same_scores(path, model):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for rows in (50, 1, 0):
        batch = make_batch(rows, seed=11, schema=model.schema, hard=True)
        with torch.no_grad():
            expected = model.eval()(batch).numpy()
        found = run(session, batch)
        assert list(found) == ["logit", "probability"]
        np.testing.assert_allclose(found["logit"], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["probability"], model.predict_proba(batch), rtol=1e-4, atol=1e-5)
        assert rows < 50 or expected.std() > 0.05  # otherwise any model would pass


def test_every_method_and_every_backbone_is_among_the_cells():
    assert {name for name, _ in CELLS} == METHODS.keys()
    assert {name for _, name in CELLS} == BACKBONES.keys()


@pytest.mark.parametrize(
    ("embedding", "backbone"),
    [pytest.param(*cell, marks=[] if cell[0] in QUICK else [pytest.mark.slow]) for cell in CELLS],
)
def test_scores_in_onnxruntime_are_those_of_torch(embedding, backbone, tmp_path):
    model = trained(embedding, backbone)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same_scores(tmp_path / "model.onnx", model)


@pytest.mark.parametrize(("embedding", "operations"), [("daes", 54), ("efd", 42)])
def test_a_model_of_tables_has_few_operations_and_is_exact_at_every_cut(embedding, operations, tmp_path):
    model = trained(embedding, "deepfm", evidence={"choose_after": 64, "pairs": 3, "triples": 3, "pair_cells": 97})
    model.to_onnx(tmp_path / "model.onnx")
    assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= operations
    assert_same_scores(tmp_path / "model.onnx", model)
    cuts = tabled(model.eval()).numbers.cuts.view(3, -1).T.nan_to_num(1.0).numpy()
    numbers = np.concatenate([cuts, np.nextafter(cuts, np.float32(-np.inf)), np.full((9, 3), np.nan, np.float32)])
    batch = Batch(numbers, np.zeros((len(numbers), 3), np.int64))
    found = run(onnxruntime.InferenceSession(tmp_path / "model.onnx"), batch)
    np.testing.assert_allclose(found["probability"], model.predict_proba(batch), rtol=1e-5)


@pytest.mark.parametrize(
    ("schema", "inputs"),
    [
        (Schema("click", SCHEMA.numerical, ()), ["numerical"]),
        (Schema("click", (), SCHEMA.categorical), ["categorical"]),
    ],
)
def test_schemas_of_one_kind_have_one_input(schema, inputs, tmp_path):
    model = trained(schema=schema)
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [entry.name for entry in session.get_inputs()] == inputs
    assert_same_scores(tmp_path / "model.onnx", model)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with a vocabulary, exported while it trains."""
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    model = trained(categorical_options={"mode": "vocabulary", "min_count": 2})
    model.categorical.vocabulary.eval()
    before = model_state(model)
    model.to_onnx(str(path))
    return path, model, before, model_state(model)


def model_state(model):
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return tensors, [part.training for part in model.modules()]


def test_a_vocabulary_goes_with_the_model(exported):
    path, model, _, _ = exported
    assert_same_scores(path, model)


def test_the_model_is_left_as_it_was(exported):
    _, _, (tensors, modes), (tensors_after, modes_after) = exported
    torch.testing.assert_close(tensors_after, tensors, rtol=0, atol=0, equal_nan=True)
    assert modes_after == modes
    assert {True, False} == set(modes)


def test_the_file_says_what_it_is(exported):
    path, model, _, _ = exported
    session = onnxruntime.InferenceSession(path)
    metadata = session.get_modelmeta().custom_metadata_map
    assert (metadata["daes.format"], metadata["daes.version"]) == (FORMAT, str(VERSION))
    assert Schema.from_json(metadata["daes.schema"]) == model.schema
    hashes = json.loads(metadata["daes.hashes"])
    assert hashes == {text: hash_text(text) for text in hashes}
    assert {"", "Zürich, Schweiz"} <= hashes.keys()
    inputs = {entry.name: (entry.type, entry.shape[1]) for entry in session.get_inputs()}
    assert inputs == {"numerical": ("tensor(float)", 3), "categorical": ("tensor(int64)", 3)}
    assert all(isinstance(entry.shape[0], str) for entry in session.get_inputs())


def test_nothing_but_the_file_is_written(exported):
    path, *_ = exported
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]


def test_an_offline_method_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="fit_embedding"):
        CTRModel(SCHEMA, "efd", sizes=5).to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_no_such_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nosuch to write model.onnx to"):
        CTRModel(SCHEMA, sizes=5).to_onnx(tmp_path / "nosuch" / "model.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_packages(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is needed here and not installed: .*daes\[onnx\]"):
        CTRModel(SCHEMA, sizes=5).to_onnx(tmp_path / "model.onnx")


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the one before")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.onnx.ONNXProgram.save", full)
    with pytest.raises(OSError, match="No space left"):
        trained("fe", "lr").to_onnx(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"the one before"
