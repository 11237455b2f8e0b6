"""Compiled loops give what the plain versions give, whatever the shapes and values."""

import os
import subprocess
import sys
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import pytest
import torch

from daes import native
from daes.embedding import DAES, CategoricalEmbedding, Context, build_embedding
from daes.embedding.distributions import FeatureDistributions
from daes.evidence import Evidence, EvidenceInputs
from daes.model import CTRModel
from daes.native.build import build, library
from daes.simulation import AdStream
from daes.training.config import TrainConfig
from daes.training.optimizer import Adagrad, coalesced
from daes.training.step import TrainingStep

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")


@contextmanager
def plainly():
    """Within it nothing is compiled."""
    kept, native._library = native._library, None
    try:
        yield
    finally:
        native._library = kept


def make_values(rows, q, seed=0):
    """Skewed columns with ties, missing values and infinities; the last column is always missing."""
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(size=(rows, q)) * 2).astype(np.float32)
    values[rng.random(values.shape) < 0.3] = 1.5
    values[rng.random(values.shape) < 0.2] = np.nan
    values[rng.random(values.shape) < 0.05] = np.inf
    values[rng.random(values.shape) < 0.05] = -np.inf
    values[:, -1] = np.nan
    return torch.from_numpy(values)


@pytest.mark.parametrize("rows", [0, 1, 7, 300])
def test_rows_of_hashed_ids(rows):
    embedding = CategoricalEmbedding([5, 1, 1000], dim=4)
    ids = torch.randint(-(2**62), 2**62, (rows, 3), generator=torch.Generator().manual_seed(0))
    ids[torch.rand(ids.shape) < 0.2] = 0
    found = embedding.rows(ids)
    with plainly():
        assert torch.equal(found, embedding.rows(ids))


@pytest.mark.parametrize("name", ["linear_weight", "missing", "meta_embeddings"])
def test_weights_of_numbers_may_lie_in_any_order(name):
    embedding = DAES(3, 4, modulation=None, linear="value").eval()
    values = make_values(50, 3)
    embedding.observe(values)
    expected = embedding(values)
    weight = getattr(embedding, name).detach()
    setattr(embedding, name, torch.nn.Parameter(weight.transpose(0, 1).contiguous().transpose(0, 1)))
    torch.testing.assert_close(embedding(values), expected)


@pytest.mark.parametrize(("rows", "dim"), [(0, 4), (1, 1), (9, 3), (400, 16)])
def test_look_ups_and_their_gradients(rows, dim):
    embedding = CategoricalEmbedding([50, 5000], dim=dim, sparse=True)
    places = embedding.rows(torch.randint(1, 200, (rows, 2)))
    target = torch.randn(rows, 2, dim)
    vectors = embedding.look_up(places)
    (vectors * target).sum().backward()
    gradient, embedding.weight.grad = embedding.weight.grad, None
    with plainly():
        expected = embedding.look_up(places)
        (expected * target).sum().backward()
    assert torch.equal(vectors, expected)
    gradient = coalesced(gradient)
    expected = embedding.weight.grad.coalesce()
    assert torch.equal(gradient.indices(), expected.indices())
    torch.testing.assert_close(gradient.values(), expected.values())
    assert bool((embedding._slots == -1).all())


def test_two_sparse_gradients_of_one_table_add_up():
    embedding = CategoricalEmbedding([3000], dim=2, sparse=True)
    first, second = (embedding.rows(torch.randint(1, 4000, (50, 1))) for _ in range(2))
    (embedding.look_up(first).sum() + 2 * embedding.look_up(second).sum()).backward()
    expected = torch.zeros(len(embedding.weight), 2)
    expected.index_add_(0, first[:, 0], torch.ones(50, 2)).index_add_(0, second[:, 0], torch.full((50, 2), 2.0))
    assert torch.equal(embedding.weight.grad.to_dense(), expected)


def test_adagrad_on_rows():
    torch.manual_seed(0)
    mine, theirs = (torch.nn.Parameter(torch.ones(40, 3)) for _ in range(2))
    ours, oracle = Adagrad([mine], 0.03), Adagrad([theirs], 0.03)
    for _ in range(10):
        rows, values = torch.randperm(40)[:9].sort().values, torch.randn(9, 3)
        for parameter in (mine, theirs):
            parameter.grad = torch.sparse_coo_tensor(rows[None], values, (40, 3), check_invariants=True).coalesce()
        ours.step()
        with plainly():
            oracle.step()
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(ours.sums[0], oracle.sums[0])


def run_evidence(options, batches):
    counted = EvidenceInputs(Evidence(**options), num_numerical=4, offsets=[0, 10], table_rows=30)
    found = []
    for numbers, rows, labels in batches:
        found.append(counted(numbers, rows))
        counted.update(numbers, rows, labels)
    return torch.cat(found), dict(counted.state_dict())


@pytest.mark.parametrize("options", [{}, {"half_life": 50.0}, {"numbers": False}, {"categories": False}, {"bins": 16}])
def test_evidence(options):
    batches = []
    for seed, count in enumerate((1, 0, 50, 3, 200, 128)):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.stack([torch.randint(10, (count,), generator=generator), torch.randint(10, 30, (count,))], 1)
        batches.append((make_values(count, 4, seed), rows, (torch.rand(count, generator=generator) < 0.3).float()))
    inputs, state = run_evidence(options, batches)
    with plainly():
        expected, plain = run_evidence(options, batches)
    torch.testing.assert_close(inputs, expected, rtol=1e-6, atol=1e-6)
    for name in plain:
        torch.testing.assert_close(state[name], plain[name], rtol=1e-12, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("reservoir_size", [5, 64, 100_000])
def test_observing(reservoir_size):
    def observed():
        made = FeatureDistributions(4, num_knots=7, reservoir_size=reservoir_size, seed=3)
        for seed, count in enumerate((1, 0, 50, 200, 3, 1000, 7)):
            made.observe(make_values(count, 4, seed))
        return made.state_dict()

    found = observed()
    with plainly():
        expected = observed()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("num_features", [511, 513, 1100])
def test_observing_many_features(num_features):
    def observed():
        made = FeatureDistributions(num_features, num_knots=5, reservoir_size=50)
        for seed, count in enumerate((1, 70, 3, 200)):
            values = make_values(count, num_features, seed)
            values[:, ::2] = values[:, ::2].nan_to_num(1.0, 2.0, 3.0)  # columns without missing values
            made.observe(values)
        return made.state_dict()

    found = observed()
    with plainly():
        expected = observed()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
@pytest.mark.parametrize("reservoir_size", [40, 400, 3000, 6000])
def test_knots_that_follow_many_small_batches(reservoir_size, tolerance):
    """Samples that fill, and whose members are replaced, several times within a batch: ties and signed zeros too."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(9000, 3)).astype(np.float32)
    values[:, 1] = np.round(values[:, 1]) * rng.choice([1, -1], 9000)
    values[rng.random(values.shape) < [0.3, 0, 0]] = np.nan
    # Amid them more at once than is noted one by one.
    sizes = [*rng.integers(1, 60, 60), 6000, *rng.integers(1, 60, 20)]

    def observed():
        made, found, start = FeatureDistributions(3, 9, reservoir_size=reservoir_size, tolerance=tolerance), [], 0
        for place, size in enumerate(sizes):
            made.observe(torch.from_numpy(values[start : start + size]))
            made = deepcopy(made) if place == 30 else made
            found.append(torch.cat([made.knots, made.centre[:, None], made.scale[:, None]], 1))
            start += size
        return torch.stack(found)

    found = observed()
    with plainly():
        torch.testing.assert_close(found, observed(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("knots", [1, 2, 15, 16, 17, 31, 32, 100, 250])
def test_places_among_knots(knots):
    """Values on knots and between them, beyond them, ties, and a feature of which nothing is known."""
    rng = np.random.default_rng(knots)
    edges = np.sort(rng.normal(size=(4, knots + 1)).astype(np.float32))
    edges[1] = np.sort(rng.integers(0, 5, knots + 1))
    edges[2], edges[3] = 2.0, np.nan
    values = np.tile(rng.normal(size=(500, 1)).astype(np.float32) * 2, (1, 4))
    values[: knots + 1] = edges.T
    values[-20:], values[-30:-20] = np.nan, np.inf
    module = DAES(4, 3, num_meta=7, knots=knots, basis="hat", modulation=None, plain=["score", "value"]).eval()
    module.distributions.knots.copy_(torch.from_numpy(edges))
    module.distributions.scale.fill_(2.0)
    for rows in (500, 37, 8, 1):
        found = module.outputs(torch.from_numpy(values[:rows]))
        with plainly():
            expected = module.outputs(torch.from_numpy(values[:rows]))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("beta", [0.3, 1.0])
@pytest.mark.parametrize("options", [{}, {"basis": "hat", "knots": 40, "linear": "value", "plain": ["score", "value"]}])
@pytest.mark.parametrize(
    ("rows", "contexts", "q", "dim"),
    [(0, 0, 2, 3), (1, 1, 1, 1), (3, 50, 18, 16), (200, 7, 35, 16), (130, 4, 3, 24), (65, 65, 2, 5)],
)
def test_gated_tables(rows, contexts, q, dim, options, beta):
    torch.manual_seed(rows)
    module = DAES(q, dim, beta=beta, init_std=1.0, **options).eval()
    module.observe(make_values(400, q, seed=1))
    values, target = make_values(rows, q), torch.randn(rows, q, dim)
    index = (
        torch.randint(contexts, (rows,)) // 2 * 2 if contexts else torch.empty(0, dtype=torch.int64)
    )  # some are empty
    context = Context(30 * torch.randn(contexts, dim, requires_grad=True), index)  # some gates are closed

    def outputs():
        fields, plain = module.outputs(values, context)
        leaves = [context.vectors, *module.parameters()]
        return fields, plain, torch.autograd.grad((fields * target).sum(), leaves, materialize_grads=True)

    found = outputs()
    with plainly():
        expected = outputs()
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[2], expected[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("contexts", [0, 1, 5])
@pytest.mark.parametrize("method", ["daes", "daes-gate", "dae"])
@pytest.mark.parametrize(("rows", "q", "dim", "seen"), [(0, 2, 4, 50), (1, 1, 1, 0), (300, 5, 16, 2000), (9, 3, 5, 3)])
def test_embedding_numbers(method, rows, q, dim, seen, contexts):
    torch.manual_seed(0)
    module = build_embedding(method, q, dim).eval()
    module.observe(make_values(seen, q, seed=1))
    values, target = make_values(rows, q), torch.randn(rows, q, dim)
    context = None
    if contexts and getattr(module, "uses_context", False):
        vectors = torch.randn(contexts, module.context_dim, requires_grad=True)
        context = Context(vectors, torch.randint(contexts, (rows,)))

    def outputs():
        module.zero_grad()
        fields, plain = module.outputs(values, context)
        (fields * target).sum().backward()
        gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
        return (
            fields,
            plain,
            gradients,
            None
            if context is None
            else torch.autograd.grad((module.outputs(values, context).fields * target).sum(), context.vectors),
        )

    fields, plain, gradients, of_context = outputs()
    with plainly():
        expected = outputs()
    torch.testing.assert_close(fields, expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(plain, expected[1], rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(of_context, expected[3], rtol=1e-4, atol=1e-5)
    for name, gradient in expected[2].items():
        found = gradients[name]
        nothing = torch.zeros_like(module.get_parameter(name))
        torch.testing.assert_close(
            nothing if found is None else found,
            nothing if gradient is None else gradient,
            rtol=1e-4,
            atol=1e-5,
            msg=name,
        )


def test_in_double_precision_nothing_is_compiled():
    module = DAES(2, dim=4, basis="hat", modulation=None).double()
    module.observe(make_values(50, 2).double())
    assert module(make_values(10, 2).double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("backbone", "options", "evidence"),
    [
        ("deepfm", {}, True),
        ("widedeep", {}, True),
        ("fnn", {"hidden": (7,)}, True),
        ("deepfm", {"hidden": (5, 3), "dropout": 0.5}, False),
        ("fnn", {"hidden": ()}, True),
        ("deepfm", {"batch_norm": True}, True),
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 77])
def test_logits_and_their_gradients(backbone, options, evidence, rows):
    stream = AdStream(num_rows=500, seed=0)
    batch = next(stream.iter_batches(stream.schema, 500))
    torch.manual_seed(0)
    model = CTRModel(
        stream.schema, backbone=backbone, dim=5, sizes=50, evidence=evidence, backbone_options=options
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.3, 0.3)
    prepared = model.prepare(batch)
    model.observe(*prepared.features)
    model.count(prepared)
    inputs, target = [tensor[:rows] for tensor in prepared.features], torch.randn(rows)

    def differentiated():
        model.zero_grad()
        logits = model(*inputs)
        (logits * target).sum().backward()
        none = torch.zeros(())
        return logits.detach(), {name: none if one.grad is None else one.grad for name, one in model.named_parameters()}

    found, gradients = differentiated()
    with plainly():
        expected, plain = differentiated()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for name in plain:
        torch.testing.assert_close(
            *torch.broadcast_tensors(gradients[name], plain[name]), rtol=1e-4, atol=1e-5, msg=name
        )


def test_a_network_with_hooks_is_called():
    stream = AdStream(num_rows=10, seed=0)
    model, batch, calls = CTRModel(stream.schema, sizes=10), next(stream.iter_batches(stream.schema, 10)), []
    assert model.backbone.network() is not None
    for module in (model.backbone, model.backbone.mlp, model.backbone.mlp.hidden[0], model.backbone.linear.readout):
        handle = module.register_forward_hook(lambda *_: calls.append(1))
        model(batch)
        handle.remove()
    assert len(calls) == 4


def test_second_derivatives_are_refused_instead_of_wrong():
    stream = AdStream(num_rows=10, seed=0)
    model, batch = CTRModel(stream.schema, sizes=10), next(stream.iter_batches(stream.schema, 10))
    with pytest.raises(RuntimeError, match="no second derivatives: set DAES_NATIVE=0"):
        torch.autograd.grad(model(batch).sum(), list(model.backbone.parameters()), create_graph=True)
    with plainly():
        torch.autograd.grad(model(batch).sum(), list(model.backbone.parameters()), create_graph=True)


def test_a_whole_pass_learns_the_same():
    stream = AdStream(num_rows=3000, seed=0)
    rows = next(stream.iter_batches(stream.schema, 3000))

    def passed():
        torch.manual_seed(0)
        step = TrainingStep(CTRModel(stream.schema, sizes=100), TrainConfig(batch_size=100))
        return np.concatenate([step.score_and_learn(rows[start : start + 100], start) for start in range(0, 3000, 100)])

    compiled = passed()
    with plainly():
        expected = passed()
    np.testing.assert_allclose(compiled, expected, rtol=2e-3, atol=2e-3)


def test_the_environment_turns_them_off():
    code = "from daes import native; print(native._library)"
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "DAES_NATIVE": "0"}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"


def test_what_is_built_is_not_built_again():
    before = library().stat().st_mtime_ns
    assert build() == library()
    assert library().stat().st_mtime_ns == before


@pytest.mark.parametrize("row", [7, -1, 2**62, -(2**63)])
def test_rows_that_a_table_does_not_have_are_refused(row):
    table = CategoricalEmbedding([5], 3, sparse=True)
    counted = EvidenceInputs(Evidence(), 1, [0], 7)
    rows = torch.tensor([[0], [row]])
    assert not native.within(rows, 7)
    assert native.within(torch.tensor([[0], [6]]), 7)
    with pytest.raises((IndexError, RuntimeError)):
        table.look_up(rows)
    if row != -1:  # which is the last one to torch
        with pytest.raises((IndexError, RuntimeError)):
            counted(torch.zeros(2, 1), rows)
        with pytest.raises((IndexError, RuntimeError)):
            counted.recent_errors(torch.zeros(2, 1), rows)
    with pytest.raises((IndexError, RuntimeError)):
        counted.update(torch.zeros(2, 1), rows, torch.ones(2))


def test_rows_of_32_bits_are_looked_up():
    table = CategoricalEmbedding([5], 3, sparse=True)
    rows = torch.tensor([[3], [6]])
    assert torch.equal(table.look_up(rows.int()), table.look_up(rows))


@pytest.mark.parametrize(("numbers", "rows"), [((3, 1), (2, 1)), ((2, 2), (2, 1)), ((2, 1), (2, 2)), ((2, 1), (3, 1))])
def test_evidence_of_other_shapes_is_refused(numbers, rows):
    counted = EvidenceInputs(Evidence(), 1, [0], 7)
    before = deepcopy(counted.state_dict())
    with pytest.raises(ValueError, match="must have shape"):
        counted.update(torch.zeros(numbers), torch.zeros(rows, dtype=torch.int64), torch.ones(2))
    for name, one in counted.state_dict().items():
        assert torch.equal(one, before[name]), name


def test_contexts_that_there_are_not_are_refused():
    embedding = DAES(num_features=2, dim=3).eval()
    values, vectors = torch.zeros(2, 2), torch.zeros(2, 3)
    expected = embedding(values, Context(vectors, torch.tensor([0, 1])))
    assert torch.equal(embedding(values, Context(vectors, torch.tensor([0, 1], dtype=torch.int32))), expected)
    assert torch.equal(embedding(values, Context(vectors, torch.tensor([0, 5, 1, 5])[::2])), expected)
    for index in ([0, 2], [0, 2**40]):
        with pytest.raises((IndexError, RuntimeError)):
            embedding(values, Context(vectors, torch.tensor(index)))


def test_parts_of_a_network_have_the_same_rows():
    schema = AdStream(num_rows=10, seed=0).schema
    model = CTRModel(schema, sizes=10, dim=4).eval()
    numbers, ids = torch.zeros(6, schema.num_numerical), torch.ones(6, schema.num_categorical, dtype=torch.int64)
    with pytest.raises((RuntimeError, ValueError)):
        model(numbers, ids[:2])
    with pytest.raises((RuntimeError, ValueError)):
        model(numbers[:2], ids)
