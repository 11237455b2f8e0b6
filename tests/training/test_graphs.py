"""Recorded steps equal steps that are not: on a CUDA device, and on the CPU with a stand-in for the graph."""

import os
import warnings
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from daes.backbone import BACKBONES
from daes.backbone.fnn import FNN
from daes.embedding import METHODS
from daes.model import CTRModel
from daes.simulation import AdStream
from daes.storage.checkpoint import CheckpointStore
from daes.stream.batch import Batch
from daes.stream.source import BatchSource
from daes.training.config import TrainConfig
from daes.training.graphs import GraphRecorder
from daes.training.step import TrainingStep, _can_record
from daes.training.trainer import StreamTrainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ROWS, BATCH = 3000, 200
LEARN = ["_differentiate", "end_step"]
"""The functions that are recorded along a stream; `_logits` too where scoring is a forward of its own."""
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products, if set before the first


@pytest.fixture(scope="module")
def stream():
    return AdStream(num_rows=ROWS, seed=0)


def recorded_functions(step):
    """The names of the functions that were recorded."""
    return {key[0] for key in step._recorder._recordings}


def run(stream, graphs, method="daes", backbone="deepfm", *, rows=ROWS, weights=False, backbone_options=None, **train):
    """A model after a pass, and the trainer."""
    torch.manual_seed(0)
    batch = stream.batch(0, rows, stream.schema)
    if weights:
        batch = Batch(
            batch.numerical, batch.categorical, batch.label, np.random.default_rng(0).random(rows, dtype=np.float32)
        )
    model = CTRModel.from_sample(
        stream.schema,
        batch[:1000],
        embedding=method,
        backbone=backbone,
        categorical_options={"mode": "vocabulary", "min_count": 2},
        # Without dropout only rounding differs.
        backbone_options={"dropout": 0.0, **(backbone_options or {})} if BACKBONES[backbone].takes_plain else {},
    ).to("cuda")
    config = TrainConfig(**{"batch_size": BATCH, "optimizer": "adam", "cuda_graphs": graphs, **train})
    trainer = StreamTrainer(model, config)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        trainer.run(BatchSource(batch, stream.schema))
    return model, trainer


def assert_alike(stream, **options):
    plain, before = run(stream, False, **options)
    model, trainer = run(stream, True, **options)
    assert recorded_functions(trainer.step) >= set(LEARN)
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
        assert recorded_functions(trainer.step) >= set(LEARN)
        assert trainer.metrics.compute()["logloss"] == pytest.approx(plain.metrics.compute()["logloss"], rel=0.05)


@cuda
def test_a_bad_batch_is_skipped(stream):
    model, trainer = run(stream, True, bad_batch="skip")
    step = trainer.step
    batch = stream.batch(0, BATCH, stream.schema)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    model.backbone.linear.readout.weight.data[0, 0] = torch.nan
    before["backbone.linear.readout.weight"][0, 0] = torch.nan
    assert not step.learn(batch, 0)
    assert "the loss is nan" in step.bad_batches[-1].reason
    for name, tensor in model.named_parameters():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0, equal_nan=True)


@cuda
def test_reallocated_tensors_are_recorded_again(stream):
    model, trainer = run(stream, True)
    first = dict(trainer.step._recorder._recordings)
    weight = model.categorical.weight
    weight.data = weight.data.clone()
    batch = stream.batch(0, BATCH, stream.schema)
    assert trainer.step.learn(batch, 0)
    assert not any(new is old for new in trainer.step._recorder._recordings.values() for old in first.values())
    rows = model.prepare(batch)
    with torch.no_grad():
        logits = model.eval()(*rows.features) + model.correction(*rows.features)
    np.testing.assert_allclose(trainer.step.score(batch), logits.cpu().numpy(), rtol=1e-4, atol=1e-5)


class Waiting(FNN):
    """A backbone that waits for the device."""

    def _logit(self, fields, plain):
        logit = super()._logit(fields, plain)
        return logit * (1.0 if float(logit.sum().item()) < 1e9 else 2.0)


@cuda
def test_a_step_that_waits_for_the_device_is_not_recorded(stream):
    batch = stream.batch(0, ROWS, stream.schema)
    torch.manual_seed(0)
    model = CTRModel.from_sample(stream.schema, batch[:1000], embedding="daes", backbone="fnn")
    model.backbone = Waiting(model.backbone.num_fields, model.dim, plain_dim=model.backbone.plain_dim)
    step = TrainingStep(model.to("cuda"), TrainConfig(batch_size=BATCH, optimizer="adam"))
    stream_before = torch.cuda.current_stream()
    with pytest.warns(RuntimeWarning, match="not recorded as CUDA graphs"):
        assert step.learn(batch[:BATCH], 0)
    for start in range(BATCH, ROWS - BATCH, BATCH):
        assert step.learn(batch[start : start + BATCH], start)
    assert step._recorder.failed
    assert torch.cuda.current_stream() == stream_before


@pytest.fixture
def deterministic():
    """Only kernels that give the same bits every time: gradients of tables are otherwise summed in any order."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@cuda
def test_an_interrupted_run_ends_with_the_same_bits(stream, tmp_path, deterministic, interrupted):
    batch = stream.batch(0, ROWS, stream.schema)
    states = []
    for folder, stops in (("whole", [None]), ("parts", [8, None])):
        for count in stops:
            torch.manual_seed(0)
            model = CTRModel.from_sample(stream.schema, batch[:1000], embedding="daes", backbone="deepfm").to("cuda")
            config = TrainConfig(batch_size=BATCH, optimizer="adam", checkpoint_every=5 * BATCH)
            stopping = nullcontext() if count is None else interrupted(batches=count)
            with CheckpointStore(tmp_path / folder, keep=1) as store, stopping as stop:
                trainer = StreamTrainer(model, config, store=store, callbacks=[] if stop is None else [stop])
                trainer.run(BatchSource(batch, stream.schema))
            assert recorded_functions(trainer.step) >= set(LEARN)
        states.append(model.state_dict())
    for name, tensor in states[0].items():
        assert torch.equal(states[1][name], tensor), name


@cuda
def test_a_last_batch_that_is_not_full_is_not_recorded(stream):
    _, trainer = run(stream, True, rows=ROWS - 77)
    assert trainer.metrics.compute()["rows"] == ROWS - 77


def test_only_a_cuda_device_records(stream):
    model = CTRModel(stream.schema, "daes", "fnn", sizes=100)
    assert not _can_record(model, TrainConfig())
    assert TrainingStep(model, TrainConfig())._recorder is None


class StandIn:
    """In place of a graph: replaying takes the step again."""

    def __init__(self, graphs, step, output):
        self.graphs, self.step, self.output = graphs, step, output

    def replay(self):
        before = {parameter: parameter.grad for parameter in self.graphs.model.parameters()}
        self.output.copy_(self.step().detach())
        recorded = [pair for one in self.graphs._recordings.values() if one.graph is self for pair in one.gradients]
        for parameter, gradient in recorded:
            gradient.copy_(parameter.grad)
        for parameter, gradient in before.items():
            parameter.grad = gradient


@pytest.fixture
def recording(monkeypatch):
    """Steps are recorded on the CPU, with stand-ins; what was recorded."""
    found = []

    def record(self, function, *arguments):
        found.append(function.__name__)
        return really_record(self, function, *arguments)

    def capture(self, step):
        output = step().detach().clone()
        return StandIn(self, step, output), output

    really_record = GraphRecorder._record
    monkeypatch.setattr(GraphRecorder, "_record", record)
    monkeypatch.setattr(GraphRecorder, "_capture", capture)
    monkeypatch.setattr("daes.training.graphs.on_cuda", lambda model: True)
    monkeypatch.setattr("daes.training.graphs._restoring", restoring)
    monkeypatch.setattr("daes.training.step.on_cuda", lambda model: True)
    return found


@contextmanager
def restoring(model, changes):
    tensors = [*model.buffers(), *changes]
    before, random = [tensor.detach().clone() for tensor in tensors], torch.get_rng_state()
    yield
    with torch.no_grad():
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old)
    torch.set_rng_state(random)


def make(stream, kind=CTRModel, **config):
    torch.manual_seed(0)
    options = {"mode": "vocabulary", "min_count": 2}
    model = kind(stream.schema, "daes", "fnn", sizes=100, categorical_options=options)
    return TrainingStep(model, TrainConfig(**{"batch_size": BATCH, "optimizer": "adam", **config}))


def batches(stream, count=8):
    return [stream.batch(start, start + BATCH, stream.schema) for start in range(0, count * BATCH, BATCH)]


def weigh(batch):
    return replace(batch, weight=np.linspace(0.5, 1.5, len(batch), dtype=np.float32))


def assert_same_learning(stream, recorded, usual, rows):
    for batch in rows:
        for step in (recorded, usual):
            torch.manual_seed(int(batch.categorical[0, 0]) % 2**31)
            step.score(replace(batch, label=None))
            assert step.learn(batch, 0)
        assert recorded.loss == usual.loss
    for mine, theirs in zip(recorded.model.state_dict().values(), usual.model.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


def test_learning_is_the_same_and_each_step_is_recorded_once(stream, recording, monkeypatch):
    assert_same_learning(stream, make(stream), make(stream, cuda_graphs=False), batches(stream))
    assert recording == ["_logits", *LEARN]


def test_batches_with_weights_have_their_own_recording(stream, recording):
    rows = [weigh(batch) if number % 2 else batch for number, batch in enumerate(batches(stream))]
    assert_same_learning(stream, make(stream), make(stream, cuda_graphs=False), rows)
    # Adam makes its state in a first step, which is not recorded.
    assert recording == ["_logits", "_differentiate", *LEARN, "end_step"]


def test_observing_can_be_off(stream, recording):
    step = make(stream)
    first, second = batches(stream, 2)
    step.learn(first, 0)
    seen = step.model.distributions.count.clone()
    step.observing = False
    step.learn(second, 0)
    assert (step.model.distributions.count == seen).all()
    step.observing = True
    step.learn(second, 0)
    assert (step.model.distributions.count > seen).any()


def test_a_bad_batch_is_refused(stream, recording):
    step = make(stream, bad_batch="skip")
    good, other = batches(stream, 2)
    step.learn(good, 0)
    before = {name: tensor.clone() for name, tensor in step.model.backbone.state_dict().items()}
    step.model.categorical.weight.data.fill_(torch.nan)
    assert not step.learn(other, 7)
    assert step.bad_batches[0].reason == "the loss is nan"
    for name, tensor in step.model.backbone.state_dict().items():
        if tensor.is_floating_point():
            assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("part", ["numerical", "categorical"])
def test_wrong_columns_are_an_error_after_recording_too(stream, recording, part):
    step = make(stream)
    batch = batches(stream, 1)[0]
    step.learn(batch, 0)
    narrow = replace(batch, **{part: getattr(batch, part)[:, :1]})
    for call in (step.score, lambda rows: step.learn(rows, 0)):
        with pytest.raises(ValueError, match=f"batch must have [0-9]+ {part} columns"):
            call(narrow)


def test_a_loss_of_a_subclass_is_used_and_recorded(stream, recording):
    class Tenfold(CTRModel):
        @staticmethod
        def cross_entropy(logits, label, weight=None):
            return 10 * CTRModel.cross_entropy(logits, label, weight)

    step, plain = make(stream, Tenfold), make(stream)
    batch = batches(stream, 1)[0]
    for one in (step, plain):
        torch.manual_seed(0)
        one.learn(batch, 0)
    assert step.loss == pytest.approx(10 * plain.loss)
    assert recording == ["_differentiate", "_differentiate"]


def test_a_frozen_table_stays_as_it_is(stream, recording):
    step = make(stream)
    first, second = batches(stream, 2)
    step.learn(first, 0)
    weight = step.model.categorical.weight.requires_grad_(False)
    before = weight.clone()
    step.optimizers.zero_grad()
    step.learn(second, 0)
    assert torch.equal(weight, before)
    assert recording == ["_differentiate", *LEARN]


def test_hooks_are_called(stream, recording):
    step, calls = make(stream), []
    handle = step.model.backbone.register_forward_hook(lambda *_: calls.append(1))
    rows = batches(stream, 3)
    step.learn(rows[0], 0)
    step.learn(rows[1], 0)
    assert len(calls) == 2
    assert recording == []
    handle.remove()
    step.learn(rows[2], 0)
    assert recording == LEARN


def test_a_step_that_cannot_be_recorded_is_taken_and_observes_once(stream, recording, monkeypatch):
    def fail(self, step):
        step()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(GraphRecorder, "_capture", fail)
    recorded, usual = make(stream), make(stream, cuda_graphs=False)
    with pytest.warns(RuntimeWarning, match="not recorded as CUDA graphs: operation not permitted"):
        recorded.score(batches(stream, 1)[0])
    assert_same_learning(stream, recorded, usual, batches(stream))
    assert recorded._recorder.failed


def test_recording_stops_if_tensors_are_reallocated_all_the_time(stream, recording):
    step = make(stream)
    batch = batches(stream, 1)[0]
    keep = []

    def move():
        weight = step.model.categorical.weight
        keep.append(weight.data)
        weight.data = weight.data.clone()
        assert step.learn(batch, 0)

    for _ in range(20):
        move()
    with pytest.warns(RuntimeWarning, match="recorded more than 40 times"):
        move()
    move()
    assert len(recording) == 41  # the last one is refused


def test_a_step_can_be_copied(stream, recording):
    step = make(stream)
    batch = batches(stream, 1)[0]
    step.learn(batch, 0)
    copy = deepcopy(step)
    assert copy._recorder._recordings == {}
    assert copy._recorder.model is copy.model
    np.testing.assert_array_equal(copy.score(batch), step.score(batch))
