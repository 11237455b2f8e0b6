"""Knots that follow a stream: quantiles of the reservoir, exactly, and a state that travels."""

import math

import numpy as np
import pytest
import torch

from daes.distribution import ESTIMATORS, GKSketch, JumpReservoir, ReservoirBank
from daes.embedding.observer import Observer, make_bank


def stream(rows: int = 5000, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, 3, generator=generator).exp()
    values[:, 1] = values[:, 1].floor()
    values[torch.rand(rows, generator=generator) < 0.3, 2] = torch.nan
    values[7, 0], values[8, 1] = torch.inf, -torch.inf
    return values


def knots_by_definition(members: list[float], low: float, high: float, count: int) -> list[float]:
    ordered = sorted(members)
    inner = [next(x for r, x in enumerate(ordered, start=1) if r * count >= i * len(ordered)) for i in range(1, count)]
    return [low, *inner, high]


@pytest.mark.parametrize("size", [100, 100_000])
def test_knots_are_the_quantiles_of_the_reservoir(size: int) -> None:
    values = stream()
    observer = Observer(3, 10, reservoir_size=size, tolerance=0.0)
    for batch in values.split(512):
        observer.observe(batch)
    assert isinstance(observer.bank, ReservoirBank)
    for feature, reservoir in enumerate(observer.bank.estimators):
        column = [x for x in values[:, feature].tolist() if math.isfinite(x)]
        if size > len(column):
            assert sorted(reservoir.sample.tolist()) == sorted(column)
        expected = knots_by_definition(reservoir.sample.tolist(), min(column), max(column), 10)
        assert observer.knots[feature].tolist() == expected


def test_tolerance_bounds_how_far_a_rank_lags() -> None:
    values = stream(20_000)[:, :1]
    lazy, prompt = (Observer(1, 10, reservoir_size=1000, tolerance=t) for t in (0.02, 0.0))
    for batch in values.split(64):
        lazy.observe(batch)
        prompt.observe(batch)
        assert prompt.bank is not None
        ranks = prompt.bank.cdf(lazy.knots[:, 1:-1].double().numpy().T).flatten()
        below = prompt.bank.cdf(np.nextafter(lazy.knots[:, 1:-1].double().numpy().T, -np.inf)).flatten()
        for i in range(9):
            assert below[i] - 0.0201 <= (i + 1) / 10 <= ranks[i] + 0.0201


def test_nothing_observed_is_nan_and_a_single_value_is_all_knots() -> None:
    observer = Observer(2, 4)
    assert observer.knots.isnan().all()
    observer.observe(torch.tensor([[torch.nan, 3.0], [torch.inf, torch.nan]]))
    assert observer.knots[0].isnan().all()
    assert observer.knots[1].tolist() == [3.0] * 5


def test_bounds_take_the_place_of_the_extremes() -> None:
    values = torch.arange(101.0).unsqueeze(1).repeat(1, 2)
    observer = Observer(2, 4, bounds=[(-10.0, 60.0), (0.0, 200.0)])
    observer.observe(values)
    assert observer.knots.tolist() == [[-10, 25, 50, 60, 60], [0, 25, 50, 75, 200]]
    both = Observer(2, 4, bounds=(10.0, 90.0))
    assert both.knots.isnan().all()
    both.observe(values)
    assert both.knots.tolist() == [[10, 25, 50, 75, 90]] * 2


@pytest.mark.parametrize("bounds", [(2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_bad_bounds_are_shown(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="bounds must be finite pairs"):
        Observer(2, 4, bounds=bounds)


def test_who_follows_is_shown_equally_likely_values() -> None:
    shown = []

    class Follower(Observer):
        def follow(self, likely: torch.Tensor) -> None:
            shown.append(likely)

    observer = Follower(2, 4)
    observer.observe(torch.stack([torch.arange(1000.0), torch.full((1000,), torch.nan)], 1))
    (likely,) = shown
    assert likely[0].tolist() == [5.0 * i + 2 for i in range(200)]
    assert not likely[1].any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_serves(estimator: str) -> None:
    observer = Observer(2, 10, estimator=estimator)
    values = torch.arange(10_001.0).unsqueeze(1) * torch.tensor([1.0, -2.0])
    observer.observe(values)
    expected = torch.stack([torch.linspace(0, 10_000, 11), torch.linspace(-20_000, 0, 11)])
    width = torch.tensor([[10_000.0], [20_000.0]])
    assert bool(((observer.knots - expected).abs() <= 0.03 * width).all())
    assert observer.knots[:, [0, -1]].tolist() == [[0, 10_000], [-20_000, 0]]


def test_an_estimator_may_come_from_a_function() -> None:
    observer = Observer(2, 4, estimator=lambda feature: GKSketch(0.1 / (1 + feature)))
    assert [sketch.epsilon for sketch in observer.bank.estimators] == [0.1, 0.05]
    with pytest.raises(ValueError, match="takes no further options, got half_life"):
        make_bank(lambda feature: JumpReservoir(10), 2, 10, 0, half_life=5.0)


def test_options_reach_the_estimator() -> None:
    bank = make_bank("jump", 2, 50, 3, tolerance=0.25, half_life=70.0)
    found = [(r.size, r.skip, r.half_life, r.tolerance, r.seed) for r in bank.estimators]
    assert found == [(50, "exact", 70.0, 0.25, 3), (50, "exact", 70.0, 0.25, 4)]
    assert [r.skip for r in make_bank("jump-paper", 2, 50, 3).estimators] == ["paper", "paper"]
    plain = make_bank("reservoir", 2, 50, 3, tolerance=0.25)
    assert [(r.size, r.seed, r.tolerance) for r in plain.estimators] == [(50, 3, 0.25), (50, 4, 0.25)]
    assert [sketch.epsilon for sketch in make_bank("gk", 2, 50, 3, epsilon=0.02).estimators] == [0.02, 0.02]


def test_an_unknown_estimator_is_named() -> None:
    with pytest.raises(ValueError, match=r"estimator must be one of reservoir, jump.*got 'jumping'"):
        Observer(2, 4, estimator="jumping")


@pytest.mark.parametrize("estimator", ["jump", "jump-paper", "reservoir", "gk", "order-statistics", "tdigest"])
def test_a_loaded_observer_goes_on_to_the_same_bits(estimator: str) -> None:
    values = stream()
    options = {"estimator": estimator, "reservoir_size": 100}
    whole, first, second = (Observer(3, 10, **options) for _ in range(3))
    for batch in values.split(100):
        whole.observe(batch)
    for batch in values[:3000].split(100):
        first.observe(batch)
    second.load_state_dict(first.state_dict(), strict=True)
    for batch in values[3000:].split(100):
        second.observe(batch)
    assert torch.equal(second.knots, whole.knots)
    assert torch.equal(second.get_extra_state(), whole.get_extra_state())


def test_a_state_that_does_not_fit_is_refused() -> None:
    state = Observer(3, 10, reservoir_size=100).state_dict()
    with pytest.raises((RuntimeError, ValueError), match="size"):
        Observer(3, 10, reservoir_size=50).load_state_dict(state)
    state["_extra_state"] = torch.empty(0, dtype=torch.uint8)
    with pytest.raises((RuntimeError, ValueError), match="knots that follow a stream"):
        Observer(3, 10, reservoir_size=100).load_state_dict(state)
