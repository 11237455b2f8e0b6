"""DAES against its definition: loops over samples, features and components, in float64."""

import math
from itertools import pairwise, product
from statistics import NormalDist
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from daes.distribution import GKSketch
from daes.embedding import DAES, PLE, Context, build_embedding

DIM = 3
QUANTILE_LEVELS = [(2 * i + 1) / 400 for i in range(200)]


def stream(rows: int = 400, seed: int = 0) -> Tensor:
    """Skewed; mostly zeros; counts with gaps; constant; never there."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, 5, generator=generator).exp()
    values[torch.rand(rows, generator=generator) < 0.6, 1] = 0.0
    values[:, 2] = values[:, 2].mul(3).floor()
    values[torch.rand(rows, generator=generator) < 0.2, 2] = torch.nan
    values[:, 3], values[:, 4] = 7.0, torch.nan
    return values


def probes() -> Tensor:
    fresh = stream(60, seed=1)
    fresh[:, 4] = torch.linspace(-1, 1, 60)
    extremes = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, 7.0, -1.0, 6.999, 7.001, 1e30])
    return torch.cat([fresh, extremes.unsqueeze(1).repeat(1, 5)])


def quantile(ordered: list[float], level: float) -> float:
    return next(x for rank, x in enumerate(ordered, start=1) if rank / len(ordered) >= level)


def thermometer(x: float, knots: list[float]) -> list[float]:
    return [
        min(max((x - left) / (right - left), 0.0), 1.0) if right > left else float(x >= left)
        for left, right in pairwise(knots)
    ]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class Definition:
    """What the module should give for one feature that has seen `column`."""

    def __init__(self, module: DAES, feature: int, column: Tensor) -> None:
        self.module, self.feature = module, feature
        self.rows = module.num_meta if module.basis == "thermometer" else module.num_meta + 1
        self.seen = sorted(x for x in column.tolist() if math.isfinite(x))
        self.count = module.knots.shape[1] - 1
        if self.seen:
            bounds = module.distributions._bounds
            low, high = (self.seen[0], self.seen[-1]) if bounds is None else bounds[feature].tolist()
            self.knots = [low, *(min(max(self.level(i), low), high) for i in range(1, self.count)), high]
            if module.value_space:
                self.knots = [low + i / self.count * (high - low) for i in range(self.count + 1)]
            likely = [quantile(self.seen, level) for level in QUANTILE_LEVELS]
            self.centre = sum(likely) / 200
            self.scale = math.sqrt(sum((x - self.centre) ** 2 for x in likely) / 200)

    def level(self, i: int) -> float:
        return next(x for rank, x in enumerate(self.seen, start=1) if rank * self.count >= i * len(self.seen))

    def weights(self, x: float) -> list[float]:
        if not self.seen:
            return [0.0] * self.rows
        vector = thermometer(x, self.knots)
        if self.module.basis == "thermometer" and self.count == self.module.num_meta:
            return vector
        place = self.module.num_meta * sum(vector) / self.count
        if self.module.basis == "thermometer":
            return [min(max(place - i, 0.0), 1.0) for i in range(self.rows)]
        return [max(0.0, 1 - abs(place - i)) for i in range(self.rows)]

    def modulated(self, v: list[float], context: list[float] | None) -> list[float]:
        module = self.module
        if context is None or module.modulation is None:
            return v
        weight = module.modulation_weight[self.feature].tolist()
        if module.modulation == "gate":
            logits = [sum(w * e for w, e in zip(row, context, strict=True)) for row in weight]
            return [module.beta * v_i * sigmoid(z) + (1 - module.beta) * v_i for v_i, z in zip(v, logits, strict=True)]
        result = []
        for i in range(self.rows):
            entries = [sum(w * e for w, e in zip(weight[i][j], context, strict=True)) for j in range(self.rows)]
            mixed = sum(entry * v_j for entry, v_j in zip(entries, v, strict=True))
            result.append(module.beta * sigmoid(mixed) + (1 - module.beta) * v[i])
        return result

    def path(self, x: float, kind: str | None) -> float:
        if not self.seen or kind is None:
            return 0.0
        if kind == "value":
            return min(max((x - self.centre) / self.scale, -4.0), 4.0) if self.scale > 0 else 0.0
        rank = sum(thermometer(x, self.knots)) / self.count
        if kind == "rank":
            return (rank - 0.5) * math.sqrt(12)  # a uniform rank has the standard deviation 1/√12
        edge = 0.5 / self.count
        return NormalDist().inv_cdf(min(max(rank, edge), 1 - edge))

    def embedding(self, x: float, context: list[float] | None) -> list[float]:
        module = self.module
        if math.isnan(x):
            return module.missing[self.feature].tolist()
        weights = self.modulated(self.weights(x), context)
        meta = module.meta_embeddings[self.feature].tolist()
        result = [sum(w * row[d] for w, row in zip(weights, meta, strict=True)) for d in range(module.dim)]
        if module.linear is not None:
            slope = module.linear_weight[self.feature].tolist()
            result = [e + self.path(x, module.linear) * u for e, u in zip(result, slope, strict=True)]
        return result


def by_definition(module: DAES, seen: Tensor, values: Tensor, context: Tensor | None) -> Tensor:
    columns = [Definition(module, feature, seen[:, feature]) for feature in range(module.num_features)]
    rows = [
        [
            columns[feature].embedding(float(x), None if context is None else context[row].tolist())
            for feature, x in enumerate(line)
        ]
        for row, line in enumerate(values.tolist())
    ]
    return torch.tensor(rows, dtype=torch.float64)


def made(**options: Any) -> DAES:
    """A module in float64 with weights large enough to matter."""
    torch.manual_seed(0)
    return DAES(5, DIM, init_std=1.0, **options).double()


def check(module: DAES, seen: Tensor, *, context: bool = True) -> None:
    values = probes().double()
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(4, module.context_dim, generator=generator, dtype=torch.float64)
    index = torch.arange(len(values)) % 4
    expected = by_definition(module, seen, values, vectors[index] if context else None)
    for form in (vectors[index], Context(vectors, index)) if context else (None,):
        torch.testing.assert_close(module.eval()(values, form), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("modulation", "basis", "knots", "linear"),
    list(product(["gate", "tran", None], ["thermometer", "hat"], [None, 40], [None, "value", "score", "rank"])),
)
def test_every_combination_equals_the_definition(modulation, basis, knots, linear) -> None:
    module = made(modulation=modulation, basis=basis, knots=knots, linear=linear, num_meta=4)
    seen = stream().double()
    for batch in seen.split(64):
        module.observe(batch)
    check(module, seen)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_meta": 1},
        {"beta": 1.0},
        {"beta": 0.0},
        {"knots": 3, "num_meta": 7},
        {"bounds": (0.5, 3.0)},
        {"bounds": [(0.0, 9.0), (-1.0, 2.0), (0.0, 0.0), (0.0, 9.0), (0.0, 9.0)], "basis": "hat"},
        {"value_space": True},
        {"value_space": True, "bounds": (-1.0, 4.0), "basis": "hat", "knots": 20},
        {"context_pool": "concat", "num_context": 2},
        {"context_pool": "sum", "modulation": "tran"},
        {"reservoir_size": 400, "estimator": "reservoir"},
        {"estimator": lambda feature: GKSketch(1e-4)},
    ],
    ids=lambda options: ", ".join(options) or "defaults",
)
def test_every_option_equals_the_definition(options: dict[str, Any]) -> None:
    module = made(**options)
    seen = stream().double()
    module.fit(seen)
    check(module, seen)


@pytest.mark.parametrize("plain", [["value"], ["score"], ["rank"], ["score", "value"], ["rank", "score", "value"]])
@pytest.mark.parametrize("linear", [None, "score"])
def test_plain_inputs_equal_the_definition(plain, linear) -> None:
    module = made(modulation=None, basis="hat", knots=20, linear=linear, plain=plain)
    assert module.plain_dim == 5 * len(plain)
    seen, values = stream().double(), probes().double()
    before = module.eval().outputs(values).plain
    assert before.shape == (len(values), module.plain_dim)
    assert not before.any()
    module.fit(seen)
    columns = [Definition(module, feature, seen[:, feature]) for feature in range(5)]
    expected = [
        [
            0.0 if math.isnan(x) else column.path(x, kind)
            for kind in plain
            for column, x in zip(columns, row, strict=True)
        ]
        for row in values.tolist()
    ]
    torch.testing.assert_close(
        module.outputs(values).plain, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9
    )
    check(module, seen)


def test_without_plain_inputs_there_are_none() -> None:
    module = made(linear="value")
    assert module.plain_dim == 0
    assert module.outputs(probes().double()).plain is None


def test_without_context_modulation_is_off() -> None:
    module = made(modulation="tran")
    module.fit(stream().double())
    check(module, stream().double(), context=False)


def test_training_forward_encodes_with_the_batch_observed() -> None:
    module = made(modulation=None, basis="hat", linear="value", knots=20).train()
    first, second = stream(100, 3).double(), stream(50, 4).double()
    module(first)
    result = module(second)
    expected = by_definition(module, torch.cat([first, second]), second, None)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def test_a_small_reservoir_gives_its_own_quantiles() -> None:
    module = made(reservoir_size=37, tolerance=0.0)
    seen = stream(2000).double()
    for batch in seen.split(128):
        module.observe(batch)
    for feature, reservoir in enumerate(module.distributions.reservoir(place) for place in range(4)):
        column = seen[:, feature][seen[:, feature].isfinite()]
        ordered = sorted(reservoir.sample.tolist())
        inner = [next(x for r, x in enumerate(ordered, start=1) if r * 10 >= i * len(ordered)) for i in range(1, 10)]
        assert module.knots[feature].tolist() == [float(column.min()), *inner, float(column.max())]
    assert module.knots[4].isnan().all()


def test_sixty_percent_zeros_have_the_first_six_of_ten_components() -> None:
    module = DAES(1, 10, modulation=None, num_meta=10)
    module.fit(torch.cat([torch.zeros(60), torch.arange(1.0, 41.0)]).unsqueeze(1))
    with torch.no_grad():
        module.meta_embeddings.copy_(torch.eye(10).unsqueeze(0))
    assert module.eval()(torch.zeros(1, 1)).flatten().tolist() == [1.0] * 6 + [0.0] * 4


@pytest.mark.parametrize("basis", ["thermometer", "hat"])
@pytest.mark.parametrize("linear", [None, "value", "score", "rank"])
def test_before_the_first_value_every_weight_is_zero(basis, linear) -> None:
    module = made(basis=basis, linear=linear).eval()
    values = torch.randn(6, 5, dtype=torch.float64)
    values[0, 0] = torch.nan
    result = module(values, None)
    assert torch.equal(result[0, 0], module.missing[0])
    result[0, 0] = 0.0
    assert not result.any()


def test_the_coordinate_never_falls() -> None:
    module = made(modulation=None, basis="hat", knots=100)
    module.fit(stream().double())
    with torch.no_grad():
        module.meta_embeddings.copy_(torch.arange(11.0).view(1, 11, 1).expand(5, 11, DIM))
    values = torch.linspace(-5, 30, 5001, dtype=torch.float64).unsqueeze(1).repeat(1, 5)
    assert bool((module.eval()(values).diff(dim=0) >= -1e-12).all())


def test_beta_zero_with_fixed_knots_is_ple() -> None:
    seen, values = stream()[:, :4], probes()[:, :4]
    ple = PLE(4, DIM, num_meta=6).fit(seen)
    for options in ({"modulation": None}, {"modulation": "gate", "beta": 0.0}, {"modulation": "tran", "beta": 0.0}):
        fixed = DAES.from_knots(ple.knots, DIM, **options)
        streaming = DAES(4, DIM, num_meta=6, **options).fit(seen)
        for module in (fixed, streaming.eval()):
            module.load_state_dict({"meta_embeddings": ple.meta_embeddings, "missing": ple.missing}, strict=False)
            assert torch.equal(module.knots, ple.knots)
            assert torch.equal(module(values, torch.randn(len(values), DIM)), ple(values))


def test_fixed_knots_observe_nothing() -> None:
    knots = torch.tensor([[0.0, 1.0, 1.0, 4.0], [-1.0, 0.0, 2.0, 3.0]])
    module = DAES.from_knots(knots, 4, basis="hat", linear="value").train()
    assert (module.num_meta, module.distributions.follows) == (3, False)
    module(torch.full((10, 2), 50.0))
    assert torch.equal(module.knots, knots)
    torch.testing.assert_close(module.distributions.centre, knots.mean(1))
    torch.testing.assert_close(module.distributions.scale, knots.std(1, correction=0))
    other = DAES.from_knots(torch.zeros(2, 4), 4, basis="hat", linear="value")
    other.load_state_dict(load(save(module.state_dict())), strict=True)
    values = torch.randn(20, 2)
    assert torch.equal(other(values), module(values))
    few = DAES.from_knots(knots, 4, num_meta=2)
    assert few.meta_embeddings.shape == (2, 2, 4)


@pytest.mark.parametrize("knots", [torch.zeros(3), torch.zeros(2, 1), torch.tensor([[1.0, 0.0]])])
def test_knots_must_ascend(knots: Tensor) -> None:
    with pytest.raises(ValueError, match=r"knots must be \(q, K\+1\) and ascending"):
        DAES.from_knots(knots)


def test_a_state_of_fixed_knots_and_one_that_follows_do_not_mix() -> None:
    fixed, following = DAES.from_knots(torch.tensor([[0.0, 1.0]]), 4), DAES(1, 4, num_meta=1)
    for module, state in ((fixed, following.state_dict()), (following, fixed.state_dict())):
        with pytest.raises((RuntimeError, ValueError), match="key"):
            module.load_state_dict(state)


@pytest.mark.parametrize("name", ["daes-gate", "daes-tran", "daes"])
def test_training_after_a_reload_is_the_same_to_the_bit(name: str) -> None:
    def new() -> tuple[DAES, torch.optim.Optimizer]:
        torch.manual_seed(0)
        module = build_embedding(name, 5, 4, reservoir_size=50)
        return module, torch.optim.Adam(module.parameters())

    def train(module: DAES, optimizer: torch.optim.Optimizer, batches: range) -> None:
        for number in batches:
            context = torch.randn(64, 4, generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad()
            (module(stream(64, seed=number), context) - 1).square().mean().backward()
            optimizer.step()

    (whole, whole_optimizer), (first, first_optimizer), (second, second_optimizer) = new(), new(), new()
    train(whole, whole_optimizer, range(8))
    train(first, first_optimizer, range(5))
    second.load_state_dict(load(save(first.state_dict())), strict=True)
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    train(second, second_optimizer, range(5, 8))
    for key, tensor in whole.state_dict().items():
        torch.testing.assert_close(second.state_dict()[key], tensor, rtol=0, atol=0, equal_nan=True)


def test_observation_may_be_left_to_the_loader() -> None:
    inside, outside = (build_embedding("daes", 5, 4) for _ in range(2))
    outside.load_state_dict(inside.state_dict())
    outside.observe_in_forward = False
    outside(stream())
    assert outside.knots.isnan().all()
    outside.observe(stream())
    assert torch.equal(inside(stream()), outside(stream()))


def test_options_of_the_estimator_reach_it() -> None:
    module = DAES(2, 4, reservoir_size=50, seed=9, estimator_options={"half_life": 500.0})
    found = [(r.size, r.half_life, r.seed) for r in module.distributions.bank.estimators]
    assert found == [
        (50, 500.0, 9),
        (50, 500.0, 10),
    ]
    old, new = torch.zeros(5000, 2), torch.ones(5000, 2)
    module.observe(old)
    module.observe(new)
    assert module.knots[:, 1:].tolist() == [[1.0] * 10] * 2  # ten half-lives later nothing old is left


def test_seeds_decide_what_the_reservoir_holds() -> None:
    seen = stream(3000)
    first, same, other = (DAES(5, 4, reservoir_size=50, seed=seed).fit(seen).knots for seed in (1, 1, 2))
    torch.testing.assert_close(first, same, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(first[:4], other[:4])


def test_only_context_that_fits_is_taken() -> None:
    module = DAES(2, 4, context_pool="concat", num_context=3).fit(torch.randn(50, 2))
    assert module.context_dim == 12
    assert module.pool(torch.randn(5, 3, 4)).shape == (5, 12)
    values = torch.randn(5, 2)
    for context in (torch.randn(5, 4), torch.randn(12), Context(torch.randn(2, 4), torch.zeros(5, dtype=torch.int64))):
        with pytest.raises(ValueError, match=r"context must have shape \(B, 12\), got "):
            module(values, context)
    for context in (torch.randn(1, 12), Context(torch.randn(2, 12), torch.zeros(4, dtype=torch.int64))):
        with pytest.raises(ValueError, match="context must have one entry for each of 5 rows, got "):
            module(values, context)


def test_context_moves_the_embedding_and_learns() -> None:
    for name in ("daes-gate", "daes-tran"):
        module = build_embedding(name, 5, 4, init_std=1.0).fit(stream())
        context = torch.randn(400, 4, requires_grad=True)
        result = module.eval()(stream(), context)
        assert not torch.allclose(result, module(stream(), torch.zeros(400, 4)))
        result.sum().backward()
        assert bool((context.grad != 0).any(1).all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", ["daes-gate", "daes-tran", "daes"])
def test_training_never_waits_for_the_device(name: str) -> None:
    module = build_embedding(name, 5, 4, reservoir_size=500).cuda()
    batches = [stream(256, seed=number).cuda() for number in range(8)]
    vectors, index = torch.randn(10, 4, device="cuda"), torch.arange(256, device="cuda") % 10
    module(batches[0], vectors[index]).sum().backward()  # the first call may set things up
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches[1:]:
            module(batch, vectors[index]).sum().backward()
            module(batch, Context(vectors, index)).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("form", ["rows", "shared"])
@pytest.mark.parametrize("options", [{}, {"modulation": "tran"}, {"basis": "hat", "knots": 100, "linear": "score"}])
def test_nothing_larger_than_the_output_is_ever_held(options: dict[str, Any], form: str, largest_tensor) -> None:
    rows, features, dim = 3000, 4, 16
    module = DAES(features, dim, reservoir_size=1000, **options).train()
    values, vectors = torch.randn(rows, features), torch.randn(30, dim, requires_grad=True)
    index = torch.arange(rows) % 30
    with largest_tensor() as largest:
        module(values, vectors[index] if form == "rows" else Context(vectors, index)).sum().backward()
    assert largest.numel == rows * features * dim  # a tenth of (B, q, M, d), a sixth of (B, q, M, M)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"num_meta": 0}, r"num_meta must .*got 0"),
        ({"knots": 2.5}, r"knots must .*got 2.5"),
        ({"beta": 1.5}, r"beta must lie in \[0, 1\], got 1.5"),
        ({"beta": math.nan}, r"beta must .*got nan"),
        ({"modulation": "gates"}, "modulation must be one of gate, tran, None, got 'gates'"),
        ({"basis": "spline"}, r"basis must .*got 'spline'"),
        ({"linear": True}, r"linear must .*got True"),
        ({"plain": ["value", "level"]}, r"plain must be .*got \['value', 'level'\]"),
        ({"plain": "score"}, "plain must be .*got 'score'"),
        ({"plain": ["score", "score"]}, r"plain must be .*got \['score', 'score'\]"),
        ({"context_pool": "max"}, r"context_pool must .*got 'max'"),
        ({"reservoir_size": 0}, "reservoir_size must be a positive integer, got 0"),
        ({"init_std": -1.0}, r"init_std must .*got -1.0"),
        ({"init_std": math.inf}, r"init_std must .*got inf"),
        ({"bounds": (1.0, 0.0)}, "bounds must be finite pairs"),
    ],
)
def test_bad_arguments_are_shown(options: dict[str, Any], shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        DAES(2, 4, **options)
