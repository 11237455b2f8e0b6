"""Rows that were left out: how many, which, and why."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from io import StringIO
from typing import Any

import numpy as np

_KEPT = 10_000


@dataclass(frozen=True)
class BadRow:
    """A row that was left out: the file, its row number there (from 1, not counting the header), and the reason."""

    path: str
    row: int
    reason: str

    def __str__(self) -> str:
        return f"row {self.row} of {self.path}: {self.reason}"


@dataclass
class BadRows:
    """The rows left out so far: their number, and the first ten thousand of them. A row that is read again counts once.

    Args:
        paths: the files in the order in which they are read, if that is known.

    >>> rows = BadRows()
    >>> for number in (7, 9, 7):
    ...     rows.add(BadRow("clicks.csv", number, "3 fields are expected; there are 2"))
    >>> print(rows)
    2 bad rows left out, first: row 7 of clicks.csv: 3 fields are expected; there are 2
    """

    paths: Sequence[str] = ()
    _rows: dict[tuple[str, int], BadRow] = field(default_factory=dict)
    _numbers: dict[str, set[int]] = field(default_factory=dict)
    _unparsed: dict[str, set[int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self._numbers.values()))

    @property
    def first(self) -> list[BadRow]:
        """The first rows that were added, ordered by file and row."""
        order = {path: place for place, path in enumerate(dict.fromkeys([*self.paths, *self._numbers]))}
        return sorted(self._rows.values(), key=lambda row: (order[row.path], row.row))

    def add(self, row: BadRow, *, parsed: bool = True) -> None:
        """Add a row, unless it was added before; `parsed` is False for text that could not be parsed as a row."""
        if not parsed:
            self._unparsed.setdefault(row.path, set()).add(row.row)
        noted = self._numbers.setdefault(row.path, set())
        if row.row not in noted:
            noted.add(row.row)
            if len(self._rows) < _KEPT:
                self._rows[row.path, row.row] = row

    def reason(self, path: str, row: int) -> str:
        """Why a row was left out; "" if it is not among the first."""
        found = self._rows.get((path, row))
        return "" if found is None else found.reason

    def number(self, path: str, start: int, nth: int) -> int:
        """The number of the `nth` row after row `start` of a file, not counting those that could not be parsed."""
        number = start + nth
        for unparsed in sorted(row for row in self._unparsed.get(path, ()) if row > start):
            if unparsed > number:
                break
            number += 1
        return number

    def __str__(self) -> str:
        if not self.count:
            return "no bad rows"
        return f"{self.count} bad row{'s' if self.count > 1 else ''} left out, first: {self.first[0]}"

    def to_csv(self) -> str:
        """The first rows as a CSV file with the columns file, row and reason."""
        text = StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["file", "row", "reason"])
        writer.writerows(astuple(row) for row in self.first)
        return text.getvalue()

    def state_dict(self) -> dict[str, Any]:
        """The rows, of which there may be millions, as plain values and arrays.

        A thread that reads ahead may be adding more.
        """
        numbers = {path: np.array(sorted(noted), np.int64) for path, noted in list(self._numbers.items())}
        first = [list(astuple(row)) for row in list(self._rows.values())]
        return {"paths": list(self.paths), "first": first, "numbers": numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Add the rows of a saved state; its files, in their order, may have other paths now."""
        now = dict(zip(state.get("paths", ()), self.paths, strict=False))  # files may have been added
        rows = (BadRow(now.get(path, path), number, reason) for path, number, reason in state["first"])
        saved = {(row.path, row.row): row for row in rows}
        self._rows = dict(list((saved | self._rows).items())[:_KEPT])
        for path, numbers in state["numbers"].items():
            self._numbers.setdefault(now.get(path, path), set()).update(np.asarray(numbers).tolist())
