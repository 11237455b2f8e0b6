"""Kinds of categorical fields: how a code is drawn, and which text a code stands for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daes.simulation.draws import Alias, Array, Draws, IntArray, uniform_of_code
from daes.stream.arrow import pa, pc
from daes.stream.hashing import hash_column


class CategoricalField(ABC):
    """A categorical field, of values that are known in advance unless a subclass has others.

    Args:
        name: of the field.
        side: "request" or "ad".
        values: texts; None is a missing category.
        parent: the field it depends on.

    Attributes:
        generation_size: codes come in runs of this many, of which no more than two or three are alive at a time.
        size: number of codes; None if new ones keep appearing.
    """

    def __init__(self, name: str, side: str, values: Sequence[str | None], parent: str | None = None) -> None:
        self.name, self.side, self.values, self.parent = name, side, values, parent
        self.generation_size = len(values)
        self.size: int | None = len(values)

    @abstractmethod
    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        """The codes of rows start … start + len(days) − 1.

        They depend on the uniforms called `stream`, the codes of fields drawn before, and the time.
        """

    def texts(self, codes: IntArray) -> Any:
        """The texts of these codes as an Arrow string array; null is a missing category."""
        return pa.array(self.values, type=pa.string()).take(pa.array(codes))


class ChoiceField(CategoricalField):
    """One of a few values, drawn by weights that may depend on another field's code.

    Args:
        weights: (len(values),), or (codes of the parent, len(values)); need not sum to 1.
        parent: the field that the weights depend on.
    """

    def __init__(
        self, name: str, side: str, values: Sequence[str | None], weights: Array, parent: str | None = None
    ) -> None:
        super().__init__(name, side, values, parent)
        table = np.atleast_2d(weights)
        self.probabilities = table / table.sum(axis=1, keepdims=True)
        kept = [np.flatnonzero(row) for row in self.probabilities]  # without the zeros of a sparse row
        self._alias = Alias([row[index] for row, index in zip(self.probabilities, kept, strict=True)], kept)

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        group = None if self.parent is None else codes[self.parent]
        return self._alias(draws.uniform(stream, start, len(days)), group)


class TraitField(CategoricalField):
    """A fixed property of an id: the same for every row in which the id occurs.

    Args:
        parent: the id's field.
        weights: (len(values),); need not sum to 1.
        salt: distinguishes the traits of one id.
    """

    parent: str

    def __init__(
        self, name: str, side: str, parent: str, values: Sequence[str | None], weights: Array, salt: int
    ) -> None:
        super().__init__(name, side, values, parent)
        self._alias, self._salt = Alias([weights]), salt

    def draw(self, draws: Draws, stream: str, start: int, codes: Mapping[str, IntArray], days: Array) -> IntArray:
        return self._alias(uniform_of_code(codes[self.parent], self._salt))


class CalendarField(CategoricalField):
    """The hour of the day or the day of the week: values that are spread evenly over a `period`, in days."""

    def __init__(self, name: str, side: str, values: Sequence[str], period: float) -> None:
        super().__init__(name, side, values)
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
        super().__init__(name, side, (), parent)
        self.generation_size = int(slots.sum())
        self.size = self.generation_size if np.isinf(lifetime) else None
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
        return ((days + ahead) / self.lifetime).astype(np.int64) * self.generation_size + slot

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
