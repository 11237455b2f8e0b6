"""The numerical part of the ground truth: value, rank and rank within context, in given proportions.

With x_j the value of feature j, p_j = P(X_j ≤ x_j) its global rank and r_j = P(X_j ≤ x_j | c_j) its rank within the
category of its context field, both from the true laws,

    value        = Σ_j v_j(x_j)    v_j linear between the 1 % and 99 % quantiles of the reference law, flat beyond
    rank         = Σ_j h_j(p_j)    h_j in the span of cos(kπp), k = 1 … 5
    context_rank = Σ_j g_j(r_j)    g_j in the span of cos(kπr), k = 1 … 5

over the features that are not missing. Every v_j, h_j and g_j has mean 0, and all features of a part have the same
variance. The world chooses h_j at random among the curves uncorrelated with the value part, and g_j among those
uncorrelated with the value and the rank part. So under the reference law (no drift) the three parts are uncorrelated,
and their variances are the given ones, exactly up to integration over a grid. Features are correlated only through a
shared context field: values are drawn independently given their contexts, and contexts independently.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from daes.simulation.draws import Array, Draws, IntArray
from daes.simulation.laws import NumericalLaw, Tabulated, standard_normals

PARTS = ("value", "rank", "context_rank")
NUM_CURVES = 5
_BLOCKS = {"value": slice(0, 1), "rank": slice(1, 1 + NUM_CURVES), "context_rank": slice(1 + NUM_CURVES, None)}
_WIDTH = 1 + 2 * NUM_CURVES


class Curves:
    """Value, rank and context_rank of all numerical features.

    Args:
        laws: name → law, q in all.
        observed: name → P(observed | c) under the reference law.
        variances: of each of `PARTS` under the reference law.
        draws: the world, which chooses the curves.
    """

    def __init__(
        self,
        laws: Mapping[str, NumericalLaw],
        observed: Mapping[str, Array],
        variances: Mapping[str, float],
        draws: Draws,
    ) -> None:
        self._bases = {name: _Basis(law, observed[name]) for name, law in laws.items()}
        self._gram = _gram(list(self._bases.values()))
        directions = self._choose(draws)
        self._coefficients = {part: np.sqrt(variances[part]) * directions[part] for part in PARTS}
        for j, basis in enumerate(self._bases.values()):
            basis.choose({part: rows[j] for part, rows in self._coefficients.items()})

    def parts(
        self,
        numerical: Mapping[str, NDArray[np.float32]],
        codes: Mapping[str, IntArray],
        shifts: Mapping[str, Array],
        num_rows: int,
    ) -> dict[str, Array]:
        """The three parts, (num_rows,) each; ranks are those in laws moved by `shifts`."""
        parts = {part: np.zeros(num_rows) for part in PARTS}
        for name, basis in self._bases.items():
            basis.add_to(parts, numerical[name], codes[basis.law.spec.context], shifts[name])
        return parts

    def _choose(self, draws: Draws) -> dict[str, Array]:
        """Coefficients that give each part variance 1 and no covariance. **Shape** of each: (q, _WIDTH)."""
        directions: dict[str, Array] = {}
        for part, block in _BLOCKS.items():
            rows = np.zeros((len(self._bases), _WIDTH))
            for j, name in enumerate(self._bases):
                gram = self._gram.reshape(len(rows), _WIDTH, -1)[j, block]
                width = len(gram)
                earlier = np.stack([np.zeros(width), *(gram @ other.ravel() for other in directions.values())])
                random = standard_normals(draws, f"curve/{part}/{name}", width) / np.arange(1, width + 1)
                curve = random - earlier.T @ np.linalg.lstsq(earlier.T, random, rcond=None)[0]  # orthogonal to them
                own = gram.reshape(width, len(rows), _WIDTH)[:, j, block]
                rows[j, block] = curve / np.sqrt(curve @ own @ curve)
            directions[part] = rows / np.sqrt(rows.ravel() @ self._gram @ rows.ravel())
        return directions


class _Basis:
    """v, cos(kπp) and cos(kπr) of one feature, each of mean 0 where it is observed, and the curves made of them.

    Attributes:
        second_moments: E[1{observed} b_i b_k], (_WIDTH, _WIDTH).
        conditional_means: E[1{observed} b_i | c], (C, _WIDTH).
    """

    def __init__(self, law: NumericalLaw, observed: Array) -> None:
        self.law = law
        values, probability = law.nodes()
        category = np.repeat(np.arange(len(values)), values.shape[1])
        weight = (law.probabilities * observed)[:, None] * probability
        self.low, self.high = _weighted_quantiles(values.ravel(), weight.ravel(), (0.01, 0.99))
        rank, context_rank = law.ranks(values.ravel(), category)
        functions = np.stack([np.clip(values.ravel(), self.low, self.high), *_cosines(rank), *_cosines(context_rank)])
        self.means = functions @ weight.ravel() / weight.sum()
        functions -= self.means[:, None]
        self.second_moments = (functions * weight.ravel()) @ functions.T
        by_category = functions.reshape(_WIDTH, *values.shape) * probability
        self.conditional_means = (by_category.sum(axis=2) * observed).T

    def choose(self, coefficients: Mapping[str, Array]) -> None:
        """Tabulate the three curves with these coefficients."""
        self._slope = float(coefficients["value"][0])
        self._offset = -self._slope * float(self.means[0])
        self._rank, self._context_rank = (
            _tabulate(coefficients[part][_BLOCKS[part]], self.means[_BLOCKS[part]]) for part in PARTS[1:]
        )

    def add_to(self, parts: dict[str, Array], values: NDArray[np.float32], category: IntArray, shift: Array) -> None:
        """Add the three curves at these values to `parts`."""
        missing = np.isnan(values)
        gaps = bool(missing.any())
        known = np.where(missing, np.float32(self.low), values) if gaps else values
        rank, context_rank = self.law.ranks(known, category, shift)
        value = np.clip(known, self.low, self.high) * self._slope + self._offset
        for part, effect in zip(PARTS, (value, self._rank(rank), self._context_rank(context_rank)), strict=True):
            if gaps:
                effect[missing] = 0
            parts[part] += effect


def _cosines(rank: Array) -> Array:
    return np.stack([np.cos(k * np.pi * rank) for k in range(1, NUM_CURVES + 1)])


def _tabulate(coefficients: Array, means: Array) -> Tabulated:
    return Tabulated(lambda rank: coefficients @ (_cosines(rank) - means[:, None]), 0, 1, cells=2**12)


def _gram(bases: list[_Basis]) -> Array:
    """Covariances of all features' basis functions. **Shape**: (q·_WIDTH, q·_WIDTH)."""
    blocks = [[np.zeros((_WIDTH, _WIDTH)) for _ in bases] for _ in bases]
    for i, first in enumerate(bases):
        for j, second in enumerate(bases):
            if i == j:
                blocks[i][j] = first.second_moments
            elif first.law.spec.context == second.law.spec.context:
                weighted = first.law.probabilities[:, None] * first.conditional_means
                blocks[i][j] = weighted.T @ second.conditional_means
    return np.block(blocks)


def _weighted_quantiles(values: Array, weights: Array, levels: tuple[float, float]) -> tuple[float, float]:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    low, high = (values[order][np.searchsorted(cumulative, level * cumulative[-1])] for level in levels)
    return float(low), float(high)
