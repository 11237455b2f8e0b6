"""What a device does of a step's end is what the host would do: with kernels in Triton's interpreter, or on CUDA."""

import numpy as np
import pytest
import torch

from daes import native
from daes.embedding import kernels
from daes.evidence import Evidence
from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.training.ahead import Plan, plan, take_in
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("small_tiles")
SCHEMA = Schema("click", numerical=("price", "age"), categorical=("city", "device"))
ROWS = 40


def make_model(method="daes", **options):
    torch.manual_seed(0)
    arguments = {"reservoir_size": 50} if method == "daes" else {}
    return CTRModel(
        SCHEMA, method, "fnn", dim=4, sizes=10, evidence=Evidence(bins=4, pair_bins=2, sample_rows=30),
        embedding_options=arguments, backbone_options={"hidden": (4,)}, **options,
    )  # fmt: skip


def batch_of(seed):
    random = np.random.default_rng(seed)
    numbers = random.lognormal(size=(ROWS, 2)).astype(np.float32)
    numbers[random.random(numbers.shape) < 0.1] = np.nan
    ids = random.integers(1, 9, (ROWS, 2))
    return Batch(numbers, ids, (random.random(ROWS) < 0.3).astype(np.float32))


def test_a_stream_is_taken_in_as_by_the_host(kernel_device, monkeypatch):
    mine, theirs = make_model().to(kernel_device), make_model()
    plans = []
    for seed in range(5):
        ours, other = mine.prepare(batch_of(seed)), theirs.prepare(batch_of(seed))
        what = plan(mine, ROWS, observing=True)
        plans.append(what)
        if what is not None:
            take_in(mine, what, ours.numerical, ours.categorical, ours.label)
        if what is None or not what.observe:
            mine.numerical.observe(ours.numerical)
        if what is None:
            mine.count(ours)
        with monkeypatch.context() as plain:
            plain.setattr(kernels, "DEVICES", set())
            theirs.numerical.observe(other.numerical)
            theirs.count(other)
    # 40, 80, 160 rows: bins are cut; 120 rows: the samples are full
    assert plans == [None, None, Plan(True, True, True), None, Plan(True, True, True)]
    for (name, one), other in zip(mine.named_buffers(), theirs.buffers(), strict=True):
        part = name.rsplit(".")[-1]
        if part not in ("knots", "centre", "scale", "pending", "lag"):  # the host refreshes knots feature by feature
            one, other = (one[:, :-1], other[:, :-1]) if part == "slots" else (one, other)
            torch.testing.assert_close(one.cpu(), other, rtol=1e-9, atol=0, msg=name)


VOCABULARY = {"categorical_options": {"mode": "vocabulary"}}


@pytest.mark.parametrize(
    ("method", "options", "count"), [("fe", {}, True), ("daes", VOCABULARY, False), ("efd", {}, True)]
)
def test_what_else_observes_is_left_to_the_host(kernel_device, method, options, count):
    model = make_model(method, **options).to(kernel_device)
    rows = model.prepare(batch_of(0))
    if model.needs_fit:
        model.numerical.fit(rows.numerical)
    model.observe(*rows.features)
    model.observe(*rows.features)
    model.evidence.update(rows.numerical, model.categorical.rows(rows.categorical), rows.label)
    assert plan(model, 1, observing=True) == Plan(count=count)
    assert plan(model, 1, observing=False) == Plan(count=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "adamw", "sgd"])
def test_recorded_steps_end_as_others_do(optimizer):
    steps = [
        TrainingStep(make_model().to("cuda"), TrainConfig(batch_size=ROWS, optimizer=optimizer, cuda_graphs=graphs))
        for graphs in (True, False)
    ]
    for seed in range(12):
        for step in steps:
            assert step.learn(batch_of(seed), 0)
        assert steps[0].loss == pytest.approx(steps[1].loss, rel=1e-4)
    assert {key[0] for key in steps[0]._recorder._recordings} >= {"_differentiate", "end_step"}
    for (name, one), other in zip(
        steps[0].model.state_dict().items(), steps[1].model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, equal_nan=True, msg=name)


def test_without_kernels_the_host_does_it_all(monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    model = make_model()
    assert plan(model, ROWS, observing=True) == Plan()
