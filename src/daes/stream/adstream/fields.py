"""Kinds of categorical fields: how a code is drawn, and which text a code stands for.

A field has a `name`, a `side` ("request" or "ad"), and `draw(draws, stream, start, codes, days)`, which gives the codes
of rows start, start + 1, … from uniforms called `stream`, from the codes of fields drawn before, and from the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from daes.extras import require
from daes.stream.adstream.draws import Alias, Draws, uniform_of_code
from daes.stream.hashing import hash_column

Codes = NDArray[np.int64]


class CategoricalField(Protocol):
    """What the generator and the truth need of a categorical field."""

    name: str
    side: str
    parent: str | None

    @property
    def size(self) -> int | None:
        """Number of codes; None where new ones go on to appear."""

    def draw(
        self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: NDArray[np.float64]
    ) -> Codes: ...

    def texts(self, start: int, stop: int) -> Any:
        """The texts of codes start … stop − 1 as an Arrow string array; null is a missing category."""


class Choice:
    """One of a few values, drawn by weights that may depend on another field's code.

    Args:
        name, side: see the module.
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
        self.name, self.side, self.values, self.parent = name, side, values, parent
        table = np.atleast_2d(weights)
        self.probabilities = table / table.sum(axis=1, keepdims=True)
        kept = [np.flatnonzero(row) for row in self.probabilities]  # a sparse row needs no place for its zeros
        groups = zip(self.probabilities, kept, strict=True)
        self._alias = Alias([row[index] for row, index in groups], kept)

    @property
    def size(self) -> int:
        return len(self.values)

    def draw(
        self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: NDArray[np.float64]
    ) -> Codes:
        group = None if self.parent is None else codes[self.parent]
        return self._alias(draws.uniform(stream, start, len(days)), group)

    def texts(self, start: int, stop: int) -> Any:
        pa = require("pyarrow")
        return pa.array(self.values[start:stop], type=pa.string())


class Trait:
    """A fixed property of an id: the same for every row in which the id occurs.

    Args:
        name, side: see the module.
        parent: the id's field.
        values, weights: as in `Choice`.
        salt: tells traits of one id apart.
    """

    def __init__(
        self, name: str, side: str, parent: str, values: tuple[str | None, ...], weights: NDArray[np.float64], salt: int
    ) -> None:
        self.name, self.side, self.parent, self.values = name, side, parent, values
        self.probabilities = (weights / weights.sum())[None]
        self._alias = Alias([weights])
        self._salt = salt

    @property
    def size(self) -> int:
        return len(self.values)

    def draw(
        self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: NDArray[np.float64]
    ) -> Codes:
        return self._alias(uniform_of_code(codes[self.parent], self._salt))

    def texts(self, start: int, stop: int) -> Any:
        pa = require("pyarrow")
        return pa.array(self.values[start:stop], type=pa.string())


class Calendar:
    """The hour of the day or the day of the week, read off the clock.

    Args:
        name, side: see the module.
        values: a text each, spread evenly over `period`.
        period: in days.
    """

    parent = None

    def __init__(self, name: str, side: str, values: tuple[str, ...], period: float) -> None:
        self.name, self.side, self.values, self.period = name, side, values, period
        self.probabilities = np.full((1, len(values)), 1 / len(values))

    @property
    def size(self) -> int:
        return len(self.values)

    def draw(
        self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: NDArray[np.float64]
    ) -> Codes:
        part = days / self.period
        return ((part - np.floor(part)) * len(self.values)).astype(np.int64)

    def texts(self, start: int, stop: int) -> Any:
        pa = require("pyarrow")
        return pa.array(self.values[start:stop], type=pa.string())


@dataclass(frozen=True, eq=False)
class Identity:
    """Zipf-distributed ids that belong to the codes of a parent field and are replaced by new ones over time.

    Every code g of the parent owns `slots[g]` slots. A row takes slot k = 0, 1, … of its parent's n with probability

        P(k) ∝ (k + 2)^(1−s) − (k + 1)^(1−s)  ~  (k + 1)^(−s)

    (Zipf's law with exponent s, as a Pareto law rounded down, which needs no table). A slot's id lives `lifetime` days;
    then a new id takes its place and its popularity. code = generation · (all slots) + slot, so codes grow for ever.
    Slots change at different times; those of one `cohort` of neighbours at the same time, so that a creative never
    outlives its campaign.

    Args:
        name, side: see the module.
        parent: the field that owns the slots; its slot counts where it is an Identity itself.
        slots: slots a code of the parent, (parent codes,).
        exponent: s, not 1.
        lifetime: days; inf for ids that stay.
        cohort: number of neighbouring slots that change together.
        salt: of the times of change; two Identities that must change in step share it.
        prefix: of the text.
        parent_slots: number of slots of the parent where it is an Identity, to undo its generations.
    """

    name: str
    side: str
    parent: str
    slots: Codes
    exponent: float
    lifetime: float
    prefix: str
    salt: int
    cohort: int = 1
    parent_slots: int | None = None

    @property
    def num_slots(self) -> int:
        return int(self.slots.sum())

    @property
    def size(self) -> int | None:
        return self.num_slots if np.isinf(self.lifetime) else None

    def draw(
        self, draws: Draws, stream: str, start: int, codes: Mapping[str, Codes], days: NDArray[np.float64]
    ) -> Codes:
        owner = codes[self.parent]
        if self.parent_slots is not None:
            owner = owner % self.parent_slots
        power = 1 - self.exponent
        place = draws.uniform(stream, start, len(days))
        place *= ((self.slots + 1.0) ** power - 1)[owner]
        place += 1
        place **= 1 / power
        rank = place.astype(np.int64) - 1
        count = self.slots[owner]
        np.minimum(rank, count - 1, out=rank)  # rounding alone can reach the end
        slot = rank + (np.cumsum(self.slots) - self.slots)[owner]
        if np.isinf(self.lifetime):
            return slot
        offset = uniform_of_code(slot // self.cohort, self.salt) * self.lifetime
        generation = ((days + offset) / self.lifetime).astype(np.int64)
        return generation * self.num_slots + slot

    def texts(self, start: int, stop: int) -> Any:
        pa, pc = require("pyarrow"), require("pyarrow.compute")
        return pc.binary_join_element_wise(self.prefix, pa.array(np.arange(start, stop)).cast(pa.string()), "")


class Vocabulary:
    """Texts and hashes of a field's codes, made once each and kept.

    Args:
        field: of the catalogue.
    """

    def __init__(self, field: CategoricalField) -> None:
        self._field = field
        self._hashes: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._texts: Any = None

    def hashes(self, codes: Codes) -> NDArray[np.int64]:
        """What `hash_column` gives for `texts(codes)`."""
        stop = int(codes.max(initial=-1)) + 1
        if stop > len(self._hashes):
            stop = self._room(stop, len(self._hashes))
            fresh = hash_column(self._field.texts(len(self._hashes), stop))
            self._hashes = np.concatenate([self._hashes, fresh])
        return self._hashes[codes]

    def texts(self, codes: Codes) -> Any:
        """An Arrow string array, null where the category is missing."""
        pa = require("pyarrow")
        have = 0 if self._texts is None else len(self._texts)
        stop = int(codes.max(initial=-1)) + 1
        if self._texts is None or stop > have:
            fresh = self._field.texts(have, self._room(stop, have))
            self._texts = fresh if self._texts is None else pa.concat_arrays([self._texts, fresh])
        return self._texts.take(pa.array(codes))

    def _room(self, needed: int, have: int) -> int:
        """Grow by half at least, so that a stream that goes on finding new ids copies each only a few times."""
        return self._field.size or max(needed, have + have // 2)
