"""What compiled loops compute of a whole model is what the model computes."""

import numpy as np
import pytest
import torch

from daes import native
from daes.model import CTRModel
from daes.native import whole as whole_model
from daes.serving.scorer import probe_batch
from daes.simulation import AdStream
from daes.whole import WholeModel, whole_scores

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")

STREAM = AdStream(num_rows=400, seed=0)


def make_model(**options):
    torch.manual_seed(0)
    model = CTRModel(STREAM.schema, **{"dim": 5, "sizes": 50, **options})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.2, 0.2)
    rows = model.prepare(next(STREAM.iter_batches(STREAM.schema, 400)))
    STREAM.seek({"row": 0})
    model.observe(*rows.features)
    model.count(rows)
    return model.eval().freeze()


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
        {"backbone": "dcnv2"},
        {"backbone_options": {"batch_norm": True}},
        {"evidence": {"pairs": 3}},
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
    ],
)
@pytest.mark.parametrize("many", [2, 1000])
def test_gradients_are_those_of_autograd(options, weighted, rows, many, monkeypatch):
    monkeypatch.setattr(whole_model, "_MANY_ROWS", many)  # from 2 rows on by two threads
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
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0 if many > rows else 1e-6)
    torch.testing.assert_close(found[0], expected[0])
    norm = torch.linalg.vector_norm(torch.cat([one.flatten() for one in gradients(model).values()]))
    assert whole.norm() == pytest.approx(float(norm), rel=1e-5)
    assert torch.equal(whole.rows, model.categorical.rows(inputs[1]))
    mine = gradients(model)
    assert mine.keys() == of_autograd.keys()
    for name, gradient in of_autograd.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


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
        assert whole.rows is None
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
        assert torch.equal(whole.logits(*rows.features), model(*rows.features))
    model.train()
    assert whole(*rows.features, *rows.targets) is None
