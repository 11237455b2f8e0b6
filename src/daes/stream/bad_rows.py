"""The rows that were left out: how many, which, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

_KEPT = 10_000


@dataclass(frozen=True)
class BadRow:
    """A row that was left out: the file, the number of the row in it (from 1, the header not counted), and why."""

    path: str
    row: int
    reason: str

    def __str__(self) -> str:
        return f"row {self.row} of {self.path}: {self.reason}"


@dataclass
class BadRows:
    """The rows left out so far: how many, and the first ten thousand by name. Reading a row again does not count again.

    >>> rows = BadRows()
    >>> for number in (7, 9, 7):
    ...     rows.add(BadRow("clicks.csv", number, "3 fields are expected; there are 2"))
    >>> print(rows)
    2 bad rows left out, first: row 7 of clicks.csv: 3 fields are expected; there are 2
    """

    first: list[BadRow] = field(default_factory=list)
    _numbers: dict[str, set[int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows were left out."""
        return sum(map(len, self._numbers.values()))

    def add(self, row: BadRow) -> None:
        """Note a row, unless it was noted before."""
        noted = self._numbers.setdefault(row.path, set())
        if row.row not in noted:
            noted.add(row.row)
            if len(self.first) < _KEPT:
                self.first.append(row)

    def __str__(self) -> str:
        if not self.count:
            return "no bad rows"
        return f"{self.count} bad row{'s' if self.count > 1 else ''} left out, first: {self.first[0]}"

    def state_dict(self) -> dict[str, Any]:
        """The rows as plain values."""
        numbers = {path: sorted(noted) for path, noted in self._numbers.items()}
        return {"first": [list(astuple(row)) for row in self.first], "numbers": numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Note the rows of a saved state as well."""
        rows: Sequence[Sequence[Any]] = state["first"]
        noted = [BadRow(*row) for row in rows]
        self.first = (noted + [row for row in self.first if row not in set(noted)])[:_KEPT]
        for path, numbers in state["numbers"].items():
            self._numbers.setdefault(path, set()).update(numbers)
