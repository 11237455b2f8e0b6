"""Rows of the simulated stream before they are clicked: drawn from laws, addressed by row."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daes.simulation.catalogue import NUMERICAL, categorical_fields, numerical_laws
from daes.simulation.draws import Draws
from daes.simulation.drift import LawDrift, Shifts, days_of_time
from daes.simulation.fields import ChoiceField

SIDES = ("request", "ad")


@dataclass(frozen=True, eq=False)
class Features:
    """Columns of n rows.

    Args:
        numerical: name → (n,) float32, NaN where missing.
        codes: name → (n,) int64, the code of the category (`fields.Vocabulary` knows its text and hash).
        time: (n,) int64, epoch nanoseconds.

    Slices, masks and index arrays pick rows.
    """

    numerical: Mapping[str, NDArray[np.float32]]
    codes: Mapping[str, NDArray[np.int64]]
    time: NDArray[np.int64]

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
        world: decides on the laws' parameters, phases and jumps.
        drift: how the laws move.
        users: number of user slots.
        context_strength: factor of the differences between categories in the numerical laws.
    """

    def __init__(self, world: int, drift: LawDrift, users: int, context_strength: float) -> None:
        draws = Draws(world)
        self.drift = drift
        fields = categorical_fields(users, drift.daily > 0, drift.churn)
        self.fields = {field.name: field for field in fields}
        probabilities = {f.name: f.probabilities[0] for f in fields if isinstance(f, ChoiceField) and f.parent is None}
        self.laws = {law.name: law for law in numerical_laws(probabilities, draws, context_strength)}
        self.specs = {spec.name: spec for spec in NUMERICAL}
        self._shifts = Shifts(drift, len(self.laws), draws)

    def shifts(self, time: NDArray[np.int64], names: Collection[str] | None = None) -> dict[str, NDArray[np.float64]]:
        """How far the numerical laws (those named, all if None) have moved at these times, in their units."""
        numbers = {name: number for number, name in enumerate(self.laws) if names is None or name in names}
        return dict(zip(numbers, self._shifts(days_of_time(time), list(numbers.values())), strict=True))

    def observed_probability(self, name: str) -> NDArray[np.float64]:
        """P(the feature is not missing | category of its context) under the reference law. **Shape**: (C,)."""
        observed = 1 - self.laws[name].missing
        count = self.specs[name].missing_where_zero
        return observed if count is None else observed * (1 - self.laws[count].rank(np.zeros(1)))

    def draw(
        self,
        draws: Draws,
        start: int,
        time: NDArray[np.int64],
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
            names: fields that are needed; they and what they depend on are drawn, all if None.
            request: take the request's fields from here and draw the ad alone.
            prefix: of the uniforms' names; another prefix gives another ad.
        """
        wanted = None if names is None else self._closure(names)
        sides = SIDES if request is None else ("ad",)
        days = days_of_time(time)
        codes: dict[str, NDArray[np.int64]] = {} if request is None else dict(request.codes)
        for field in self.fields.values():
            if field.side in sides and (wanted is None or field.name in wanted):
                codes[field.name] = field.draw(draws, prefix + field.name, start, codes, days)
        numerical: dict[str, NDArray[np.float32]] = {} if request is None else dict(request.numerical)
        shifts = self.shifts(time, wanted)
        for spec in NUMERICAL:
            if spec.side in sides and (wanted is None or spec.name in wanted):
                values = self._numerical(spec.name, draws, prefix, start, codes[spec.context], shifts[spec.name])
                if spec.missing_where_zero is not None:
                    values[numerical[spec.missing_where_zero] == 0] = np.nan
                numerical[spec.name] = values
        return Features(numerical, codes, time)

    def _numerical(
        self,
        name: str,
        draws: Draws,
        prefix: str,
        start: int,
        category: NDArray[np.int64],
        shift: NDArray[np.float64],
    ) -> NDArray[np.float32]:
        law = self.laws[name]
        count = len(category)
        uniforms = [draws.uniform(f"{prefix}{name}/{part}", start, count) for part in range(law.family.num_uniforms)]
        atom = draws.uniform(f"{prefix}{name}/atom", start, count) if law.has_atom else None
        return law.draw(category, shift, atom, uniforms)

    def _closure(self, names: Iterable[str]) -> set[str]:
        found: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in found:
                continue
            found.add(name)
            if name in self.specs:
                spec = self.specs[name]
                needs = [spec.context, spec.missing_where_zero]
            else:
                needs = [self.fields[name].parent]
            pending.extend(need for need in needs if need is not None)
        return found
