"""What compiled loops compute of a whole model is what the model computes."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from daes import native
from daes.embedding import CategoricalEmbedding
from daes.model import CTRModel, DeviceBatch
from daes.model.whole import WholeModel, whole_scores
from daes.native import crosses, products, projection, threads
from daes.native import gradients as native_gradients
from daes.native import whole as whole_model
from daes.serving.scorer import probe_batch
from daes.simulation import AdStream
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")

STREAM = AdStream(num_rows=400, seed=0)


def make_model(**options):
    torch.manual_seed(0)
    model = CTRModel(STREAM.schema, **{"dim": 5, "sizes": 50, **options})
    combined = model.evidence.combinations
    with torch.no_grad():
        for parameter in model.parameters():
            if combined is None or parameter is not combined.weight:
                parameter.uniform_(-0.2, 0.2)
    rows = model.prepare(next(STREAM.iter_batches(STREAM.schema, 400)))
    STREAM.seek({"row": 0})
    model.observe(*rows.features)
    model.count(rows)
    if combined is not None:
        combine(combined)
    return model.eval().freeze()


def combine(combined, fields=4):
    """Let combinations of so many fields say something."""
    with torch.no_grad():
        combined.weight.uniform_(-0.2, 0.2)
        combined.fields.random_(-1, fields)
        combined.errors[..., 0].uniform_(-2, 2)
        combined.errors[..., 1].uniform_(0, 3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"backbone": "fnn", "backbone_options": {"hidden": (70, 3)}},
        {"evidence": False},
        {"evidence": {"numbers": False}},
        {"evidence": {"categories": False, "bins": 8, "pair_bins": 8}},
        {"embedding_options": {"plain": [], "linear": None, "knots": 10}},
        {"embedding_options": {"basis": "thermometer"}, "backbone_options": {"dropout": 0.5}},
        {"backbone_options": {"slope": 0.7, "pairs": 0.3}},
        {"backbone": "dcnv2", "backbone_options": {"hidden": (70, 3)}},
        {"backbone": "dcnv2", "evidence": False, "embedding_options": {"plain": [], "basis": "thermometer"}},
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_scores_are_those_of_the_model(options, rows, monkeypatch):
    monkeypatch.setattr(whole_model, "_ROWS_SCORED", 33)
    model = make_model(**options)
    batch = probe_batch(model)[:rows]
    scores = whole_scores(model)
    assert scores is not None
    with torch.no_grad():
        expected = model(batch).numpy()
    np.testing.assert_allclose(scores(batch.numerical, batch.categorical), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"embedding": "fe"},
        {"embedding": "daes-gate"},
        {"backbone": "ipnn"},
        {"backbone": "dcnv2", "backbone_options": {"rank": 3}},
        {"backbone_options": {"batch_norm": True}},
        {"categorical_options": {"mode": "vocabulary"}},
        {"embedding_options": {"linear": "rank"}},
    ],
)
def test_other_models_are_called(options):
    assert whole_scores(make_model(**options)) is None


def test_a_model_in_double_precision_is_called():
    assert whole_scores(make_model().double()) is None


def differentiated(model, *inputs):
    model.zero_grad()
    logits = model(*inputs[:2])
    loss = model.cross_entropy(logits, *inputs[2:])
    loss.backward()
    return loss.detach(), logits.detach()


def gradients(model):
    return {name: one.grad.to_dense().clone() for name, one in model.named_parameters() if one.grad is not None}


def project(monkeypatch, dense):
    """Let vectors be multiplied once, whatever the batch; those of rows from this part of different ids on, or all."""
    monkeypatch.setattr(native_gradients, "_PROJECTED_ROWS", 1000 if dense is None else 1)
    monkeypatch.setattr(projection, "_DISTINCT", 1.0)
    monkeypatch.setattr(projection, "_DENSE", dense)


@pytest.mark.parametrize("rows", [1, 3, 400])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"backbone": "fnn", "backbone_options": {"hidden": (70, 3)}},
        {"evidence": False},
        {"evidence": {"numbers": False}},
        {"embedding_options": {"linear": None, "knots": 10, "num_meta": 7}},
        {"embedding_options": {"plain": []}},
        {"backbone_options": {"slope": 0.0}},
        {"backbone_options": {"slope": 0.7, "pairs": 0.3}},
    ],
)
@pytest.mark.parametrize("many", [2, 1000])
@pytest.mark.parametrize("dense", [None, 0, 1])
def test_gradients_are_those_of_autograd(options, weighted, rows, many, dense, monkeypatch):
    monkeypatch.setattr(threads, "MANY_ROWS", many)  # from 2 rows on by two threads
    project(monkeypatch, dense)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    model = make_model(**options)
    model.categorical.sparse = True
    batch = next(STREAM.iter_batches(STREAM.schema, 400))
    STREAM.seek({"row": 0})
    numerical, categorical = batch.numerical.copy(), batch.categorical.copy()
    numerical[::5, 0], categorical[::7, 1] = np.nan, 0
    weight = [torch.rand(400)[:rows]] if weighted else []
    inputs = [torch.from_numpy(array)[:rows] for array in (numerical, categorical, batch.label)] + weight
    expected, of_autograd = differentiated(model, *inputs), gradients(model)
    whole = WholeModel(model)
    for size in (rows, 400, rows):  # memory is kept from batch to batch
        model.zero_grad()
        again = inputs if size == rows else [torch.from_numpy(array) for array in (numerical, categorical, batch.label)]
        found = whole(*again)
    assert found is not None
    assert whole._gradients._projects == (dense is not None)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0 if many > rows and dense is None else 3e-6)
    torch.testing.assert_close(found[0], expected[0])
    norm = torch.linalg.vector_norm(torch.cat([one.flatten() for one in gradients(model).values()]))
    assert whole.norm() == pytest.approx(float(norm), rel=1e-5)
    assert torch.equal(whole.found.rows, model.categorical.rows(inputs[1]))
    mine = gradients(model)
    assert mine.keys() == of_autograd.keys()
    for name, gradient in of_autograd.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("rows", [1, 3, 400])
@pytest.mark.parametrize("options", [{}, {"hidden": (7,)}, {"layers": 1, "slope": 0.0}])
@pytest.mark.parametrize("smallest", [1, 2**40])
@pytest.mark.parametrize("many", [2, 1000])
def test_crosses_learn_as_by_autograd_in_double_precision(rows, options, smallest, many, monkeypatch):
    monkeypatch.setattr(products, "_SMALLEST", smallest)
    monkeypatch.setattr(threads, "MANY_ROWS", many)  # from 2 rows on by two threads
    monkeypatch.setattr(crosses, "_ROWS", 70)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    model = make_model(backbone="dcnv2", backbone_options=options)
    model.categorical.sparse = True
    batch = next(STREAM.iter_batches(STREAM.schema, 400))
    STREAM.seek({"row": 0})
    every = [torch.from_numpy(array) for array in (batch.numerical, batch.categorical, batch.label, np.ones(400, "f"))]
    every[0][::5, 0], every[3][::2] = torch.nan, 0.5
    inputs = [one[:rows] for one in every]
    exact = deepcopy(model).double()
    expected = differentiated(exact, *(one.double() if one.is_floating_point() else one for one in inputs))
    whole = WholeModel(model)
    for given in (inputs, every, inputs):  # memory is kept from batch to batch
        model.zero_grad()
        found = whole(*given)
    assert found is not None
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-5)
    mine, exactly = gradients(model), gradients(exact)
    assert mine.keys() == exactly.keys()
    for name, gradient in exactly.items():
        torch.testing.assert_close(mine[name], gradient.float(), rtol=1e-4, atol=1e-5, msg=name)
    norm = torch.linalg.vector_norm(torch.cat([one.flatten() for one in mine.values()]).double())
    assert whole.norm() == pytest.approx(float(norm), rel=1e-5)


def test_models_with_other_crosses_are_called():
    batch = next(STREAM.iter_batches(STREAM.schema, 20))
    STREAM.seek({"row": 0})
    for options in ({"rank": 2}, {"hidden": ()}):
        model = fresh_model(backbone="dcnv2", backbone_options=options)
        assert not WholeModel(model).fits
    model = fresh_model(backbone="dcnv2")
    step = TrainingStep(model, TrainConfig())
    assert WholeModel(step.model).fits
    seen = []
    model.backbone.cross.maps[1].register_forward_hook(lambda *_: seen.append(1))
    step.score_and_learn(batch, 0)
    assert seen
    assert step._whole.found is None


@pytest.mark.skipif(not products._AVAILABLE, reason="oneDNN is not the quicker one here")
@pytest.mark.parametrize("plain", [["score", "value"], []])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products_by_onednn(rows, whole, plain, monkeypatch):
    """The first layer of a whole model, or all layers of a network beside autograd, against double precision."""
    model = make_model(embedding_options={"plain": plain}, backbone_options={"hidden": (13, 6)})
    model.categorical.sparse = True
    batch = next(STREAM.iter_batches(STREAM.schema, rows))
    STREAM.seek({"row": 0})
    inputs = [torch.from_numpy(array.copy()) for array in (batch.numerical, batch.categorical, batch.label)]
    inputs[0][::2, 0] = torch.nan
    slow = deepcopy(model).double()
    expected = differentiated(slow, inputs[0].double(), inputs[1], inputs[2].double())
    called = []
    by_onednn = products._by_onednn
    monkeypatch.setattr(products, "_SMALLEST", 1)
    monkeypatch.setattr(products, "_by_onednn", lambda *given: called.append(1) or by_onednn(*given))
    model.zero_grad()
    found = WholeModel(model)(*inputs) if whole else differentiated(model, *inputs)
    assert len(called) == (3 if whole else 6)  # a product forward and two backward, of one layer or of both
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-4)
    of_slow = gradients(slow)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, of_slow[name].float(), rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("options", [{"pairs": 0.3}, {"slope": 0.7}, {"slope": 0.0}])
def test_loops_know_pairs_and_slope(options, monkeypatch):
    model, other = make_model(backbone_options=options), make_model()
    model.categorical.sparse = True
    batch = next(STREAM.iter_batches(STREAM.schema, 400))
    STREAM.seek({"row": 0})
    inputs = [torch.from_numpy(array) for array in (batch.numerical, batch.categorical, batch.label)]
    by_default = differentiated(other, *inputs)[1]
    compiled, of_parts = differentiated(model, *inputs), gradients(model)
    model.zero_grad()
    found = WholeModel(model)(*inputs)
    assert found is not None
    of_all = gradients(model)
    monkeypatch.setattr(native, "_library", None)
    expected, plain = differentiated(model, *inputs), gradients(model)
    assert not torch.allclose(expected[1], by_default, atol=1e-3)
    for one in (compiled, found):
        torch.testing.assert_close(one[1], expected[1], rtol=1e-4, atol=1e-5)
    for name, gradient in plain.items():
        torch.testing.assert_close(of_parts[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
        torch.testing.assert_close(of_all[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("other", [nn.LeakyReLU(0.2), nn.LeakyReLU(-0.1), nn.ReLU(), nn.ELU()])
def test_a_network_of_several_activations_is_called(other):
    model = make_model()
    model.backbone.mlp.hidden[1] = other
    assert whole_scores(model) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [1, 13, 600])
def test_the_loss_at_all_logits(rows, weighted):
    scale = torch.tensor([0.0, 1e-6, 0.1, 3.0, 17.0, 60.0, 1e4])[torch.randint(7, (rows,))]
    logits, label = torch.randn(rows) * scale, torch.randint(2, (rows,)).float()
    weight = torch.rand(rows) if weighted else None
    expected = CTRModel.cross_entropy(logits.double(), label.double(), weight)
    assert native.cross_entropy(logits, label, weight) == pytest.approx(float(expected), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("logit", "label"), [(np.nan, 0), (np.nan, 1), (np.inf, 0), (-np.inf, 1)])
def test_a_logit_that_is_not_finite_shows_in_the_loss(logit, label):
    logits, labels = torch.zeros(20), torch.zeros(20)
    logits[7], labels[7] = logit, label
    assert not np.isfinite(native.cross_entropy(logits, labels, None))


def test_whatever_else_looks_at_a_model_is_called():
    model = make_model()
    model.categorical.sparse = True
    rows = model.prepare(next(STREAM.iter_batches(STREAM.schema, 400)))
    STREAM.seek({"row": 0})
    whole, inputs = WholeModel(model), (*rows.features, *rows.targets)
    assert whole(*inputs) is not None
    for module in (model, model.numerical, model.evidence, model.backbone.mlp.hidden[0]):
        handle = module.register_forward_hook(lambda *_: None)
        assert whole(*inputs) is None
        assert whole.found is None
        handle.remove()
    handle = model.categorical.weight.register_hook(lambda gradient: gradient)
    assert whole(*inputs) is None
    handle.remove()
    model.numerical.missing.requires_grad_(False)
    assert whole(*inputs) is None
    model.numerical.missing.requires_grad_(True)
    assert whole(*inputs) is not None
    model.double()
    assert whole(*inputs) is None


def test_dropout_is_not_left_out():
    model = make_model(backbone_options={"dropout": 0.5})
    model.categorical.sparse = True
    rows = model.prepare(next(STREAM.iter_batches(STREAM.schema, 400)))
    STREAM.seek({"row": 0})
    whole = WholeModel(model)
    with torch.no_grad():
        torch.testing.assert_close(whole.logits(*rows.features), model(*rows.features), rtol=0, atol=3e-6)
    model.train()
    assert whole(*rows.features, *rows.targets) is None


def fresh_model(**options):
    torch.manual_seed(0)
    model = CTRModel(STREAM.schema, **{"dim": 5, "sizes": 50, **options})
    if model.evidence.combinations is not None:
        combine(model.evidence.combinations)
    return model


def fresh_step(model, *, rows=100, steps=2, plainly=False):
    """The step of a model that has learned from the first batches of a stream."""
    step = TrainingStep(model, TrainConfig(batch_size=rows))
    step.correcting = True
    if plainly:
        step._whole = None
    batch = next(STREAM.iter_batches(STREAM.schema, 400))
    STREAM.seek({"row": 0})
    for start in range(0, rows * steps, rows):
        step.score_and_learn(batch[start : start + rows], start)
    return step, batch[rows * steps : rows * (steps + 1)]


@pytest.mark.parametrize(
    "name", ["categorical.weight", "evidence.recent.weight", "numerical.missing", "evidence.weight"]
)
def test_a_parameter_that_is_frozen_on_the_way_stays(name):
    step, batch = fresh_step(fresh_model())
    parameter = step.model.get_parameter(name)
    parameter.requires_grad_(False)
    before = parameter.detach().clone()
    step.score_and_learn(batch, 200)
    assert torch.equal(parameter, before)


def test_tied_layers_learn_as_by_autograd():
    found = []
    for plainly in (False, True):
        model = fresh_model(backbone_options={"hidden": (12, 12, 12)})
        model.backbone.mlp.hidden[6].weight = model.backbone.mlp.hidden[3].weight
        fresh_step(model, plainly=plainly)
        found.append(model)
    for (name, one), other in zip(found[0].named_parameters(), found[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("asked", [False, True])
def test_a_parameter_that_is_replaced_is_read(asked):
    step, batch = fresh_step(fresh_model())
    readout = step.model.backbone.mlp.readout
    readout.bias = torch.nn.Parameter(readout.bias + 1)
    if asked:
        assert step.uses_loops == (native._library is not None)
    expected = step.model(batch).detach() + step.model.correction(*step.prepare(batch).features).detach()
    np.testing.assert_allclose(step.score_and_learn(batch, 200), expected, rtol=1e-4, atol=1e-5)


def test_a_loss_of_ones_own_is_used():
    model = fresh_model()
    model.cross_entropy = lambda logits, label, weight=None: 0 * logits.sum()
    before = model.backbone.mlp.readout.weight.detach().clone()
    fresh_step(model)
    assert torch.equal(model.backbone.mlp.readout.weight, before)


@pytest.mark.parametrize("change", ["no bias", "no ReLU"])
def test_changed_layers_are_called(change):
    found = []
    for plainly in (False, True):
        model = fresh_model()
        hidden = model.backbone.mlp.hidden
        if change == "no bias":
            hidden[3] = torch.nn.Linear(hidden[3].in_features, hidden[3].out_features, bias=False)
            torch.nn.init.constant_(hidden[3].weight, 0.01)
        else:
            del hidden[4]
        if plainly:
            model.backbone.network = lambda: None
        step, batch = fresh_step(model, plainly=plainly)
        found.append(step.score(batch))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


def test_a_score_in_inference_mode_leaves_no_trace():
    step, batch = fresh_step(fresh_model())
    with torch.inference_mode():
        expected = step.score(batch[:70])
    np.testing.assert_allclose(step.score(batch[:70]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("built", [False, True])
def test_with_a_default_of_double_precision_nothing_is_compiled(built, monkeypatch):
    step, batch = fresh_step(fresh_model())
    torch.set_default_dtype(torch.float64)
    try:
        if built:
            step, batch = fresh_step(fresh_model())
        found = step.score(batch)
        monkeypatch.setattr(native, "_library", None)
        np.testing.assert_allclose(found, step.score(batch), rtol=1e-4, atol=1e-5)
        if built:
            step, batch = fresh_step(fresh_model())
            np.testing.assert_allclose(found, step.score(batch), rtol=1e-3, atol=1e-4)
    finally:
        torch.set_default_dtype(torch.float32)


def wrong_rows(rows):
    numerical, categorical, label = rows.numerical, rows.categorical, rows.label
    return {
        "ids of 32 bits": DeviceBatch(numerical, categorical.int(), label),
        "an id too few": DeviceBatch(numerical, categorical[:, 1:].contiguous(), label),
        "a number too few": DeviceBatch(numerical[:, 1:].contiguous(), categorical, label),
        "fewer rows of numbers": DeviceBatch(numerical[:10], categorical, label),
        "fewer rows of ids": DeviceBatch(numerical, categorical[:10], label),
        "fewer labels": DeviceBatch(numerical, categorical, label[:10]),
    }


@pytest.mark.parametrize("name", wrong_rows(DeviceBatch(*torch.zeros(3, 20, 2))))
def test_rows_that_do_not_fit_are_refused(name):
    step, batch = fresh_step(fresh_model())
    before = {key: one.clone() for key, one in step.model.state_dict().items()}
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        step.learn(wrong_rows(step.prepare(batch))[name], 200)
    for key, one in step.model.state_dict().items():
        assert torch.equal(one, before[key]), key


@pytest.mark.parametrize("kind", [torch.int64, torch.float64])
def test_labels_of_another_type_count_the_same(kind):
    found = []
    for label in (torch.float32, kind):
        step, batch = fresh_step(fresh_model())
        rows = step.prepare(batch)
        step.learn(DeviceBatch(*rows.features, rows.label.to(label)), 200)
        found.append(step.model.evidence.state_dict())
    for name, one in found[0].items():
        torch.testing.assert_close(found[1][name], one, msg=name)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16])
def test_logits_of_another_type_are_noted_where_rows_were_found(kind):
    model, other = (fresh_model(categorical_options={"sparse": True}) for _ in range(2))
    rows = model.prepare(next(STREAM.iter_batches(STREAM.schema, 200)))
    STREAM.seek({"row": 0})
    whole = WholeModel(model)
    found = whole(*rows.features, rows.label)
    assert found is not None
    logits = torch.stack([found[1], torch.zeros(len(rows))], 1)[:, 0]  # they lie apart, too
    model.count(rows, logits.to(kind), whole.found)
    other.count(rows, logits.to(kind))
    for name, one in other.evidence.state_dict().items():
        torch.testing.assert_close(model.evidence.state_dict()[name], one, msg=name)


def test_labels_of_other_rows_than_were_found_are_refused():
    model = fresh_model(categorical_options={"sparse": True})
    rows = model.prepare(next(STREAM.iter_batches(STREAM.schema, 200)))
    STREAM.seek({"row": 0})
    whole = WholeModel(model)
    assert whole(*rows.features, rows.label) is not None
    with pytest.raises(ValueError, match=r"must have shape \(201"):
        model.count(DeviceBatch(*rows.features, torch.zeros(201)), None, whole.found)


def test_scores_take_rows_of_their_model_only():
    model = make_model()
    batch, scores = probe_batch(model), whole_scores(model)
    for numbers, ids in ((batch.numerical[:3], batch.categorical), (batch.numerical, batch.categorical[:, 1:])):
        with pytest.raises(ValueError, match="must have the shapes"):
            scores(numbers, ids)


def test_a_table_of_another_size_is_refused():
    model = fresh_model()
    model.categorical.weight = torch.nn.Parameter(torch.zeros(7, 5))
    with pytest.raises(IndexError):
        fresh_step(model)


def random_rows(draw, rows, q, p):
    numerical = (draw.normal(size=(rows, q)) * 10.0 ** draw.integers(-3, 4, size=q)).astype(np.float32)
    numerical[draw.random((rows, q)) < 0.1] = np.nan
    numerical[draw.random((rows, q)) < 0.1] = 0
    categorical = draw.integers(-(2**63), 2**63, size=(rows, p)) // draw.choice([1, 2**62, 2**63 - 1])
    label = (draw.random(rows) < draw.choice([0, 0.3, 1])).astype(np.float32)
    return Batch(numerical, categorical, label, draw.random(rows, np.float32) if draw.random() < 0.3 else None)


@pytest.mark.parametrize("dense", [None, 0, 0.3])
@pytest.mark.parametrize("seed", range(12))
def test_any_default_model_learns_as_by_autograd_in_double_precision(seed, dense, monkeypatch):
    """Six steps with recent errors on; before each the other model gets the state of this one."""
    draw = np.random.default_rng(seed)
    project(monkeypatch, dense)
    torch.manual_seed(seed)
    q, p = (int(draw.integers(1, 6)) for _ in range(2))
    bins, hidden = int(draw.choice([1, 2, 64])), [(5,), (12, 12), (32, 8), (77, 3)][draw.integers(4)]
    schema = Schema("click", tuple(f"number {i}" for i in range(q)), tuple(f"field {i}" for i in range(p)))
    model = CTRModel(
        schema,
        backbone=str(draw.choice(["deepfm", "fnn", "widedeep", "dcnv2"])),
        dim=int(draw.choice([1, 3, 8, 16])),
        sizes=int(draw.choice([1, 5, 50])),
        evidence=[
            {"bins": bins, "pair_bins": 1, "recent": float(draw.choice([1e-3, 20, 1e12]))},
            {"numbers": False},
            {"categories": False, "half_life": 30.0},
        ][draw.integers(3)],
        backbone_options={"hidden": hidden},
        embedding_options={
            "num_meta": int(draw.choice([1, 3, 10])),
            "knots": int(draw.choice([1, 10, 100])),
            "plain": [[], ["score", "value"]][draw.integers(2)],
            "linear": [None, "value"][draw.integers(2)],
        },
    )
    if model.evidence.combinations is not None:
        counted = model.evidence.options
        combine(model.evidence.combinations, counted.numbers * q + counted.categories * p)
    exact = deepcopy(model).double()
    step, other = (TrainingStep(one, TrainConfig(batch_size=100)) for one in (model, exact))
    step.correcting = other.correcting = True
    other._whole = None
    for _ in range(6):
        batch = random_rows(draw, int(draw.choice([1, 2, 31, 100])), q, p)
        rows = step.prepare(batch)
        exact.load_state_dict(model.state_dict())
        with model.without_observing(), exact.without_observing():
            found = *step._backward(*rows.features, *rows.targets), step._clip(), gradients(model)
            assert step._whole.found is not None
            with monkeypatch.context() as patched:
                patched.setattr(native, "_library", None)
                expected = *other._backward(*rows.features, *rows.targets), other._clip(), gradients(exact)
        for one, exactly in zip(found[:3], expected[:3], strict=True):
            torch.testing.assert_close(one, exactly, rtol=1e-5, atol=1e-5, check_dtype=False)
        for name, exactly in expected[3].items():
            torch.testing.assert_close(
                found[3][name], exactly, rtol=1e-4, atol=1e-5, check_dtype=False, msg=f"{name}: {batch.label}"
            )
        step.score_and_learn(batch, 0)


@pytest.mark.parametrize("kind", ["equal", "distinct", "few"])
def test_vectors_are_multiplied_once_where_that_pays(kind):
    """As by autograd, at the thresholds as they are."""
    rows, draw = 600, np.random.default_rng(0)
    torch.manual_seed(0)
    schema = Schema("click", ("a", "b"), ("c", "d", "e"))
    model = CTRModel(schema, sizes=100_000, backbone_options={"hidden": (33, 8)})
    batch = random_rows(draw, rows, 2, 3)
    ids = {"equal": np.zeros((rows, 3)), "distinct": np.arange(3 * rows).reshape(rows, 3)}
    batch.categorical[:] = ids.get(kind, draw.integers(0, 40, (rows, 3))).astype(np.int64) + 1
    if kind == "few":
        batch.categorical[:, 1] = np.arange(rows) + 1  # one field of three has an id a row
    step = TrainingStep(model, TrainConfig(batch_size=rows))
    step.learn(batch, 0)
    inputs = step.prepare(batch)
    found = step._whole(*inputs.features, *inputs.targets, correcting=False)
    assert step._whole._gradients._projects == (kind != "distinct")
    mine = gradients(model)
    expected = differentiated(model, *inputs.features, *inputs.targets)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("backbone", ["deepfm", "dcnv2"])
def test_a_second_thread_changes_nothing_that_is_counted_or_chosen(backbone, monkeypatch):
    """Combinations are chosen on the way, and new ones start with a weight of their own."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(native_gradients, "_PROJECTED_ROWS", 10**9)
    found = []
    for many in (2, 10**9):
        monkeypatch.setattr(threads, "MANY_ROWS", many)
        model = CTRModel(
            STREAM.schema, backbone=backbone, dim=5, sizes=50, evidence={"choose_after": 32, "recent": None}
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.01)
        step, _ = fresh_step(model, rows=40, steps=10)
        assert step._whole.found is not None
        assert (model.evidence.combinations.fields[:, 0] >= 0).all()
        found.append(model.state_dict())
    for name, one in found[0].items():
        torch.testing.assert_close(found[1][name], one, rtol=1e-4, atol=1e-6, msg=name)
    assert torch.equal(found[0]["evidence.combinations.fields"], found[1]["evidence.combinations.fields"])


def test_a_table_of_more_rows_than_evidence_has_is_not_served():
    model = CTRModel(Schema("click", numerical=("price",), categorical=("city",)), dim=4, sizes=5)
    model.categorical = CategoricalEmbedding({"city": 1_000_000}, 4, sparse=True)
    model.eval()
    numbers, ids = torch.zeros(8, 1), torch.arange(500_000, 500_008).view(8, 1)
    assert WholeModel(model)(numbers, ids, torch.ones(8)) is None
    assert whole_scores(model) is None
    with pytest.raises(IndexError):
        model(numbers, ids)
