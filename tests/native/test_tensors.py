"""Compiled loops on tensors give what the plain versions give, whatever the shapes and values."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from daes import native
from daes.embedding import CategoricalEmbedding, build_embedding
from daes.embedding.distributions import FeatureDistributions
from daes.evidence import Evidence, EvidenceInputs
from daes.training.optimizer import Adagrad, coalesced

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(lambda: torch.device("meta"), id="another default device"),
        pytest.param(lambda: FakeTensorMode(allow_non_fake_inputs=True), id="fake tensors"),
    ],
)
def test_loops_are_not_used_where_tensors_have_no_memory(mode):
    values = torch.ones(3, 2)
    assert native.serves(values)
    with mode():
        assert not native.serves(values)


def test_models_compute_the_same_whatever_the_default_device_and_under_transforms():
    method = build_embedding("daes", num_features=2, dim=4)
    values = torch.randn(50, 2)
    method(values)
    expected = method.eval()(values)
    with torch.device("meta"):
        torch.testing.assert_close(method(values), expected)
    with torch.device("cpu"):
        assert native.serves(values)
    parameters = {name: one.detach() for name, one in method.named_parameters()}
    found = torch.func.grad(lambda given: torch.func.functional_call(method, given, (values,)).sum())(parameters)
    expected.sum().backward()
    for name, one in method.named_parameters():
        torch.testing.assert_close(found[name], one.grad)


@pytest.mark.parametrize("rows", [0, 1, 7, 300])
def test_rows_of_hashed_ids(rows, plainly):
    embedding = CategoricalEmbedding([5, 1, 1000], dim=4)
    ids = torch.randint(-(2**62), 2**62, (rows, 3), generator=torch.Generator().manual_seed(0))
    ids[torch.rand(ids.shape) < 0.2] = 0
    found = embedding.rows(ids)
    with plainly():
        assert torch.equal(found, embedding.rows(ids))


@pytest.mark.parametrize(("rows", "dim"), [(0, 4), (1, 1), (9, 3), (400, 16)])
def test_look_ups_and_their_gradients(rows, dim, plainly):
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


def test_adagrad_on_rows(plainly):
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


@pytest.mark.parametrize("reservoir_size", [5, 64, 100_000])
def test_observing(reservoir_size, plainly, make_values):
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
def test_observing_many_features(num_features, plainly, make_values):
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
def test_knots_that_follow_many_small_batches(reservoir_size, tolerance, plainly):
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


def test_a_trace_has_no_loops():
    seen = []

    def traced(tensor):
        seen.append(native.serves(tensor))
        return tensor + 1

    torch.jit.trace(traced, torch.zeros(3), check_trace=False)
    assert seen == [False]
    assert native.serves(torch.zeros(3))
