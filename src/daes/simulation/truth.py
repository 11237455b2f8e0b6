"""The ground truth of the simulated stream: the click probability of a row, as a function of its features alone.

    logit P(click) = intercept + value + rank + context_rank + missing + categorical + interaction

value, rank and context_rank are the numerical parts (`curves`). Drift moves raw values, and with them the value part;
ranks are those in the law of the moment. Then

    missing      = Σ_j ±(1[x_j missing] − its mean): a missing value is informative
    categorical  = Σ_f weight_f · effect_f(code): uniform effects, smaller for ids; those of the hour follow a wave
    interaction  = Σ_(f,g) ⟨s_f(code), t_g(code)⟩ over `PAIRS`, vectors of length 2 and mean 0

scaled to the given standard deviations, and the intercept to the base rate, over a sample of rows of the first four
weeks.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daes.simulation.curves import PARTS, Curves
from daes.simulation.draws import Array, Draws, IntArray, uniform_of_code
from daes.simulation.drift import Clock
from daes.simulation.features import FeatureGenerator, Features
from daes.simulation.laws import standard_normals

PAIRS = (
    ("interest", "category"),
    ("gender", "category"),
    ("device", "format"),
    ("country", "category"),
    ("hour", "placement"),
    ("segment", "format"),
)
ID_WEIGHTS = {"user": 0.5, "site": 0.7, "advertiser": 0.7, "campaign": 0.5, "creative": 0.5}
"""Of main effects; other fields have 1. What a short stream cannot learn should not dominate."""
_SAMPLE_DAYS = 28
_SAMPLE_ROWS = _SAMPLE_DAYS * 2400


@dataclass(frozen=True)
class Signal:
    """What determines a click, and how strongly.

    Args:
        value, rank, context_rank: proportions of the numerical variance; scaled to sum to 1.
        numerical, categorical, interactions, missing: standard deviation of each part of the logit.
        base_rate: long-run click rate, in (0, 1).

    >>> Signal(value=1, rank=3, context_rank=0).rank
    0.75
    """

    value: float = 0.2
    rank: float = 0.4
    context_rank: float = 0.4
    numerical: float = 1.0
    categorical: float = 0.7
    interactions: float = 0.4
    missing: float = 0.15
    base_rate: float = 0.1

    def __post_init__(self) -> None:
        for name in (*PARTS, "numerical", "categorical", "interactions", "missing"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and non-negative, got {getattr(self, name)}")
        total = self.value + self.rank + self.context_rank
        if total == 0:
            raise ValueError(
                "one of value, rank and context_rank must be positive, got 0 for all; numerical=0 turns them off"
            )
        for part in PARTS:
            object.__setattr__(self, part, getattr(self, part) / total)
        if not 0 < self.base_rate < 1:
            raise ValueError(f"base_rate must be between 0 and 1, got {self.base_rate}")


class Truth:
    """The click probability of any features (formulas in the module)."""

    def __init__(self, generator: FeatureGenerator, signal: Signal, world: int) -> None:
        self._generator = generator
        draws = Draws(world)
        variances = {part: signal.numerical**2 * getattr(signal, part) for part in PARTS}
        observed = {name: generator.observed_probability(name) for name in generator.laws}
        self.curves = Curves(generator.laws, observed, variances, draws)
        self._salts = {name: int(draws.uniform(f"effect/{name}", 0, 1)[0] * 2**40) for name in generator.fields}
        self._tables = self._effect_tables(draws)
        self._pairs = [(first, second, self._pair_table(first, second, draws)) for first, second in PAIRS]

        clock = Clock(_SAMPLE_ROWS // _SAMPLE_DAYS, generator.drift.daily > 0)
        sample = generator.draw(draws, 0, clock.time(np.arange(_SAMPLE_ROWS)), prefix="sample/")
        signs = np.where(draws.uniform("missing", 0, len(generator.laws)) < 0.5, -1.0, 1.0)
        rates = {name: float(np.isnan(values).mean()) for name, values in sample.numerical.items()}
        self._missing = {name: (sign, rates[name]) for name, sign in zip(generator.laws, signs, strict=True)}
        self._scales = dict.fromkeys(("missing", "categorical", "interaction"), 1.0)
        parts = self.parts(sample)
        sizes = {"missing": signal.missing, "categorical": signal.categorical, "interaction": signal.interactions}
        self._scales = {part: size / float(parts[part].std()) for part, size in sizes.items()}
        self.intercept = 0.0
        self.intercept = _intercept(self.logit(sample), signal.base_rate)

    def parts(self, features: Features) -> dict[str, Array]:
        """The six parts of the logit besides the intercept. **Shape** of each: (n,)."""
        shifts = self._generator.shifts(features.time)
        parts = self.curves.parts(features.numerical, features.codes, shifts, len(features))
        others = (self._missing_part, self._categorical_part, self._interaction_part)
        for (part, scale), make in zip(self._scales.items(), others, strict=True):
            parts[part] = make(features)
            parts[part] *= scale
        return parts

    def logit(self, features: Features) -> Array:
        """**Shape**: (n,)."""
        logit = np.full(len(features), self.intercept)
        for part in self.parts(features).values():
            logit += part
        return logit

    def probability(self, features: Features) -> Array:
        """P(click) of each row. **Shape**: (n,)."""
        return 1 / (1 + np.exp(-self.logit(features)))

    def _missing_part(self, features: Features) -> Array:
        total = np.zeros(len(features))
        for name, (sign, rate) in self._missing.items():
            if rate:
                total += sign * (np.isnan(features.numerical[name]) - rate)
        return total

    def _categorical_part(self, features: Features) -> Array:
        total = np.zeros(len(features))
        for name, salt in self._salts.items():
            codes = features.codes[name]
            table = self._tables.get(name)
            total += ID_WEIGHTS[name] * _effect(codes, salt) if table is None else table[codes]
        return total

    def _interaction_part(self, features: Features) -> Array:
        total = np.zeros(len(features))
        for first, second, table in self._pairs:
            total += table.ravel()[features.codes[first] * table.shape[1] + features.codes[second]]
        return total

    def _effect_tables(self, draws: Draws) -> dict[str, Array]:
        """Main effects of the fields whose codes are known in advance; those of other ids are hashed."""
        tables = {
            name: ID_WEIGHTS.get(name, 1.0) * _effect(np.arange(item.size), self._salts[name])
            for name, item in self._generator.fields.items()
            if item.size is not None
        }
        hours = (np.arange(24) + 0.5) / 24
        tables["hour"] = np.sqrt(2) * np.sin(2 * np.pi * (hours - draws.uniform("effect/hour", 1, 1)))
        return tables

    def _pair_table(self, first: str, second: str, draws: Draws) -> Array:
        """⟨s_f, t_g⟩ for every pair of codes. **Shape**: (codes of f, codes of g)."""
        sides = []
        for name in (first, second):
            size = len(self._tables[name])
            vectors = standard_normals(draws, f"pair/{first}/{second}/{name}", 2 * size).reshape(size, 2)
            sides.append(vectors - vectors.mean(axis=0))
        table: Array = sides[0] @ sides[1].T
        table /= table.std()
        return table


@dataclass(frozen=True)
class BayesMetrics:
    """Scores of the true click probabilities against the labels that the stream drew.

    No model can do better on the same rows. NaN where undefined: an AUC without both classes, both without rows.
    """

    auc: float
    logloss: float


def bayes_metrics(probability: NDArray[np.float64], label: NDArray[np.float32]) -> BayesMetrics:
    """Score true probabilities. **Shape**: both (n,).

    >>> bayes_metrics(np.array([0.2, 0.8]), np.array([0, 1], dtype=np.float32)).auc
    1.0
    """
    if not len(probability):
        return BayesMetrics(auc=float("nan"), logloss=float("nan"))
    _, group = np.unique(probability, return_inverse=True)
    clicks, others = (np.bincount(group, weights=weights) for weights in (label, 1 - label))
    below = np.cumsum(others) - others  # non-clicks of a lower probability; those of the same count half
    pairs = float(clicks.sum() * others.sum())
    loss = -np.log(np.where(label > 0, probability, 1 - probability))
    return BayesMetrics(
        auc=float(clicks @ (below + others / 2)) / pairs if pairs > 0 else float("nan"), logloss=float(loss.mean())
    )


def _effect(codes: IntArray, salt: int) -> Array:
    """A fixed draw from the uniform law of mean 0 and variance 1 for each code."""
    effect = uniform_of_code(codes, salt)
    effect -= 0.5
    effect *= math.sqrt(12)
    return effect


def _intercept(logits: Array, base_rate: float) -> float:
    """b such that the mean of sigmoid(logits + b) is the base rate, by bisection."""
    centre = np.log(base_rate / (1 - base_rate))
    reach = float(np.abs(logits).max()) + 1
    low, high = centre - reach, centre + reach
    for _ in range(60):
        middle = (low + high) / 2
        if np.mean(1 / (1 + np.exp(-logits - middle))) < base_rate:
            low = middle
        else:
            high = middle
    return float((low + high) / 2)
