import errno
import os
import threading
from collections import deque
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from daes import native
from daes.model import CTRModel
from daes.native import threads
from daes.simulation import AdStream
from daes.storage.checkpoint import CheckpointError, CheckpointStore, CheckpointWarning
from daes.stream.cursor import BatchError
from daes.stream.dataset import Dataset
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema
from daes.stream.source import BatchSource, TableSource
from daes.training import trainer as trainer_module
from daes.training.config import TrainConfig
from daes.training.step import MAX_CONSECUTIVE_BAD, TrainingError, TrainingStep
from daes.training.trainer import StreamTrainer, _core_to_read

CONFIG = TrainConfig(batch_size=100, optimizer="adam", learning_rate=0.01, window=500)


class Kept:
    """A callback that keeps what it is given."""

    def __init__(self):
        self.logits = []
        self.rows = []

    def __call__(self, trainer, batch, logits):
        self.logits.append(logits)
        self.rows.append(trainer.rows)


def oracle(model, rows, delay=0, size=100, rate=0.01, never=()):
    """Score, learn, then observe, the first batch before it is learned: written out, with two forwards."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    waiting = deque()
    scored = []
    observed = False

    def scores(features):
        """Errors of rows before correct a score where they are known at once."""
        return model(*features) + (0 if delay else model.correction(*features))

    def learn():
        nonlocal observed
        number, batch = waiting.popleft()
        if number in never:
            return
        features = torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical)
        if not observed:
            model.observe(*features)
        model.train()
        optimizer.zero_grad()
        with model.without_observing():
            logits = scores(features)
        binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.label)).backward()
        optimizer.step()
        if observed:
            model.observe(*features)
        observed = True
        model.count(model.prepare(batch), logits=None if number == 0 else logits.detach())

    torch.manual_seed(0)
    for number, start in enumerate(range(0, len(rows), size)):
        batch = rows[start : start + size]
        model.eval()
        with torch.no_grad():
            logits = scores((torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical)))
        scored.append(logits.numpy())
        waiting.append((number, batch))
        if len(waiting) > delay:
            learn()
    while waiting:
        learn()
    return scored


def assert_same(left, right):
    ours, theirs = left.state_dict(), right.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("method", ["daes", "fe"])
def test_every_batch_is_scored_before_it_is_learned_and_learned_after_the_delay(
    make_rows, make_model, schema, method, delay
):
    rows, kept = make_rows(1050), Kept()
    model, other = make_model(method), make_model(method)
    trainer = StreamTrainer(model, replace(CONFIG, label_delay=delay), callbacks=[kept])
    result = trainer.run(BatchSource(rows, schema))
    expected = oracle(other, rows, delay)
    assert len(kept.logits) == 11
    for ours, theirs in zip(kept.logits, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert_same(model, other)
    assert result.rows == 1050
    assert kept.rows[-2:] == [1000, 1050]


@pytest.mark.parametrize("delay", [0, 3])
def test_a_batch_is_moved_to_the_device_once(make_rows, make_model, schema, monkeypatch, delay):
    moved, plain = [], CTRModel.prepare
    monkeypatch.setattr(CTRModel, "prepare", lambda self, batch: moved.append(len(batch)) or plain(self, batch))
    StreamTrainer(make_model(), replace(CONFIG, label_delay=delay)).run(BatchSource(make_rows(1050), schema))
    assert moved == [100] * 10 + [50]


def test_metrics_are_those_of_the_scores_before_training(make_rows, make_model, schema):
    rows, kept = make_rows(2000), Kept()
    result = StreamTrainer(make_model(), CONFIG, callbacks=[kept]).run(BatchSource(rows, schema))
    scores = np.concatenate(kept.logits).astype(np.float64)
    chances = 1 / (1 + np.exp(-scores))
    assert result.metrics["auc"] == pytest.approx(roc_auc_score(rows.label, scores), abs=1e-4)
    assert result.metrics["logloss"] == pytest.approx(log_loss(rows.label, chances), rel=1e-9)
    assert result.metrics["window_auc"] == pytest.approx(roc_auc_score(rows.label[-500:], scores[-500:]), rel=1e-12)
    assert result.metrics["window_logloss"] == pytest.approx(log_loss(rows.label[-500:], chances[-500:]), rel=1e-9)
    assert result.metrics["auc"] > 0.6


def test_an_offline_method_must_be_fitted(make_rows, make_model, schema):
    rows = make_rows(300)
    with pytest.raises(TrainingError, match="offline and not fitted"):
        StreamTrainer(make_model("efd"), CONFIG).run(BatchSource(rows, schema))
    model = make_model("efd").fit_embedding(rows)
    assert StreamTrainer(model, CONFIG).run(BatchSource(rows, schema)).rows == 300


def test_an_empty_stream_gives_nothing(make_rows, make_model, schema):
    result = StreamTrainer(make_model(), CONFIG).run(BatchSource(make_rows(1)[:0], schema))
    assert (result.rows, result.history, result.bad_batches) == (0, [], [])
    assert np.isnan(result.metrics["auc"])


def test_gradients_are_clipped_to_a_norm(make_rows, make_model, schema):
    rows = make_rows(100)
    config = TrainConfig(batch_size=100, optimizer="sgd", learning_rate=1.0, clip_norm=0.01)
    model, other = make_model("fe"), make_model("fe")
    StreamTrainer(model, config).run(BatchSource(rows, schema))
    torch.manual_seed(0)
    other.train()
    other.loss(rows).backward()
    norm = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.01)
    assert norm > 0.05
    for mine, theirs, start in zip(model.parameters(), other.parameters(), make_model("fe").parameters(), strict=True):
        step = 0 if theirs.grad is None else theirs.grad
        torch.testing.assert_close(mine.detach(), start.detach() - step, rtol=1e-5, atol=1e-9)


def test_l2_as_weight_decay_is_the_gradient_of_the_penalty(make_rows, make_model, schema):
    rows = make_rows(200)
    model, other = make_model("fe", l2=0.05), make_model("fe", l2=0.05)
    start = [parameter.detach().clone() for parameter in other.parameters()]
    StreamTrainer(model, TrainConfig(batch_size=200, optimizer="sgd", learning_rate=0.1)).run(BatchSource(rows, schema))
    torch.manual_seed(0)
    other.train()
    other.loss(rows).backward()
    for mine, theirs, before in zip(model.parameters(), other.parameters(), start, strict=True):
        torch.testing.assert_close(mine.detach(), before - 0.1 * theirs.grad, rtol=1e-5, atol=1e-8)


def spoil(model, which, kind="loss"):
    """Make the model fail in training on batches whose first price is among `which`."""
    plain, seen = model.cross_entropy, []
    linear = next(module for module in model.backbone.modules() if isinstance(module, nn.Linear))

    def loss(logits, label, weight=None):
        value = plain(logits, label, weight)
        bad = float(seen[0]) in which
        if bad and kind == "loss":
            return value * torch.nan
        return value * (1e8 if bad and kind == "gradient" else 1)

    def forward(module, inputs, output):
        bad = model.training and any(float(price) in which for price in seen)
        return output * torch.nan if bad and kind == "activation" else None

    def before(module, inputs):
        seen[:] = [inputs[0][0, 0]]

    model.cross_entropy = loss
    model.register_forward_pre_hook(before)
    linear.register_forward_hook(forward)


@pytest.fixture
def marked(make_rows):
    """Rows whose batches of 100 start with the prices 1000, 1001, …"""
    rows = make_rows(1000)
    rows.numerical[::100, 0] = np.arange(1000, 1010)
    return rows


NOT_FINITE = pytest.mark.parametrize(
    ("kind", "dropout", "reason"),
    [
        ("loss", 0.0, "the loss is nan"),
        ("activation", 0.0, "100 of 100 scores are not finite"),  # the score is that of the step's forward
        ("activation", 0.2, "the loss is nan"),
    ],
)


@NOT_FINITE
def test_a_loss_that_is_not_finite_stops_the_run_with_its_row(marked, make_model, schema, kind, dropout, reason):
    model = make_model(backbone_options={"hidden": (8,), "dropout": dropout})
    spoil(model, {1004.0}, kind)
    with pytest.raises(TrainingError, match=f"the batch at row 400 cannot be learned from: {reason}"):
        StreamTrainer(model, CONFIG).run(BatchSource(marked, schema))


@NOT_FINITE
def test_a_bad_batch_is_skipped_and_reported_and_leaves_no_trace(marked, make_model, schema, kind, dropout, reason):
    options = {"backbone_options": {"hidden": (8,), "dropout": dropout}, "evidence": {"recent": None}}
    model, other = (make_model(**options) for _ in range(2))
    spoil(model, {1004.0, 1007.0}, kind)
    spoil(other, {}, kind)  # nothing, but its network has hooks too, and is called layer by layer
    result = StreamTrainer(model, replace(CONFIG, bad_batch="skip")).run(BatchSource(marked, schema))
    assert [(bad.row, bad.reason) for bad in result.bad_batches] == [(400, reason), (700, reason)]
    assert result.rows == 1000
    assert all(torch.isfinite(tensor).all() for name, tensor in model.state_dict().items() if "_extra" not in name)
    # Dropout draws for the bad batches too; what is left out is the step, and what follows it.
    optimizer = torch.optim.Adam(other.parameters(), lr=0.01, fused=True)
    torch.manual_seed(0)
    for number, start in enumerate(range(0, 1000, 100)):
        rows = other.prepare(marked[start : start + 100])
        statistics = {name: tensor.clone() for name, tensor in other.backbone.named_buffers()}
        other.train()
        optimizer.zero_grad()
        if number == 0:
            other.observe(*rows.features)
        with other.without_observing():
            logits = other(*rows.features)
        other.cross_entropy(logits, *rows.targets).backward()
        if number in (4, 7):
            for name, tensor in other.backbone.named_buffers():
                if tensor.is_floating_point():
                    tensor.copy_(statistics[name])
        else:
            optimizer.step()
            if number:
                other.observe(*rows.features)
            other.count(rows, logits.detach() if number else None)
    assert_same(model, other)


def test_an_exploding_gradient_makes_a_bad_batch(marked, make_model, schema):
    model = make_model()
    spoil(model, {1002.0}, "gradient")
    config = replace(CONFIG, bad_batch="skip", max_norm=1e4)
    result = StreamTrainer(model, config).run(BatchSource(marked, schema))
    assert [bad.row for bad in result.bad_batches] == [200]
    assert "the gradient's norm is" in result.bad_batches[0].reason
    again = make_model()
    spoil(again, {1002.0}, "gradient")
    assert StreamTrainer(again, CONFIG).run(BatchSource(marked, schema)).bad_batches == []


def test_a_delayed_bad_batch_is_reported_with_its_own_row(marked, make_model, schema):
    model = make_model()
    spoil(model, {1004.0, 1009.0})
    config = replace(CONFIG, bad_batch="skip", label_delay=2)
    result = StreamTrainer(model, config).run(BatchSource(marked, schema))
    assert [bad.row for bad in result.bad_batches] == [400, 900]


def test_scores_that_are_not_finite_make_a_bad_batch_that_no_metric_sees(marked, make_model, schema):
    model = make_model()
    with torch.no_grad():
        model.categorical.weight.fill_(torch.nan)
    with pytest.raises(TrainingError, match="at row 0 cannot be learned from: 100 of 100 scores are not finite"):
        StreamTrainer(model, CONFIG).run(BatchSource(marked, schema))
    trainer = StreamTrainer(model, replace(CONFIG, bad_batch="skip"))
    result = trainer.run(BatchSource(marked, schema))
    assert len(result.bad_batches) == 10
    assert result.metrics["rows"] == 0


def test_too_many_bad_batches_in_a_row_end_the_run(make_rows, make_model, schema):
    rows = make_rows(1000)
    model = make_model()
    model.cross_entropy = lambda logits, label, weight: logits.sum() * torch.inf
    trainer = StreamTrainer(model, replace(CONFIG, batch_size=10, bad_batch="skip"))
    with pytest.raises(TrainingError, match=f"{MAX_CONSECUTIVE_BAD + 1} bad batches in a row, the last at row 200"):
        trainer.run(BatchSource(rows, schema))


def table_with_a_label_of_two(count=1000, at=450):
    random = np.random.default_rng(0)
    clicks = random.integers(0, 2, count)
    clicks[at] = 2
    return pa.table({"click": clicks, "price": random.normal(size=count), "city": random.integers(1, 9, count)})


@pytest.mark.parametrize("prefetch", [False, True])
def test_values_that_are_refused_stop_the_run_or_are_left_out(prefetch):
    schema = Schema("click", ("price",), ("city",))
    table = table_with_a_label_of_two()

    def source():
        return Prefetch(TableSource(table)) if prefetch else TableSource(table)

    model = CTRModel(schema, "fe", "fnn", sizes=10)
    with pytest.raises(BatchError, match=r"row 451 of the data: label column 'click' must hold 0 and 1 only, got 2"):
        StreamTrainer(model, CONFIG).run(source())
    result = StreamTrainer(model, replace(CONFIG, bad_batch="skip")).run(source())
    assert result.rows == 900
    assert [bad.row for bad in result.bad_batches] == [400]
    assert result.metrics["rows"] == 900


@pytest.mark.parametrize(("limit", "sizes"), [(250, [100, 100, 50]), (300, [100, 100, 100]), (5000, [100] * 10)])
def test_the_limit_is_exact(make_rows, make_model, schema, limit, sizes):
    seen = []
    source = Dataset(BatchSource(make_rows(1000), schema), schema, limit=limit)
    trainer = StreamTrainer(make_model(), CONFIG, callbacks=[lambda t, batch, _: seen.append(len(batch))])
    result = trainer.run(source)
    assert seen == sizes
    assert result.rows == result.metrics["rows"] == min(limit, 1000)


def test_a_run_that_reached_its_limit_goes_on_with_the_next_row(make_rows, make_model, schema, tmp_path):
    rows = make_rows(1000)
    seen = []
    with CheckpointStore(tmp_path) as store:
        StreamTrainer(make_model(), CONFIG, store=store).run(Dataset(BatchSource(rows, schema), schema, limit=250))
    with CheckpointStore(tmp_path) as store:
        trainer = StreamTrainer(make_model(), CONFIG, store=store, callbacks=[lambda t, b, _: seen.append(b)])
        result = trainer.run(Dataset(BatchSource(rows, schema), schema, limit=600))
    assert result.rows == 600
    np.testing.assert_array_equal(np.concatenate([batch.numerical for batch in seen]), rows.numerical[250:600])


def test_bfloat16_scores_stay_close_and_are_float32(make_rows, make_model, schema):
    rows, plain, half = make_rows(500), Kept(), Kept()
    StreamTrainer(make_model(), CONFIG, callbacks=[plain]).run(BatchSource(rows, schema))
    StreamTrainer(make_model(), replace(CONFIG, amp=True), callbacks=[half]).run(BatchSource(rows, schema))
    ours, theirs = np.concatenate(half.logits), np.concatenate(plain.logits)
    assert ours.dtype == np.float32
    assert not np.array_equal(ours, theirs)
    np.testing.assert_allclose(ours, theirs, atol=0.1)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_sparse_gradients_learn_the_same_as_dense_ones(make_rows, make_model, schema, clip):
    rows = make_rows(1000)
    config = replace(CONFIG, optimizer="sgd", learning_rate=0.5, clip_norm=clip)
    models = []
    for sparse in (False, True):
        models.append(make_model(categorical_options={"sparse": sparse}))
        StreamTrainer(models[-1], config).run(BatchSource(rows, schema))
    for (name, dense), sparse in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(dense, sparse, rtol=1e-5, atol=1e-6, msg=name)


def test_sparse_adam_learns_and_a_sparse_gradient_is_looked_at(marked, make_model, schema):
    model = make_model(categorical_options={"sparse": True})
    start = model.categorical.weight.detach().clone()
    StreamTrainer(model, CONFIG).run(BatchSource(marked, schema))
    assert not torch.equal(start, model.categorical.weight)
    model.categorical.weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(TrainingError, match="the gradient's norm is"):
        StreamTrainer(model, CONFIG).run(BatchSource(marked, schema))


def state_without_clock(trainer):
    state = trainer.state_dict()
    state["seconds"] = 0.0
    state["history"] = [{**record, "seconds": 0.0} for record in state["history"]]
    return state


def assert_equal_trees(left, right, place="state"):
    assert type(left) is type(right), place
    if isinstance(left, dict):
        assert left.keys() == right.keys(), place
        for key in left:
            assert_equal_trees(left[key], right[key], f"{place}.{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), place
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_equal_trees(one, other, f"{place}[{number}]")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), place
    elif isinstance(left, np.ndarray):
        np.testing.assert_array_equal(left, right, err_msg=place)
    else:
        assert left == right or (left != left and right != right), place


@pytest.mark.parametrize(
    ("method", "options", "delay"),
    [
        ("daes", {"categorical_options": {"mode": "vocabulary", "min_count": 2}}, 3),
        ("daes-gate", {"context": ["device"]}, 0),
        ("dae", {"categorical_options": {"sparse": True}}, 1),
    ],
)
def test_an_interrupted_run_ends_with_the_same_bits(
    make_rows, make_model, schema, tmp_path, interrupted, method, options, delay
):
    rows = make_rows(2050)
    config = replace(CONFIG, label_delay=delay, checkpoint_every=300, bad_batch="skip")
    whole = StreamTrainer(make_model(method, **options), config, store=CheckpointStore(tmp_path / "whole"))
    expected = whole.run(BatchSource(rows, schema))
    # Once there is a checkpoint, how the model started does not matter any more.
    for count, seed in ((5, 0), (11, 9), (12, 9), (19, 9)):
        with CheckpointStore(tmp_path / "parts") as store, interrupted(batches=count) as stop:
            model = make_model(method, seed=seed, **options)
            StreamTrainer(model, config, store=store, callbacks=[stop]).run(BatchSource(rows, schema))
    with CheckpointStore(tmp_path / "parts") as store:
        last = StreamTrainer(make_model(method, seed=9, **options), config, store=store)
        result = last.run(BatchSource(rows, schema))
    assert_equal_trees(state_without_clock(last), state_without_clock(whole))
    assert result.metrics == expected.metrics


def test_resume_false_starts_anew(make_rows, make_model, schema, tmp_path):
    rows = make_rows(500)
    with CheckpointStore(tmp_path) as store:
        StreamTrainer(make_model(), CONFIG, store=store).run(Dataset(BatchSource(rows, schema), schema, limit=300))
        trainer = StreamTrainer(make_model(), CONFIG)
        assert trainer.run(BatchSource(rows, schema), resume=False).rows == 500


def test_a_checkpoint_is_due_after_some_minutes_too(make_rows, make_model, schema, tmp_path):
    saved = {}
    for minutes in (1e-9, 60.0):
        config = replace(CONFIG, checkpoint_minutes=minutes)
        with CheckpointStore(tmp_path / str(minutes), keep=100) as store:
            StreamTrainer(make_model(), config, store=store).run(BatchSource(make_rows(500), schema))
            saved[minutes] = store.steps()
    assert saved == {1e-9: [1, 2, 3, 4, 5], 60.0: [5]}


def full_disk(monkeypatch, full):
    """A disk that is full for the files of which `full` says so."""
    genuine = os.fsync

    def fsync(number):
        if full(Path(f"/proc/self/fd/{number}").readlink().name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        genuine(number)

    monkeypatch.setattr(os, "fsync", fsync)


def test_training_goes_on_while_the_disk_is_full(make_rows, make_model, schema, tmp_path, monkeypatch):
    whole = make_model()
    config = replace(CONFIG, checkpoint_every=100)
    StreamTrainer(whole, config).run(BatchSource(make_rows(500), schema))
    model = make_model()
    full_disk(monkeypatch, lambda name: "step-000000000002" in name)
    with (
        CheckpointStore(tmp_path) as store,
        pytest.warns(CheckpointWarning, match=r"step-0+2\.safetensors: No space left on device; .* training continues"),
    ):
        StreamTrainer(model, config, store=store).run(BatchSource(make_rows(500), schema))
    assert store.steps() == [3, 4, 5]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_disk_that_is_full_at_the_end_is_an_error(make_rows, make_model, schema, tmp_path, monkeypatch):
    full_disk(monkeypatch, lambda name: "step-000000000005" in name)
    message = r"step-0+5\.safetensors: No space left on device; the checkpoints of steps \[2, 4\] are unchanged"
    with CheckpointStore(tmp_path) as store:
        trainer = StreamTrainer(make_model(), replace(CONFIG, checkpoint_every=200), store=store)
        with pytest.raises(CheckpointError, match=message):
            trainer.run(BatchSource(make_rows(500), schema))


def test_the_history_keeps_a_bounded_number_of_records(make_rows, make_model, schema, monkeypatch):
    monkeypatch.setattr(trainer_module, "_MAX_RECORDS", 8)
    trainer = StreamTrainer(make_model("fe"), replace(CONFIG, batch_size=10))
    history = trainer.run(BatchSource(make_rows(605), schema)).history
    rows = [record["rows"] for record in history]
    assert 4 <= len(rows) <= 9
    assert rows[-1] == 605


def test_the_history_is_denser_at_the_start(make_rows, make_model, schema):
    trainer = StreamTrainer(make_model("fe"), replace(CONFIG, batch_size=10, window=400))
    history = trainer.run(BatchSource(make_rows(805), schema)).history
    rows = [int(record["rows"]) for record in history]
    assert rows[:8] == list(range(10, 81, 10))
    assert rows[-4:] == [700, 750, 800, 805]
    assert all(later - row <= max(10, min(later, 400) / 8 + 10) for row, later in pairwise(rows))


def test_the_history_by_a_given_interval(make_rows, make_model, schema):
    trainer = StreamTrainer(make_model("fe"), replace(CONFIG, record_every=250))
    history = trainer.run(BatchSource(make_rows(1000), schema)).history
    assert [record["rows"] for record in history] == [300, 500, 800, 1000]
    assert history[-1]["auc"] == trainer.metrics.compute()["auc"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        (
            {"batch_size": 64.0, "window": 1e5},
            "^batch_size must be an integer, got 64.0; window must be an integer, got 100000.0$",
        ),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"clip_norm": -1.0}, "clip_norm must be positive"),
        ({"max_norm": 0.0}, "max_norm must be positive"),
        ({"label_delay": -1}, "label_delay must not be negative"),
        ({"record_every": 0}, "record_every must be positive"),
        ({"window": None}, "^window must be positive, got None$"),
        ({"batch_size": "8"}, "^batch_size must be an integer, got '8'$"),
        ({"seed": 1.0}, r"^seed must be an integer, got 1.0$"),
        ({"label_delay": None}, "^label_delay must not be negative, got None$"),
        ({"bad_batch": "ignore"}, "bad_batch must be 'stop' or 'skip'"),
    ],
)
def test_the_configuration_is_checked(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_l2_needs_an_optimiser_that_decays_every_parameter(make_model):
    with pytest.raises(ValueError, match="l2 is part of the loss and needs adam, adagrad or sgd"):
        StreamTrainer(make_model(l2=0.1), replace(CONFIG, optimizer="adamw"))
    with pytest.raises(ValueError, match="l2 needs dense gradients"):
        StreamTrainer(make_model(l2=0.1, categorical_options={"sparse": True}), CONFIG)
    with pytest.raises(ValueError, match="optimizer must be one of adagrad, adam, adamw, sgd"):
        StreamTrainer(make_model(), replace(CONFIG, optimizer="lion"))


@pytest.mark.parametrize(
    ("backbone", "batch_size", "threads", "expected"),
    [("dcnv2", 4096, 2, 1), ("dcnv2", 4096, 3, 3), ("dcnv2", 128, 2, 2), ("dcn", 4096, 2, 2), ("deepfm", 128, 3, 2)],
)
def test_a_core_is_left_to_the_reader(backbone, batch_size, threads, expected, monkeypatch):
    stream = AdStream(num_rows=10, seed=0)
    step = TrainingStep(CTRModel(stream.schema, backbone=backbone), TrainConfig(batch_size=batch_size))
    now = [threads]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    with _core_to_read(step):
        assert now[-1] == (threads if native._library is None else expected)
    assert now[-1] == threads


class Apart(Kept):
    """A callback that may be called by another thread, and fails at one of the batches."""

    apart = True

    def __init__(self, fails=0):
        super().__init__()
        self.fails, self.threads = fails, set()

    def __call__(self, trainer, batch, logits):
        super().__call__(trainer, batch, logits)
        self.threads.add(threading.current_thread().name)
        if trainer.batches == self.fails:
            raise RuntimeError("cannot count this batch")


@pytest.fixture
def two_threads(monkeypatch):
    """A second thread shares batches of any size, as it does those of many rows where torch has one thread."""
    monkeypatch.setattr(threads, "MANY_ROWS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run_with(make_rows, make_model, schema, callbacks):
    trainer = StreamTrainer(make_model("daes"), CONFIG, callbacks=callbacks)
    trainer.run(BatchSource(make_rows(1050), schema))
    return trainer


def test_callbacks_apart_are_called_beside_the_metrics(make_rows, make_model, schema, two_threads, monkeypatch):
    apart, order = Apart(), []
    others = [lambda trainer, *_: order.append(len(apart.rows)), Kept()]
    shared = run_with(make_rows, make_model, schema, [others[0], apart, others[1]])
    assert len(apart.threads) == 1
    assert "MainThread" not in apart.threads
    assert order == list(range(1, 12))  # the others are called when it is done
    assert apart.rows == others[1].rows
    assert len(shared.history) > 5
    monkeypatch.setattr(threads, "MANY_ROWS", 10**9)
    alone = run_with(make_rows, make_model, schema, [Apart()])
    assert_equal_trees(state_without_clock(shared), state_without_clock(alone))


def test_an_error_of_a_callback_apart_ends_the_run(make_rows, make_model, schema, two_threads):
    kept = Kept()
    with pytest.raises(RuntimeError, match="cannot count this batch"):
        run_with(make_rows, make_model, schema, [Apart(fails=4), kept])
    assert len(kept.rows) == 3
