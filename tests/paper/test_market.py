import numpy as np
import pytest
import torch

from daes.paper.market import Market, _learn, _learner, auction, paired_interval, simulate, unpaired_interval
from daes.simulation import AdStream

SMALL = Market(requests_per_day=200, warm_up_days=1, days=2, candidates=3, backbone="fnn", batch_size=50)


def test_the_auction_against_a_loop():
    rng = np.random.default_rng(0)
    bids, predicted = rng.random((5, 200)), rng.random((5, 200))
    before = bids.copy(), predicted.copy()
    winner, price = auction(bids, predicted)
    np.testing.assert_array_equal((bids, predicted), before)
    for request in range(200):
        order = sorted(range(5), key=lambda ad: -bids[ad, request] * predicted[ad, request])
        assert winner[request] == order[0]
        second = bids[order[1], request] * predicted[order[1], request]
        assert price[request] == pytest.approx(second / predicted[order[0], request])
        assert price[request] <= bids[winner[request], request]


def test_an_experiment_accounts_for_every_request_and_user():
    found = simulate(SMALL, ("efd", "fe"), seed=1)
    assert found["requests"] == 400
    assert sum(found["users"]) <= 400
    assert min(found["users"]) > 50
    assert len(found["daily_lift"]) == 2
    for name in ("lift", "paired_lift", "value_lift"):
        low, high = found[f"{name.removesuffix('_lift') if name != 'lift' else 'lift'}_interval"]
        assert low <= found[name] <= high
    assert found == simulate(SMALL, ("efd", "fe"), seed=1)


def test_an_arm_against_itself_differs_only_by_what_it_learned():
    found = simulate(SMALL, ("fe", "fe"), seed=0)
    assert found["paired_lift"] == pytest.approx(0, abs=0.2)
    assert found["paired_lift"] != 0  # each learns from its own users


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    covered = paired = 0
    for _ in range(100):
        control, treatment = rng.exponential(1.0, 400), rng.exponential(1.1, 400)
        low, high = unpaired_interval(control, treatment, rng)
        covered += low <= 0.1 <= high
        base = rng.exponential(1.0, 400)
        low, high = paired_interval(base, base * rng.normal(1.1, 0.2, 400), rng)
        paired += low <= 0.1 <= high
    assert covered >= 88
    assert paired >= 88


def test_each_arm_draws_random_numbers_of_its_own():
    market = Market(requests_per_day=200, batch_size=50)
    stream = AdStream(None, seed=0, users=200, rows_per_day=200)
    learners = [_learner(market, "fe", stream, 200, 0) for _ in range(3)]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for learner, arm in zip(learners, [(0, 0), (0, 0), (0, 1)], strict=True):
        for row in (0, 50):
            _learn(learner, stream.batch(row, row + 50), row, arm)
    assert torch.equal(torch.get_rng_state(), before)
    first, same, other = ([p.detach() for p in learner.model.parameters()] for learner in learners)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(first, same, strict=True))
    assert not all(torch.equal(mine, theirs) for mine, theirs in zip(first, other, strict=True))
