"""The oracle is the plain version in float64."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from daes.embedding import Context, build_embedding, kernels
from daes.embedding.daes import DAES

METHODS = {
    "daes": {},
    "daes-gate": {},
    "daes-tran": {},
    "thermometer of few knots": {"knots": 3, "num_meta": 7, "modulation": None, "linear": "score"},
    "hat, rank": {"basis": "hat", "linear": "rank", "plain": ["rank", "value", "score"], "modulation": None},
    "hat gate": {"basis": "hat", "modulation": "gate", "linear": "value", "plain": ["score"]},
    "gate, concatenated": {"knots": 4, "context_pool": "concat", "num_context": 2},
    "hat tran": {"basis": "hat", "modulation": "tran", "beta": 0.3, "knots": 20},
    "value space": {"value_space": True, "bounds": (-1.0, 2.0), "modulation": None},
    "one bin": {"num_meta": 1, "modulation": None, "basis": "hat"},
}


def values_of(rows, features, seed=0):
    """Columns with ties; some values are missing or infinite, one column is constant and one never seen."""
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(rows, features)), 1).astype(np.float32)
    values[random.random(values.shape) < 0.1] = np.nan
    values[random.random(values.shape) < 0.02] = np.inf
    values[random.random(values.shape) < 0.02] = -np.inf
    values[:, 0] = 3.0
    values[:, -1] = np.nan
    return torch.from_numpy(values)


def make(name, features, dim):
    torch.manual_seed(0)
    options = METHODS[name]
    if not options:
        method = build_embedding(name, features, dim, init_std=1.0)
    else:
        method = DAES(features, dim, init_std=1.0, **options)
    method.observe(values_of(500, features, seed=1))
    return method.eval()


def outputs_and_gradients(method, values, context, weights):
    fields, plain = method.outputs(values, context)
    parameters = dict(method.named_parameters())
    leaf = context.vectors if isinstance(context, Context) else context
    leaves = [*parameters.values(), *([] if leaf is None else [leaf])]
    gradients = torch.autograd.grad((fields * weights).sum(), leaves, allow_unused=True)
    return fields, plain, dict(zip([*parameters, "context"], gradients, strict=False))


@pytest.mark.parametrize(("rows", "features", "dim"), [(40, 3, 16), (1, 2, 5), (0, 3, 4)])
@pytest.mark.parametrize("name", METHODS)
def test_outputs_and_gradients_are_those_of_the_plain_version(kernel_device, monkeypatch, name, rows, features, dim):
    method = make(name, features, dim)
    values = values_of(rows, features)
    exact = deepcopy(method).double()
    context = None
    if method.uses_context:
        context = Context(torch.randn(3, method.context_dim), torch.randint(3, (rows,)))
    weights = torch.randn(rows, features, dim)
    fast = deepcopy(method).to(kernel_device)
    there = None
    if context is not None:
        there = Context(context.vectors.to(kernel_device).requires_grad_(), context.index.to(kernel_device))
        context = Context(context.vectors.double().requires_grad_(), context.index)
    assert fast._fused(values.to(kernel_device), there, fast.plain) is not None
    mine = outputs_and_gradients(fast, values.to(kernel_device), there, weights.to(kernel_device))
    theirs = outputs_and_gradients(exact, values.double(), context, weights.double())
    for one, other in zip(mine[:2], theirs[:2], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one.cpu().double(), other, rtol=1e-4, atol=1e-4)
    for key, gradient in theirs[2].items():
        found = mine[2][key]
        if gradient is None:
            assert found is None or not found.any()
        else:
            torch.testing.assert_close(found.cpu().double(), gradient, rtol=1e-4, atol=2e-4, msg=f"{key}")


@pytest.mark.parametrize(("rows", "features", "dim"), [(40, 3, 16), (1, 2, 5), (0, 3, 4)])
@pytest.mark.parametrize("name", ["daes-gate", "hat gate", "gate, concatenated"])
def test_a_gate_for_every_row_is_that_of_the_plain_version(kernel_device, name, rows, features, dim):
    method = make(name, features, dim)
    values, weights = values_of(rows, features), torch.randn(rows, features, dim)
    vectors = torch.randn(rows, method.context_dim)
    found = []
    for device, dtype in ((kernel_device, torch.float32), (torch.device("cpu"), torch.float64)):
        one, moved = deepcopy(method).to(device, dtype), values.to(device, dtype)
        context = vectors.to(device, dtype).requires_grad_()
        assert (one._fused(moved, context, one.plain) is None) == (dtype == torch.float64)
        fields, plain, gradients = outputs_and_gradients(one, moved, context, weights.to(device, dtype))
        found.append([fields, *([] if plain is None else [plain]), *gradients.values()])
    for mine, theirs in zip(*found, strict=True):
        if theirs is None:  # no rows, no gradient
            assert not mine.any()
        else:
            torch.testing.assert_close(mine.cpu().double(), theirs, rtol=1e-4, atol=2e-4)


def test_gradients_of_a_slice_are_read_where_they_are(kernel_device):
    """Concatenation gives gradients that are not contiguous."""
    method = make("daes", 3, 4).to(kernel_device)
    values = values_of(50, 3).to(kernel_device)
    weights = torch.randn(50, 5, 4, device=kernel_device)
    found = []
    for side_by_side in (True, False):
        fields = method(values)
        if side_by_side:
            fields = torch.cat([fields, torch.ones_like(fields)[:, :2]], 1)
        found.append(torch.autograd.grad((fields * weights[:, : fields.shape[1]]).sum(), method.meta_embeddings)[0])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("own", [False, True])
def test_a_batch_gives_the_same_bits_every_time(kernel_device, own):
    method = make("daes-gate", 3, 4).to(kernel_device)
    values = values_of(150, 3).to(kernel_device)
    index = torch.randint(3, (150,), device=kernel_device)
    vectors = torch.randn(3, 4, device=kernel_device)
    context = vectors[index].requires_grad_() if own else Context(vectors.requires_grad_(), index)
    weights = torch.randn(150, 3, 4, device=kernel_device)
    first, second = (outputs_and_gradients(method, values, context, weights)[2] for _ in range(2))
    assert all(gradient is None or torch.equal(gradient, second[name]) for name, gradient in first.items())


@pytest.mark.parametrize(
    "change",
    [
        lambda method, values: (method.double(), values),
        lambda method, values: (method, values.requires_grad_()),
        lambda method, values: (make("thermometer of few knots", 3, 160), values),
    ],
)
def test_what_kernels_do_not_take_goes_the_plain_way(kernel_device, change):
    method, values = change(make("daes", 3, 4), values_of(5, 3))
    method, values = method.to(kernel_device), values.to(kernel_device)
    assert method._fused(method._cast(values), None, ()) is None
    assert method(values).shape[:2] == (5, 3)


@pytest.mark.parametrize(("name", "dim"), [("daes-gate", 65), ("daes-tran", 4)])
def test_contexts_per_row_that_kernels_do_not_take_go_the_plain_way(kernel_device, name, dim):
    method, values = make(name, 3, dim).to(kernel_device), values_of(5, 3).to(kernel_device)
    context = torch.randn(5, dim, device=kernel_device)
    assert method._fused(values, context, ()) is None
    assert method(values, context).shape == (5, 3, dim)


def test_a_deviation_whose_half_is_nothing_is_that_of_a_constant(kernel_device):
    method = make("daes", 3, 4)
    method.distributions.scale.fill_(2.0**-149)
    method.distributions.centre.zero_()
    method.to(kernel_device)
    fields, plain = method.outputs(torch.zeros(5, 3, device=kernel_device))
    assert (plain[:, 3:] == 0).all()
    assert fields.isfinite().all()


def test_the_cpu_goes_the_plain_way_by_itself():
    assert not kernels.usable(torch.ones(1))


def test_custom_operators_are_sound(kernel_device):
    from daes.embedding.kernels.interpolation import interpolate

    method = make("daes", 3, 4).to(kernel_device)
    known = method.distributions
    table, missing = (t.detach().clone().requires_grad_() for t in (method.meta_embeddings[None], method.missing))
    arguments = (
        values_of(20, 3).to(kernel_device).nan_to_num(), known.knots, known.centre, known.scale, table, missing,
        None, None, 10, "", "value",
    )  # fmt: skip
    torch.library.opcheck(interpolate, arguments)


def test_custom_operators_of_a_gate_are_sound(kernel_device):
    from daes.embedding.kernels.gating import gated

    method = make("daes-gate", 3, 4).to(kernel_device)
    known = method.distributions
    tables = (method.modulation_weight, method.meta_embeddings, method.missing)
    context = torch.randn(20, 4, device=kernel_device, requires_grad=True)
    arguments = (
        values_of(20, 3).to(kernel_device).nan_to_num(), known.knots, known.centre, known.scale, context,
        *(tensor.detach().clone().requires_grad_() for tensor in tables), None, 10, 0.5, "", "value",
    )  # fmt: skip
    torch.library.opcheck(gated, arguments)
