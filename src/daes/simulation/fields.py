"""Kinds of categorical fields: how a code is drawn, and which text a code stands for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from daes.simulation.draws import Alias, Array, Draws, IntArray, uniform_of_code
from daes.stream.arrow import pa, pc
from daes.stream.hashing import hash_column


class CategoricalField(ABC):
    """What the generator and the truth need from a categorical field.

    Args:
        name: of the field.
        side: "request" or "ad".
        parent: the field it depends on.
        generation_size: codes come in runs of this many, of which no more than two or three are alive at a time.
        size: number of codes; None if new ones keep appearing.
    """

    def __init__(self, name: str, side: str, parent: str | None, generation_size: int, size: int | None) -> None:
        self.name, self.side, self.parent = name, side, parent
        self.generation_size, self.size = generation_size, size

    @abstractmethod
    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        """The codes of rows start … start + len(days) − 1.

        They depend on the uniforms called `stream`, the codes of fields drawn before, and the time.
        """

    @abstractmethod
    def texts(self, codes: IntArray) -> Any:
        """The texts of these codes as an Arrow string array; null is a missing category."""


class _Listed(CategoricalField):
    """A field whose values are known in advance: texts, and None for a missing category."""

    def __init__(self, name: str, side: str, values: tuple[str | None, ...], parent: str | None) -> None:
        super().__init__(name, side, parent, len(values), len(values))
        self.values = values

    def texts(self, codes: IntArray) -> Any:
        return pa.array(self.values, type=pa.string()).take(pa.array(codes))


class ChoiceField(_Listed):
    """One of a few values, drawn by weights that may depend on another field's code.

    Args:
        values: texts; None is a missing category.
        weights: (len(values),), or (codes of the parent, len(values)); need not sum to 1.
        parent: the field that the weights depend on.
    """

    def __init__(
        self,
        name: str,
        side: str,
        values: tuple[str | None, ...],
        weights: Array,
        parent: str | None = None,
    ) -> None:
        super().__init__(name, side, values, parent)
        table = np.atleast_2d(weights)
        self.probabilities = table / table.sum(axis=1, keepdims=True)
        kept = [np.flatnonzero(row) for row in self.probabilities]  # without the zeros of a sparse row
        self._alias = Alias([row[index] for row, index in zip(self.probabilities, kept, strict=True)], kept)

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        group = None if self.parent is None else codes[self.parent]
        return self._alias(draws.uniform(stream, start, len(days)), group)


class TraitField(_Listed):
    """A fixed property of an id: the same for every row in which the id occurs.

    Args:
        parent: the id's field.
        values, weights: as in `ChoiceField`; weights are (len(values),).
        salt: distinguishes the traits of one id.
    """

    parent: str

    def __init__(
        self, name: str, side: str, parent: str, values: tuple[str | None, ...], weights: Array, salt: int
    ) -> None:
        super().__init__(name, side, values, parent)
        self._alias = Alias([weights])
        self._salt = salt

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        return self._alias(uniform_of_code(codes[self.parent], self._salt))


class CalendarField(_Listed):
    """The hour of the day or the day of the week, read off the clock.

    Args:
        values: texts, spread evenly over `period`.
        period: in days.
    """

    def __init__(self, name: str, side: str, values: tuple[str, ...], period: float) -> None:
        super().__init__(name, side, values, parent=None)
        self.period = period

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        part = days / self.period
        return ((part - np.floor(part)) * len(self.values)).astype(np.int64)


class IdField(CategoricalField):
    """Zipf-distributed ids that belong to the codes of a parent field and are replaced by new ones over time.

    Every code g of the parent owns `slots[g]` slots. A row takes slot k = 0, 1, … of its parent's n with probability

        P(k) ∝ (k + 2)^(1−s) − (k + 1)^(1−s)  ~  (k + 1)^(−s)

    (Zipf's law of exponent s as a Pareto law rounded down, which needs no table). A slot's id lives `lifetime` days;
    then a new id takes its place and its popularity: code = generation · (number of slots) + slot, which grows forever.
    Slot i changes at the times generation · lifetime − u_i · lifetime, with u_i a fixed uniform of the slot; where the
    parent's ids are replaced too, at generation · lifetime − u · parent_lifetime, with u the parent's.

    Args:
        parent: the field that owns the slots.
        slots: number of slots of each code of the parent, or of each of its slots if its ids are replaced too.
        exponent: s, not 1.
        prefix: of the text.
        salt: of the u_i; that of the parent if its ids are replaced too.
        lifetime: days; inf for ids that stay.
        parent_lifetime: lifetime of the parent's ids, if these are replaced too.
    """

    parent: str

    def __init__(
        self,
        name: str,
        side: str,
        parent: str,
        slots: IntArray,
        *,
        exponent: float,
        prefix: str,
        salt: int,
        lifetime: float = np.inf,
        parent_lifetime: float | None = None,
    ) -> None:
        self.num_slots = int(slots.sum())
        super().__init__(name, side, parent, self.num_slots, self.num_slots if np.isinf(lifetime) else None)
        self.slots, self.exponent, self.prefix, self.lifetime = slots, exponent, prefix, lifetime
        self._salt, self._parent_lifetime = salt, parent_lifetime
        self._first = np.cumsum(slots) - slots
        self._reach = (slots + 1.0) ** (1 - exponent) - 1

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        owner = codes[self.parent]
        if self._parent_lifetime is not None:
            owner = owner % len(self.slots)  # the parent's slot, whatever its generation
        place = draws.uniform(stream, start, len(days))
        place *= self._reach[owner]
        place += 1
        place **= 1 / (1 - self.exponent)
        slot = place.astype(np.int64)
        np.minimum(slot, self.slots[owner], out=slot)  # rounding can reach one more
        slot += self._first[owner] - 1
        if np.isinf(self.lifetime):
            return slot
        if self._parent_lifetime is None:
            ahead = uniform_of_code(slot, self._salt) * self.lifetime
        else:
            ahead = uniform_of_code(owner, self._salt) * self._parent_lifetime
        return ((days + ahead) / self.lifetime).astype(np.int64) * self.num_slots + slot

    def texts(self, codes: IntArray) -> Any:
        return pc.binary_join_element_wise(self.prefix, pa.array(codes).cast(pa.string()), "")


class Vocabulary:
    """Hashes of a field's codes, from a table of the codes alive now: memory stays flat in an endless stream."""

    def __init__(self, field: CategoricalField) -> None:
        self.field = field
        self._low = self._high = 0
        self._hashes: IntArray = np.empty(0, dtype=np.int64)

    def hashes(self, codes: IntArray) -> IntArray:
        """What `hash_column` gives for `field.texts(codes)`."""
        if not len(codes):
            return np.empty(0, dtype=np.int64)
        size = self.field.generation_size
        low, high = int(codes.min()) // size * size, (int(codes.max()) // size + 1) * size
        if low < self._low or high > self._high:
            if high - low > 3 * size:  # the rows lie so far apart that a table would hold mostly other ids
                return hash_column(self.field.texts(codes))
            self._low, self._high = low, high
            self._hashes = hash_column(self.field.texts(np.arange(low, high)))
        return self._hashes[codes - self._low]
