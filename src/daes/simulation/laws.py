"""The laws of numerical features, in closed form: marginal, and given a category."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.simulation.draws import Array, Draws, IntArray

LARGEST_COUNT = 2**24
"""A counter saturates here: the largest integer up to which float32 is exact."""
_CELLS = 2048


class Tabulated:
    """A function read from a fine, even grid by linear interpolation, constant beyond its ends.

    >>> square = Tabulated(lambda x: x * x, 0, 2, cells=1000)
    >>> square(np.array([-1.0, 1.5, 7.0])).round(4).tolist()
    [0.0, 2.25, 4.0]
    """

    def __init__(self, function: Callable[[Array], Array], low: float, high: float, cells: int) -> None:
        self._low, self._cells = low, cells
        self._per_unit = cells / (high - low)
        self._values = np.append(function(np.linspace(low, high, cells + 1)), 0.0)
        self._values[-1] = self._values[-2]  # so that the last knot has a right neighbour
        self._steps = np.diff(self._values)

    def __call__(self, points: Array) -> Array:
        place = (points - self._low) * self._per_unit
        np.clip(place, 0, self._cells, out=place)
        cell = place.astype(np.int64)
        place -= cell
        place *= self._steps[cell]
        place += self._values[cell]
        return place


@dataclass(frozen=True)
class Family:
    """A standard law on the latent scale: how to draw it, and its distribution function.

    Args:
        num_uniforms: how many uniforms make one value.
        draw: that many arrays of uniforms → latent values.
        cdf: distribution function, elementwise.
        low, high: where all but 1e-9 of the mass lies on either side.
    """

    num_uniforms: int
    draw: Callable[..., Array]
    cdf: Callable[[Array], Array]
    low: float
    high: float


def _normal_cdf(points: Array) -> Array:
    return np.array([0.5 * math.erfc(-point * math.sqrt(0.5)) for point in points.ravel()]).reshape(points.shape)


NORMAL = Family(
    2,
    lambda radius, angle: np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle),  # Box–Muller
    _normal_cdf,
    -6.0,
    6.0,
)
"""With an exponential link the lognormal law."""

WEIBULL = Family(
    1,
    lambda uniform: np.log(-np.log(uniform)),
    lambda points: -np.expm1(-np.exp(points)),
    -21.0,
    3.1,
)
"""log E for a standard exponential E; with an exponential link and scale 1/k the Weibull law of shape k."""


def lomax(tail: float) -> Family:
    """Pareto's law of the second kind: P(X > x) = (1 + x)^(−tail) for x = exp(latent value)."""
    return Family(
        1,
        lambda uniform: np.log(np.expm1(np.log(uniform) / -tail)),
        lambda points: -np.expm1(-tail * np.logaddexp(0, points)),
        -21.0 - math.log(tail),
        21.0 / tail,
    )


def standard_normals(draws: Draws, name: str, count: int) -> Array:
    """Normal draws of the world for one purpose. **Shape**: (count,)."""
    radius, angle = draws.uniform(name, 0, 2 * count).reshape(2, count)
    return NORMAL.draw(radius, angle)


@cache
def _standard_table(family: Family) -> Tabulated:
    return Tabulated(family.cdf, family.low, family.high, cells=2**14)


@dataclass(frozen=True)
class Link:
    """An increasing map from the latent scale to the feature's own, with its inverse."""

    forward: Callable[[Array], Array]
    inverse: Callable[[Array], Array]


EXP = Link(np.exp, lambda values: np.log(np.maximum(values, 1e-30)))


def between(low: float, high: float) -> Link:
    """low + (high − low) · sigmoid: with a normal latent value the logit-normal law."""

    def inverse(values: Array) -> Array:
        share = np.clip((values - low) / (high - low), 1e-15, 1 - 1e-15)
        return np.log(share / (1 - share))

    return Link(lambda latent: low + (high - low) / (1 + np.exp(-latent)), inverse)


@dataclass(frozen=True)
class NumericalSpec:
    """A numerical feature, and how the parameters of its law spread over the categories of its context.

    Args:
        name: of the feature.
        side: "request" or "ad".
        context: the categorical field that its law depends on.
        family, link: see `NumericalLaw`.
        location: centre and half-spread on the latent scale.
        scale: centre, and half-spread of its logarithm. The centre is also the unit of drift.
        zero, missing: smallest and largest probability over the categories.
        steps_per_unit: 1 for integers, 100 for cents; None leaves values unrounded.
        missing_where_zero: a count without which this feature is undefined.
    """

    name: str
    side: str
    context: str
    family: Family
    link: Link
    location: tuple[float, float]
    scale: tuple[float, float]
    zero: tuple[float, float] = (0.0, 0.0)
    missing: tuple[float, float] = (0.0, 0.0)
    steps_per_unit: int | None = None
    missing_where_zero: str | None = None

    @property
    def is_integer(self) -> bool:
        return self.steps_per_unit == 1


class NumericalLaw:
    """The law of one numerical feature X given the category c of its context field and the drift at its time.

    With Z of a standard `family`, and observed (not missing) with probability 1 − missing_c,

        Y = location_c + scale_c · Z + unit · shift        (latent)
        X = 0 with probability zero_c, otherwise link(Y), rounded up to a multiple of 1 / steps_per_unit

    so that, at every x that can occur and with y = link⁻¹(x),

        P(X ≤ x | c) = zero_c + (1 − zero_c) · F((y − unit · shift − location_c) / scale_c)     rank within context
        P(X ≤ x)     = Σ_c w_c P(X ≤ x | c),    w_c ∝ P(c) · (1 − missing_c)                    global rank

    are the true ranks among observed values. `shift` is 0 in the reference law. F and the global rank are read from
    tables that differ from the exact functions by less than 1e-6.

    Args:
        spec: the feature.
        probabilities: P(c) of its context field, (C,).
        draws: the world, which decides which category gets which parameters.

    Attributes:
        location, scale, zero, missing: the parameters of the categories, (C,) each.
    """

    def __init__(self, spec: NumericalSpec, probabilities: Array, draws: Draws) -> None:
        self.spec, self.probabilities = spec, probabilities

        def spread(parameter: str) -> Array:
            """−1 … 1 in even steps, in the order that this world gives the categories."""
            order = np.argsort(draws.uniform(f"{spec.name}/{parameter}", 0, len(probabilities)))
            return np.linspace(-1, 1, len(probabilities))[order]

        def probability(parameter: str, low: float, high: float) -> Array:
            return (low + high) / 2 + (high - low) / 2 * spread(parameter)

        self.location = spec.location[0] + spec.location[1] * spread("location")
        self.scale = spec.scale[0] * np.exp(spec.scale[1] * spread("scale"))
        self.zero = probability("zero", *spec.zero)
        self.missing = probability("missing", *spec.missing)
        self._unit = spec.scale[0]
        self._standard = _standard_table(spec.family)
        low = float((self.location + self.scale * spec.family.low).min())
        high = float((self.location + self.scale * spec.family.high).max())
        self._mixture = Tabulated(self._mix, low, high, cells=2**15)

    def draw(self, draws: Draws, stream: str, start: int, category: IntArray, shift: Array) -> NDArray[np.float32]:
        """Values of rows start, start + 1, …, NaN where missing, from the uniforms called `stream`/…"""
        family, count = self.spec.family, len(category)
        latent = family.draw(*(draws.uniform(f"{stream}/{part}", start, count) for part in range(family.num_uniforms)))
        latent *= self.scale[category]
        latent += self.location[category]
        latent += self._unit * shift
        values = self.spec.link.forward(latent)
        self._round(values)
        if self.zero.any() or self.missing.any():
            atom, absent = draws.uniform(f"{stream}/atom", start, count), self.missing[category]
            values[atom < absent + (1 - absent) * self.zero[category]] = 0
            values[atom < absent] = np.nan
        return values.astype(np.float32)

    def rank(self, values: NDArray[Any], shift: float | Array = 0.0) -> Array:
        """Global rank P(X ≤ x); values must not be NaN."""
        return self._mixture(self.spec.link.inverse(values.astype(np.float64)) - self._unit * shift)

    def ranks(self, values: NDArray[Any], category: IntArray, shift: float | Array = 0.0) -> tuple[Array, Array]:
        """Global rank, and rank within context P(X ≤ x | c); values must not be NaN."""
        latent = self.spec.link.inverse(values.astype(np.float64))
        latent -= self._unit * shift
        within = self._standard((latent - self.location[category]) / self.scale[category])
        if self.zero.any():
            zero = self.zero[category]
            within *= 1 - zero
            within += zero
        return self._mixture(latent), within

    def _round(self, values: Array) -> None:
        """Up to the next multiple, in place."""
        if self.spec.steps_per_unit is not None:
            values *= self.spec.steps_per_unit
            np.ceil(values, out=values)
            values /= self.spec.steps_per_unit
        if self.spec.is_integer:
            np.minimum(values, LARGEST_COUNT, out=values)

    def _mix(self, latent: Array) -> Array:
        total = np.zeros_like(latent)
        weights = self.probabilities * (1 - self.missing)
        weights /= weights.sum()
        for weight, location, scale, zero in zip(weights, self.location, self.scale, self.zero, strict=True):
            total += weight * (zero + (1 - zero) * self._standard((latent - location) / scale))
        return total

    def nodes(self) -> tuple[Array, Array]:
        """Values and their probabilities given each category, for integrals over the reference law.

        **Shape**: both (C, cells + 1); the last column is the zero of zero inflation.
        """
        edges = np.linspace(self.spec.family.low, self.spec.family.high, _CELLS + 1)
        mass = np.diff(self.spec.family.cdf(edges))
        mass /= mass.sum()
        latent = self.location[:, None] + self.scale[:, None] * (edges[1:] + edges[:-1]) / 2
        values = self.spec.link.forward(latent)
        self._round(values)
        probability = (1 - self.zero)[:, None] * mass
        return np.column_stack([values, np.zeros(len(values))]), np.column_stack([probability, self.zero])
