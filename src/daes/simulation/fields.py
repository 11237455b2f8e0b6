"""Kinds of categorical fields: how a code is drawn, and which text a code stands for.

A field has a `name`, a `side` ("request" or "ad"), and `draw(draws, stream, start, codes, days)`, which gives the codes
of rows start, start + 1, … from uniforms called `stream`, from the codes of fields drawn before, and from the time.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.simulation.draws import Alias, Draws, uniform_of_code
from daes.stream.arrow import pa, pc
from daes.stream.hashing import hash_column

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


class CategoricalField(ABC):
    """What the generator and the truth need of a categorical field.

    Args:
        name: of the field.
        side: "request" or "ad".
        parent: the field it depends on.
        generation_size: codes come in runs of this many, of which no more than two or three are alive at a time.
        size: number of codes; None where new ones go on to appear.
    """

    def __init__(self, name: str, side: str, parent: str | None, generation_size: int, size: int | None) -> None:
        self.name, self.side, self.parent = name, side, parent
        self.generation_size, self.size = generation_size, size

    @abstractmethod
    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: Array) -> Codes:
        """The codes of rows start … start + len(days) − 1."""

    @abstractmethod
    def texts(self, codes: Codes) -> Any:
        """The texts of these codes as an Arrow string array; null is a missing category."""


class _Listed(CategoricalField):
    """A field whose values are known beforehand: a text each, None being a missing category."""

    def __init__(self, name: str, side: str, values: tuple[str | None, ...], parent: str | None) -> None:
        super().__init__(name, side, parent, len(values), len(values))
        self.values = values

    def texts(self, codes: Codes) -> Any:
        return pa.array(self.values, type=pa.string()).take(pa.array(codes))


class ChoiceField(_Listed):
    """One of a few values, drawn by weights that may depend on another field's code.

    Args:
        values: a text each; None is a missing category.
        weights: (len(values),), or (codes of the parent, len(values)); need not sum to 1.
        parent: the field on which the weights depend.
    """

    def __init__(
        self,
        name: str,
        side: str,
        values: tuple[str | None, ...],
        weights: NDArray[np.float64],
        parent: str | None = None,
    ) -> None:
        super().__init__(name, side, values, parent)
        table = np.atleast_2d(weights)
        self.probabilities = table / table.sum(axis=1, keepdims=True)
        kept = [np.flatnonzero(row) for row in self.probabilities]  # a sparse row needs no place for its zeros
        self._alias = Alias([row[index] for row, index in zip(self.probabilities, kept, strict=True)], kept)

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: Array) -> Codes:
        group = None if self.parent is None else codes[self.parent]
        return self._alias(draws.uniform(stream, start, len(days)), group)


class TraitField(_Listed):
    """A fixed property of an id: the same for every row in which the id occurs.

    Args:
        parent: the id's field.
        values, weights: as in `ChoiceField`, (len(values),).
        salt: tells the traits of one id apart.
    """

    parent: str

    def __init__(
        self, name: str, side: str, parent: str, values: tuple[str | None, ...], weights: Array, salt: int
    ) -> None:
        super().__init__(name, side, values, parent)
        self._alias = Alias([weights])
        self._salt = salt

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: Array) -> Codes:
        return self._alias(uniform_of_code(codes[self.parent], self._salt))


class CalendarField(_Listed):
    """The hour of the day or the day of the week, read off the clock.

    Args:
        values: a text each, spread evenly over `period`.
        period: in days.
    """

    def __init__(self, name: str, side: str, values: tuple[str, ...], period: float) -> None:
        super().__init__(name, side, values, parent=None)
        self.period = period

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: Array) -> Codes:
        part = days / self.period
        return ((part - np.floor(part)) * len(self.values)).astype(np.int64)


class IdField(CategoricalField):
    """Zipf-distributed ids that belong to the codes of a parent field and are replaced by new ones over time.

    Every code g of the parent owns `slots[g]` slots. A row takes slot k = 0, 1, … of its parent's n with probability

        P(k) ∝ (k + 2)^(1−s) − (k + 1)^(1−s)  ~  (k + 1)^(−s)

    (Zipf's law of exponent s as a Pareto law rounded down, which needs no table). A slot's id lives `lifetime` days;
    then a new id takes its place and its popularity: code = generation · (number of slots) + slot, growing for ever.
    Slot i changes at the times generation · lifetime − u_i · stagger, with u_i a fixed uniform of i's cohort.

    Args:
        parent: the field that owns the slots.
        slots: number of slots of each code of the parent.
        exponent: s, not 1.
        prefix: of the text.
        salt: of the u_i; two fields that must change in step share it.
        lifetime: days; inf for ids that stay.
        stagger: days over which the changes are spread; the lifetime if None.
        cohort: number of neighbouring slots that change together.
        parent_slots: number of slots of the parent if that is an IdField too: its generations do not matter here.
    """

    parent: str

    def __init__(
        self,
        name: str,
        side: str,
        parent: str,
        slots: Codes,
        *,
        exponent: float,
        prefix: str,
        salt: int,
        lifetime: float = np.inf,
        stagger: float | None = None,
        cohort: int = 1,
        parent_slots: int | None = None,
    ) -> None:
        self.num_slots = int(slots.sum())
        super().__init__(name, side, parent, self.num_slots, self.num_slots if np.isinf(lifetime) else None)
        self.slots, self.exponent, self.prefix, self.lifetime = slots, exponent, prefix, lifetime
        self._stagger = lifetime if stagger is None else stagger
        self._salt, self._cohort, self._parent_slots = salt, cohort, parent_slots
        self._first = np.cumsum(slots) - slots
        self._reach = (slots + 1.0) ** (1 - exponent) - 1

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: Array) -> Codes:
        owner = codes[self.parent]
        if self._parent_slots is not None:
            owner = owner % self._parent_slots
        place = draws.uniform(stream, start, len(days))
        place *= self._reach[owner]
        place += 1
        place **= 1 / (1 - self.exponent)
        slot = place.astype(np.int64)
        np.minimum(slot, self.slots[owner], out=slot)  # rounding alone can reach one more
        slot += self._first[owner] - 1
        return slot if np.isinf(self.lifetime) else self._generation(slot, days) * self.num_slots + slot

    def _generation(self, slot: Codes, days: Array) -> Codes:
        ahead = uniform_of_code(slot // self._cohort, self._salt) * self._stagger
        return ((days + ahead) / self.lifetime).astype(np.int64)

    def texts(self, codes: Codes) -> Any:
        return pc.binary_join_element_wise(self.prefix, pa.array(codes).cast(pa.string()), "")


class Vocabulary:
    """Hashes of a field's codes, from a table of the codes now alive: memory stays flat in an endless stream."""

    def __init__(self, field: CategoricalField) -> None:
        self.field = field
        self._low = self._high = 0
        self._hashes: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def hashes(self, codes: Codes) -> NDArray[np.int64]:
        """What `hash_column` gives for `field.texts(codes)`."""
        if not len(codes):
            return np.empty(0, dtype=np.int64)
        size = self.field.generation_size
        low, high = int(codes.min()) // size * size, (int(codes.max()) // size + 1) * size
        if low < self._low or high > self._high:
            if high - low > 3 * size:  # rows so far apart that most ids in between are not among them
                return hash_column(self.field.texts(codes))
            self._low, self._high = low, high
            self._hashes = hash_column(self.field.texts(np.arange(low, high)))
        return self._hashes[codes - self._low]
