"""A few rows scored by one call have the scores of the model."""

import numpy as np
import pytest
import torch

from daes import native
from daes.model import CTRModel
from daes.serving.few_rows import few_rows
from daes.serving.scorer import probe_batch
from daes.simulation import AdStream

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
def test_scores_are_those_of_the_model(options, rows):
    model = make_model(**options)
    batch = probe_batch(model)[:rows]
    scores = few_rows(model)
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
    assert few_rows(make_model(**options)) is None


def test_a_model_in_double_precision_is_called():
    assert few_rows(make_model().double()) is None
