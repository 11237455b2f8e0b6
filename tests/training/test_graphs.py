"""Recorded steps do what steps do. Only a CUDA device can show it."""

import warnings

import numpy as np
import pytest
import torch

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.model import CTRModel
from daes.stream.adstream import AdStream
from daes.stream.batch import Batch
from daes.training.config import TrainConfig
from daes.training.learner import Learner, _can_record
from daes.training.trainer import StreamTrainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ROWS, BATCH = 3000, 200


@pytest.fixture(scope="module")
def stream():
    return AdStream(num_rows=ROWS, seed=0)


def run(stream, graphs, method="daes", backbone="deepfm", *, rows=ROWS, weights=False, backbone_options=None, **train):
    """A model after a pass, and the trainer."""
    torch.manual_seed(0)
    batch = stream.batch(0, rows, stream.schema)
    if weights:
        batch = Batch(
            batch.numerical, batch.categorical, batch.label, np.random.default_rng(0).random(rows, dtype=np.float32)
        )
    from daes.training.held import HeldRows

    model = CTRModel.from_sample(
        stream.schema,
        batch[:1000],
        embedding=method,
        backbone=backbone,
        categorical_options={"mode": "vocabulary", "min_count": 2},
        # Dropout draws other numbers in a recorded step.
        backbone_options={"dropout": 0.0, **(backbone_options or {})} if BACKBONES[backbone].takes_raw else {},
    ).to("cuda")
    config = TrainConfig(batch_size=BATCH, cuda_graphs=graphs, **train)
    trainer = StreamTrainer(model, config)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        trainer.run(HeldRows(batch, stream.schema))
    return model, trainer


def assert_alike(stream, **options):
    plain, before = run(stream, False, **options)
    model, trainer = run(stream, True, **options)
    assert trainer.learner._graphs._learn is not None
    assert trainer.learner._graphs._score is not None
    for (name, mine), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    for (name, mine), theirs in zip(model.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, equal_nan=True, msg=name)
    mine, theirs = trainer.metrics.compute(), before.metrics.compute()
    assert mine["logloss"] == pytest.approx(theirs["logloss"], rel=1e-3)
    assert mine["rows"] == theirs["rows"] == ROWS


@cuda
@pytest.mark.parametrize("method", METHODS)
def test_every_method(stream, method):
    assert_alike(stream, method=method)


@cuda
@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name != "deepfm"])
def test_every_backbone(stream, backbone):
    assert_alike(stream, method="daes-gate", backbone=backbone)


@cuda
@pytest.mark.parametrize("options", [{"weights": True}, {"clip_norm": 0.01}, {"bad_batch": "skip"}, {"label_delay": 2}])
def test_every_setting(stream, options):
    assert_alike(stream, **options)


@cuda
def test_amp_and_dropout_are_recorded_too(stream):
    for options in ({"amp": True}, {"backbone_options": {"dropout": 0.5}}):
        _, plain = run(stream, False, **options)
        _, trainer = run(stream, True, **options)
        assert trainer.learner._graphs._learn is not None
        assert trainer.metrics.compute()["logloss"] == pytest.approx(plain.metrics.compute()["logloss"], rel=0.05)


@cuda
def test_a_bad_batch_is_skipped(stream):
    model, trainer = run(stream, True, bad_batch="skip")
    learner = trainer.learner
    batch = stream.batch(0, BATCH, stream.schema)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    model.backbone.linear.readout.weight.data[0, 0] = torch.nan
    before["backbone.linear.readout.weight"][0, 0] = torch.nan
    assert not learner.learn(batch, 0)
    assert "the loss is nan" in learner.bad_batches[-1].reason
    for name, tensor in model.named_parameters():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0, equal_nan=True)


@cuda
def test_tensors_that_move_are_recorded_anew(stream):
    model, trainer = run(stream, True)
    first = trainer.learner._graphs._learn
    weight = model.categorical.weight
    weight.data = weight.data.clone()
    batch = stream.batch(0, BATCH, stream.schema)
    assert trainer.learner.learn(batch, 0)
    assert trainer.learner._graphs._learn is not first
    np.testing.assert_allclose(
        trainer.learner.score(batch), model.eval()(batch).detach().cpu().numpy(), rtol=1e-4, atol=1e-5
    )


@cuda
def test_a_last_batch_that_is_not_full_is_learned_as_usual(stream):
    _, trainer = run(stream, True, rows=ROWS - 77)
    assert trainer.metrics.compute()["rows"] == ROWS - 77


def test_only_a_cuda_device_records(stream):
    model = CTRModel(stream.schema, "daes", "fnn", sizes=100)
    assert not _can_record(model, TrainConfig())
    assert Learner(model, TrainConfig())._graphs is None
