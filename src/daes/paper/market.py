"""A simulated ad market: users in two arms, models that learn from their own clicks, and an auction."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from daes.metrics.auc import exact_auc
from daes.paper.data import Floats
from daes.paper.experiment import Findings
from daes.paper.variants import L2, LEARNING_RATE, published_model
from daes.simulation import AdStream
from daes.simulation.draws import uniform_of_code
from daes.stream.batch import Batch
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

Ints = NDArray[np.int64]
_HOURS = 24
_LEAST_AN_HOUR = 500  # a small market serves several hours at once, or most time would be spent in overhead
_FITTED_ROWS = 50_000
_ARM_SALT = 7_919
_REPLICATES = 1000
_LEAST_CLICK_RATE = 1e-4


@dataclass(frozen=True)
class Market:
    """The market of the simulated experiment.

    Args:
        requests_per_day: requests in a simulated day.
        warm_up_days: days before the experiment, with the stream's own ads; both models learn from them.
        days: days of the experiment.
        candidates: number of ads that bid for a request.
        bid_cap: maximum bid; higher ones are reduced to it.
        backbone: backbone of both models.
        batch_size: rows per training step.
        device: where to compute.
    """

    requests_per_day: int = 30_000
    warm_up_days: int = 2
    days: int = 7
    candidates: int = 20
    bid_cap: float = 5.0
    backbone: str = "deepfm"
    batch_size: int = 256
    device: str = "cpu"


def auction(bids: Floats, predicted: Floats) -> tuple[Ints, Floats]:
    """Generalised second price: the ad with the highest bid × predicted click rate is shown, and a click on it costs
    the lowest bid that would still have won: the second highest product over the winner's predicted rate.

    **Shape.** bids and predicted (K, n), K ≥ 2 → winner (n,), price (n,).

    >>> auction(np.array([[2.0], [1.0]]), np.array([[0.1], [0.15]]))
    (array([0]), array([1.5]))
    """
    products = bids * predicted
    winner = products.argmax(axis=0)
    requests = np.arange(products.shape[1])
    products[winner, requests] = -np.inf
    price: Floats = products.max(axis=0) / predicted[winner, requests]
    return winner, price


def simulate(market: Market, methods: Sequence[str], seed: int) -> Findings:
    """Run one experiment: the first method in the control arm, the second in the treatment arm.

    Users are assigned to arms by a hash. In each hour both models score all candidates of all requests. The model of a
    user's arm chooses what the user sees, and learns from the clicks. Paired results also use what only a simulator
    knows: what the other model would have shown, and the true click rates.
    """
    stream = AdStream(None, seed=seed, users=market.requests_per_day, rows_per_day=market.requests_per_day)
    start = market.warm_up_days * market.requests_per_day
    learners = [_learner(market, method, stream, min(start, _FITTED_ROWS), seed) for method in methods]
    for first in range(0, start, market.batch_size):
        batch = stream.batch(first, min(first + market.batch_size, start))
        for number, learner in enumerate(learners):
            _learn(learner, batch, first, (seed, number))
    hours = [_hour(market, stream, learners, *span, seed) for span in _hours(market, start)]
    requests = {name: np.concatenate([hour[name] for hour in hours]) for name in hours[0]}
    return _findings(market, requests, np.random.default_rng(seed))


def _learner(market: Market, method: str, stream: AdStream, rows: int, seed: int) -> TrainingStep:
    sample, device = stream.batch(0, rows), market.device
    model = published_model(stream.schema, sample, method, market.backbone, seed=seed, device=device, l2=L2)
    config = TrainConfig(
        batch_size=market.batch_size, optimizer="adam", learning_rate=LEARNING_RATE, bad_batch="skip", seed=seed
    )
    return TrainingStep(model, config)


def _learn(learner: TrainingStep, batch: Batch, row: int, arm: tuple[int, int]) -> None:
    """A training step with its own random numbers, so that one arm does not affect the other."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([*arm, row]).generate_state(1)[0]))
        learner.learn(batch, row)


def _hours(market: Market, start: int) -> list[tuple[int, int]]:
    """The range of requests of each hour of the experiment, or of several hours together."""
    a_day = min(max(market.requests_per_day // _LEAST_AN_HOUR, 1), _HOURS)
    marks = np.linspace(start, start + market.days * market.requests_per_day, market.days * a_day + 1)
    return list(pairwise(marks.round().astype(int).tolist()))


def _hour(
    market: Market, stream: AdStream, learners: list[TrainingStep], start: int, stop: int, seed: int
) -> dict[str, Any]:
    """Serve the requests of an hour, then train each model on the clicks of its own users."""
    candidates = stream.candidates(start, stop, market.candidates)
    bids = np.minimum(np.stack([ads.numerical["bid"] for ads in candidates]).astype(np.float64), market.bid_cap)
    true = np.stack([stream.truth.probability(ads) for ads in candidates])
    rows = Batch.concat([stream.to_batch(ads) for ads in candidates])
    count = stop - start
    requests = np.arange(count)
    users = candidates[0].codes["user"]
    arm = (uniform_of_code(users, _ARM_SALT + seed) < 0.5).astype(np.int64)
    draws = np.random.default_rng([seed, start]).random(count)
    day = start // market.requests_per_day - market.warm_up_days
    served: dict[str, Any] = {"user": users, "arm": arm, "day": np.full(count, day)}
    for number, learner in enumerate(learners):
        predicted = _click_rates(learner, rows).reshape(market.candidates, count)
        winner, price = auction(bids, predicted)
        rate = true[winner, requests]
        clicked = (draws < rate).astype(np.float32)
        served |= {
            f"expected{number}": price * rate,
            f"value{number}": bids[winner, requests] * rate,
            f"revenue{number}": price * clicked,
            f"clicks{number}": clicked,
            f"predicted{number}": predicted[winner, requests],
        }
        own = np.flatnonzero(arm == number)
        shown = rows[winner[own] * count + own]
        for first in range(0, own.size, market.batch_size):
            part = slice(first, first + market.batch_size)
            piece = Batch(shown[part].numerical, shown[part].categorical, clicked[own][part])
            _learn(learner, piece, start + first, (seed, number))
    winner, price = auction(bids, true)
    served["oracle"] = price * true[winner, requests]
    return served


def _click_rates(learner: TrainingStep, rows: Batch) -> Floats:
    logits = learner.score(rows).astype(np.float64)
    rates: Floats = np.maximum(1 / (1 + np.exp(-logits)), _LEAST_CLICK_RATE)
    return rates


def _findings(market: Market, requests: dict[str, Any], rng: np.random.Generator) -> Findings:
    users, place = np.unique(requests["user"], return_inverse=True)
    arm = np.zeros(users.size, dtype=np.int64)
    arm[place] = requests["arm"]
    own = np.where(requests["arm"] == 0, requests["revenue0"], requests["revenue1"])
    revenue = np.bincount(place, weights=own).astype(np.float64)
    control, treatment = revenue[arm == 0], revenue[arm == 1]
    paired: dict[str, Floats] = {
        name: np.bincount(place, weights=requests[name]).astype(np.float64)
        for name in ("expected0", "expected1", "value0", "value1")
    }
    return {
        "requests": len(place),
        "users": [control.size, treatment.size],
        "lift": float(treatment.mean() / control.mean() - 1),
        "lift_interval": unpaired_interval(control, treatment, rng),
        "paired_lift": float(paired["expected1"].sum() / paired["expected0"].sum() - 1),
        "paired_interval": paired_interval(paired["expected0"], paired["expected1"], rng),
        "value_lift": float(paired["value1"].sum() / paired["value0"].sum() - 1),
        "value_interval": paired_interval(paired["value0"], paired["value1"], rng),
        "oracle_lift": float(requests["oracle"].sum() / requests["expected0"].sum() - 1),
        "arms": [_arm(requests, number) for number in range(2)],
        "daily_lift": [_daily(requests, day) for day in range(market.days)],
    }


def _arm(requests: dict[str, Any], number: int) -> Findings:
    """Quality of an arm's model on its own users."""
    own = requests["arm"] == number
    clicks, predicted = requests[f"clicks{number}"][own], requests[f"predicted{number}"][own]
    logits = np.log(predicted) - np.log1p(-predicted)
    return {
        "calibration": float(predicted.mean() / max(clicks.mean(), 1e-12)),
        "auc": float(exact_auc(logits, clicks)),
    }


def _daily(requests: dict[str, Any], day: int) -> float:
    of_day = requests["day"] == day
    return float(requests["expected1"][of_day].sum() / requests["expected0"][of_day].sum() - 1)


def unpaired_interval(control: Floats, treatment: Floats, rng: np.random.Generator) -> list[float]:
    """95 % interval of mean(treatment)/mean(control) − 1, from a bootstrap over the users of each arm."""
    means = []
    for values in (control, treatment):
        weights = _weights(values.size, rng)
        means.append((weights @ values) / weights.sum(axis=1))
    return _middle(means[1] / means[0] - 1)


def paired_interval(control: Floats, treatment: Floats, rng: np.random.Generator) -> list[float]:
    """95 % interval of Σ treatment / Σ control − 1, from a bootstrap over users with both values.

    >>> low, high = paired_interval(np.ones(100), np.full(100, 1.1), np.random.default_rng(0))
    >>> round(low, 6), round(high, 6)
    (0.1, 0.1)
    """
    weights = _weights(control.size, rng)
    return _middle((weights @ treatment) / (weights @ control) - 1)


def _middle(lifts: Floats) -> list[float]:
    return [float(bound) for bound in np.quantile(lifts, [0.025, 0.975])]


def _weights(users: int, rng: np.random.Generator) -> Floats:
    """How often each user is drawn in each replicate: Poisson with mean 1, the bootstrap's limit for many users."""
    weights: Floats = rng.poisson(1.0, (_REPLICATES, users)).astype(np.float32)
    return weights
