"""Tabled models against the models themselves in double precision; what is not tabled."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from daes.embedding import DAES
from daes.model import CTRModel
from daes.model.tabled import tabled
from daes.stream.batch import Batch
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price", "age", "stay"), ("city", "device", "hour"))
NUMBERS, IDS = Schema("click", SCHEMA.numerical, ()), Schema("click", (), SCHEMA.categorical)
EVIDENCE = {"choose_after": 512, "bins": 32, "pair_bins": 8, "pair_cells": 97, "pairs": 3, "triples": 3}
LARGEST = float(np.finfo(np.float32).max)


def make_batch(rows=256, seed=0, schema=SCHEMA):
    random = np.random.default_rng(seed)
    numbers = random.lognormal(sigma=2, size=(rows, schema.num_numerical)).astype(np.float32)
    if schema.num_numerical:
        numbers[random.random(rows) < 0.5, 1] = 0.0  # one value fills many quantiles
        numbers[:, 2] += 1e6  # floats are far from each other there
    numbers[random.random(numbers.shape) < 0.1] = np.nan
    ids = random.integers(0, 5, (rows, schema.num_categorical)) * (2**61 - 12345)
    signs = [numbers[:, :1] > 1, ids[:, :1] == 0]
    chance = 0.1 + 0.8 * np.concatenate([sign for sign in signs if sign.shape[1]], 1).mean(1)
    return Batch(numbers, ids, (random.random(rows) < chance).astype(np.float32))


def trained(schema=SCHEMA, embedding="daes", backbone="deepfm", evidence=None, **options):
    torch.manual_seed(0)
    evidence = EVIDENCE | (evidence or {}) if evidence is not False else False
    sample = make_batch(1000, schema=schema)
    model = CTRModel.from_sample(
        schema, sample, embedding=embedding, backbone=backbone, dim=4, evidence=evidence, **options
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for seed in range(12):
        batch = make_batch(seed=seed, schema=schema)
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
        rows = model.prepare(batch)
        with torch.no_grad():
            model.count(rows, model.eval()(*rows.features))
        model.train()
    for parameter in model.parameters():  # so that everything matters
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def probes(model, found):
    """Rows with ordinary, missing, infinite and far numbers, the cuts and their lower neighbours; ids, known or not."""
    generator = torch.Generator().manual_seed(5)
    batch = make_batch(4000, seed=77, schema=model.schema)
    numbers, ids = torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical)
    if found.numbers is not None:
        cuts = found.numbers.cuts.view(numbers.shape[1], -1)
        at = cuts.gather(1, torch.randint(cuts.shape[1], (numbers.shape[1], 2000), generator=generator)).T
        below = torch.rand(at.shape, generator=generator) < 0.5
        numbers[2000:] = torch.where(below, torch.nextafter(at, torch.tensor(-torch.inf)), at)
        for place, value in enumerate((torch.inf, -torch.inf, LARGEST, -LARGEST, 1e30, torch.nan)):
            numbers[place:1000:7] = value
    ids[::3] = torch.randint(2**62, ids[::3].shape, generator=generator)
    ids[1::50] = -7
    return numbers, ids


def assert_same(model):
    found = tabled(model)
    assert found is not None
    numbers, ids = probes(model, found)
    with torch.no_grad():
        expected = deepcopy(model).double()(numbers.clamp(-LARGEST, LARGEST).double(), ids)
        logits = found(*[one if one.shape[1] else None for one in (numbers, ids)])
        spread = expected[1001:2000].std()
    assert spread > 0.05
    torch.testing.assert_close(logits.double(), expected, rtol=2e-5, atol=2e-5)
    return found


@pytest.mark.parametrize("backbone", ["deepfm", "widedeep", "fnn"])
@pytest.mark.parametrize("embedding", ["daes", "efd"])
def test_logits_are_those_of_the_model(embedding, backbone):
    model = trained(embedding=embedding, backbone=backbone)
    assert (model.evidence.combinations.fields[:, 0] >= 0).all()
    assert_same(model)


@pytest.mark.parametrize(
    "options",
    [
        {"basis": "thermometer", "knots": 10},
        {"num_meta": 7, "knots": 30},
        {"basis": "thermometer", "num_meta": 7, "knots": 30, "linear": "score"},
        {"linear": "rank", "plain": ["rank", "value", "score"]},
        {"linear": None, "plain": []},
        {"value_space": True, "bounds": (-5.0, 2e6), "knots": 10},
        {"modulation": "gate", "beta": 0.0},
    ],
)
def test_options_of_daes(options):
    assert_same(trained(embedding_options=options))


@pytest.mark.parametrize("options", [{"num_bins": 1}, {"num_bins": 50, "plain": ["score", "rank"]}])
def test_options_of_efd(options):
    assert_same(trained(embedding="efd", embedding_options=options))


@pytest.mark.parametrize(
    "evidence",
    [
        False,
        {"numbers": False},
        {"categories": False},
        {"numbers": False, "categories": False},
        {"pairs": 0},
        {"recent": None, "half_life": 100.0},
    ],
)
def test_options_of_evidence(evidence):
    assert_same(trained(evidence=evidence))


@pytest.mark.parametrize("schema", [NUMBERS, IDS])
def test_schemas_of_one_kind(schema):
    assert_same(trained(schema))


def test_a_standardised_value_that_changes_up_to_the_largest_number():
    model = trained()
    model.numerical.distributions.scale.fill_(1e38)
    assert_same(model)


def test_other_networks_and_tables():
    assert_same(trained(backbone_options={"hidden": (6,), "slope": 0.0}))
    assert_same(trained(categorical_options={"mode": "vocabulary", "min_count": 2}))
    assert_same(trained().freeze())


def test_hard_knots():
    knots = torch.tensor([
        [-LARGEST, 0.0, LARGEST],
        [5.0, 5.0, 5.0],
        [1e-45, 1e-38, 1.0],
    ])  # fmt: skip
    options = {"basis": "hat", "modulation": None, "linear": "value", "plain": ["score", "value"]}
    embedding = DAES.from_knots(knots, 4, num_meta=2, **options)
    assert_same(trained(embedding=embedding))


def test_before_anything_was_seen():
    model = CTRModel(SCHEMA, sizes=5, evidence=EVIDENCE).eval()
    found = tabled(model)
    batch = make_batch(20)
    with torch.no_grad():
        logits = found(torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical))
        torch.testing.assert_close(logits, model(batch))
        assert found(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.int64)).shape == (0,)


def test_the_model_is_left_as_it_was():
    model = trained()
    before = deepcopy(model.state_dict())
    tabled(model.train())
    assert all(parameter.requires_grad for parameter in model.parameters())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0, equal_nan=True)
    assert all(part.training for part in model.modules())


class _Twice(DAES):
    def encode(self, values, place, context):
        return 2 * super().encode(values, place, context)


class _OtherModel(CTRModel):
    def forward(self, numerical, categorical=None):
        return 2 * super().forward(numerical, categorical)


def test_what_has_another_formula_is_not_tabled():
    assert tabled(CTRModel(SCHEMA, sizes=5)) is not None
    for embedding, backbone in (("daes-gate", "fnn"), ("plr", "fnn"), ("daes", "dcnv2"), ("daes", "fm")):
        assert tabled(CTRModel(SCHEMA, embedding, backbone, sizes=5)) is None
    assert tabled(CTRModel(SCHEMA, _Twice(3, 4, modulation=None), sizes=5)) is None
    assert _OtherModel(SCHEMA, sizes=5)._tables() is None
    assert tabled(CTRModel(SCHEMA, sizes=5).double()) is None
    assert tabled(CTRModel(SCHEMA, sizes=5, backbone_options={"batch_norm": True})) is None
    assert tabled(CTRModel(Schema("click", [f"x{place}" for place in range(400)], ()), sizes=5)) is None
