"""Rows of the simulated stream without their clicks: drawn from laws, addressed by row."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daes.simulation.catalogue import NUMERICAL, categorical_fields
from daes.simulation.draws import Array, Draws, IntArray
from daes.simulation.drift import LawDrift, Shifts, days_of_time
from daes.simulation.fields import ChoiceField
from daes.simulation.laws import NumericalLaw


@dataclass(frozen=True, eq=False)
class Features:
    """Columns of n rows.

    Args:
        numerical: name → (n,) float32, NaN where missing.
        codes: name → (n,) int64, the code of the category (its text and hash: `fields`).
        time: (n,) int64, epoch nanoseconds.

    Slices, masks and index arrays pick rows.
    """

    numerical: Mapping[str, NDArray[np.float32]]
    codes: Mapping[str, IntArray]
    time: IntArray

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Self:
        return type(self)(
            {name: column[rows] for name, column in self.numerical.items()},
            {name: column[rows] for name, column in self.codes.items()},
            self.time[rows],
        )

    @classmethod
    def concat(cls, parts: Collection[Self]) -> Self:
        """The rows of all parts, in order."""
        first = next(iter(parts))
        if len(parts) == 1:
            return first
        return cls(
            {name: np.concatenate([part.numerical[name] for part in parts]) for name in first.numerical},
            {name: np.concatenate([part.codes[name] for part in parts]) for name in first.codes},
            np.concatenate([part.time for part in parts]),
        )

    def freeze(self) -> Self:
        """Make the arrays read-only, so that a cached block cannot be changed."""
        columns: list[NDArray[Any]] = [*self.numerical.values(), *self.codes.values(), self.time]
        for column in columns:
            column.setflags(write=False)
        return self


class FeatureGenerator:
    """Draws features: 20 categorical fields and 10 numerical ones (`catalogue`), at given times.

    Args:
        world: determines the laws' parameters, phases and jumps.
        drift: how the laws drift.
        users: number of user slots.
    """

    def __init__(self, world: int, drift: LawDrift, users: int) -> None:
        draws = Draws(world)
        self.drift = drift
        fields = categorical_fields(users, drift.daily > 0, drift.churn)
        self.fields = {field.name: field for field in fields}
        probabilities = {f.name: f.probabilities[0] for f in fields if isinstance(f, ChoiceField) and f.parent is None}
        self.laws = {spec.name: NumericalLaw(spec, probabilities[spec.context], draws) for spec in NUMERICAL}
        self.shifts = Shifts(drift, list(self.laws), draws)

    def observed_probability(self, name: str) -> Array:
        """P(the feature is not missing | category of its context) under the reference law. **Shape**: (C,)."""
        observed = 1 - self.laws[name].missing
        count = self.laws[name].spec.missing_where_zero
        return observed if count is None else observed * (1 - self.laws[count].rank(np.zeros(1)))

    def draw(
        self,
        draws: Draws,
        start: int,
        time: IntArray,
        *,
        names: Iterable[str] | None = None,
        request: Features | None = None,
        prefix: str = "",
    ) -> Features:
        """Rows start, start + 1, … at the given times.

        Args:
            draws: where the uniforms come from.
            start: number of the first row.
            time: (n,) epoch nanoseconds.
            names: the fields needed (None: all); they and what they depend on are drawn.
            request: take the request's fields from here and draw only the ad.
            prefix: of the uniforms' names; another prefix gives another ad.
        """
        wanted = self._closure((*self.fields, *self.laws) if names is None else names)
        days = days_of_time(time)
        codes: dict[str, IntArray] = {} if request is None else dict(request.codes)
        for name, field in self.fields.items():
            if name in wanted and (request is None or field.side == "ad"):
                codes[name] = field.draw(draws, prefix + name, start, codes, days)
        numerical: dict[str, NDArray[np.float32]] = {} if request is None else dict(request.numerical)
        shifts = self.shifts(time, wanted)
        for name, law in self.laws.items():
            if name in wanted and (request is None or law.spec.side == "ad"):
                values = law.draw(draws, prefix + name, start, codes[law.spec.context], shifts[name])
                if law.spec.missing_where_zero is not None:
                    values[numerical[law.spec.missing_where_zero] == 0] = np.nan
                numerical[name] = values
        return Features(numerical, codes, time)

    def _closure(self, names: Iterable[str]) -> set[str]:
        """These fields and all that they depend on."""
        found: set[str] = set()
        for name in names:
            law = self.laws.get(name)
            needs = (law.spec.context, law.spec.missing_where_zero) if law else (self.fields[name].parent,)
            found |= {name} | self._closure(need for need in needs if need is not None)
        return found
