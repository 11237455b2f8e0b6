"""Vectors of numbers by compiled loops are what the plain version gives."""

import numpy as np
import pytest
import torch

from daes import native
from daes.embedding import DAES, Context, build_embedding

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")


@pytest.mark.parametrize("name", ["linear_weight", "missing", "meta_embeddings"])
def test_weights_of_numbers_may_lie_in_any_order(name, make_values):
    embedding = DAES(3, 4, modulation=None, linear="value").eval()
    values = make_values(50, 3)
    embedding.observe(values)
    expected = embedding(values)
    weight = getattr(embedding, name).detach()
    setattr(embedding, name, torch.nn.Parameter(weight.transpose(0, 1).contiguous().transpose(0, 1)))
    torch.testing.assert_close(embedding(values), expected)


@pytest.mark.parametrize("knots", [1, 2, 15, 16, 17, 31, 32, 100, 250])
def test_places_among_knots(knots, plainly):
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


def test_a_deviation_whose_half_is_nothing_is_that_of_a_constant():
    module = build_embedding("daes", 1, 4)
    values = torch.tensor([0.0, 2.8e-45]).repeat(10).unsqueeze(1)
    fields, plain = module.outputs(values)
    assert module.distributions.scale.item() == 2.0**-149
    assert (plain[:, 1] == 0).all()
    assert fields.isfinite().all()


@pytest.mark.parametrize("beta", [0.3, 1.0])
@pytest.mark.parametrize("options", [{}, {"basis": "hat", "knots": 40, "linear": "value", "plain": ["score", "value"]}])
@pytest.mark.parametrize(
    ("rows", "contexts", "q", "dim"),
    [(0, 0, 2, 3), (1, 1, 1, 1), (3, 50, 18, 16), (200, 7, 35, 16), (130, 4, 3, 24), (65, 65, 2, 5)],
)
def test_gated_tables(rows, contexts, q, dim, options, beta, plainly, make_values):
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
def test_embedding_numbers(method, rows, q, dim, seen, contexts, plainly, make_values):
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


def test_in_double_precision_nothing_is_compiled(make_values):
    module = DAES(2, dim=4, basis="hat", modulation=None).double()
    module.observe(make_values(50, 2).double())
    assert module(make_values(10, 2).double()).dtype == torch.float64


def test_contexts_that_there_are_not_are_refused():
    embedding = DAES(num_features=2, dim=3).eval()
    values, vectors = torch.zeros(2, 2), torch.zeros(2, 3)
    expected = embedding(values, Context(vectors, torch.tensor([0, 1])))
    assert torch.equal(embedding(values, Context(vectors, torch.tensor([0, 1], dtype=torch.int32))), expected)
    assert torch.equal(embedding(values, Context(vectors, torch.tensor([0, 5, 1, 5])[::2])), expected)
    for index in ([0, 2], [0, 2**40]):
        with pytest.raises((IndexError, RuntimeError)):
            embedding(values, Context(vectors, torch.tensor(index)))
