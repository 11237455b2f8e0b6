"""The inputs of a daes model from rows: numbers as floats, categories as hashes. It needs the standard library alone.

`daes export` writes this file beside an exported model, for a server without daes; `daes serve` runs the same code.

    columns = json.loads(schema)                      # of the exported file: {"numerical": [...], "categorical": [...]}
    rows = [{"price": 1.5, "city": "Bern"}]
    numerical, categorical = prepare(rows, columns["numerical"], columns["categorical"])

**Numbers** are floats, integers or booleans; None, NaN or a column that is left out is a missing value. So are texts in
`MISSING`, below, and numbers equal to them.

**Categories** are texts, whole numbers, booleans or other floats. A category has the same text in every type:

- whole numbers are decimal integers: 3, 3.0, "3" and "3.0" are "3"; a whole float above 2⁵³ is an error, because it
  stands for several integers;
- other floats are their shortest text without an exponent: 0.5 is "0.5"; 1e-05 and "1e-05" are "0.00001";
- True, False and the texts True, TRUE, False, FALSE are "true" and "false";
- dates are "2024-01-05"; moments "2024-01-05 10:00:00", with the fraction of a second if there is one; midnight is the
  date alone, UTC is not written, other offsets are "+0100"; times of day are "10:00:00";
- an empty text is a missing value, like None, NaN, a column that is left out, and what is in `MISSING_CATEGORIES`;
- any other text stays as it is: "007" is not "7".

The hash of this text, as UTF-8, is an integer from 1 to 2⁶³ − 1; that of a missing value is 0. It never changes.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

# In the file beside an exported model, the texts that meant a missing value in training, if it was told them.
MISSING: tuple[str, ...] = ()
MISSING_CATEGORIES: tuple[str, ...] = ()

_WORDS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "-0": "0"}
_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_EXPONENT = re.compile(r"-?[0-9](?:\.[0-9]+)?[eE][+-][0-9]{1,3}")
_CLOCK = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.0+|(\.[0-9]*[1-9])0*)")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.0+|(\.[0-9]*[1-9])0*)?"
    r"(?:Z|[+-]00:?00|([+-][0-9]{2}):?([0-9]{2}))?"
)
_MIDNIGHT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00")
_LARGEST_EXACT = 2**53
_REMEMBERED = 1 << 16
_LONG = 256
_NAN = float("nan")


class RowError(ValueError):
    """A value that a model cannot read: `row` (from 0), `field` and `reason` say which and why."""

    def __init__(self, row: int, field: str, reason: str) -> None:
        super().__init__(f"row {row}, {field!r}: {reason}")
        self.row, self.field, self.reason = row, field, reason


def prepare(
    rows: Iterable[Mapping[str, Any]],
    numerical: Sequence[str],
    categorical: Sequence[str],
    missing: Sequence[str] = MISSING,
    missing_categories: Sequence[str] = MISSING_CATEGORIES,
) -> tuple[list[list[float]], list[list[int]]]:
    """The numbers and hashes of rows, in the order of the columns; a `RowError` names a value that is neither.

    >>> prepare([{"price": 1.5, "city": "Bern"}, {"city": None}], ["price"], ["city"])
    ([[1.5], [nan]], [[5439395482067655759], [0]])
    """
    numbers, hashes = [], []
    absent, gone = _with_numbers(missing), {hash_category(text) for text in missing_categories} - {0}
    for index, row in enumerate(rows):
        get = row.get
        try:
            numbers.append([number(get(name), absent) for name in numerical])
            hashes.append([hash_category(get(name)) for name in categorical])
        except (TypeError, ValueError):
            raise _row_error(index, row, numerical, categorical, absent) from None
    if gone:
        hashes = [[0 if found in gone else found for found in row] for row in hashes]
    return numbers, hashes


def number(value: Any, missing: Container[str | float] = ()) -> float:
    """A number as a float; None is NaN, and so are the `missing` ones."""
    if type(value) is float:
        return _NAN if missing and value in missing else value
    if value is None or (missing and isinstance(value, str) and value in missing):
        return _NAN
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"must be a number, got {_shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return _NAN if missing and found in missing else found


def hash_category(value: Any) -> int:
    """The hash of a category; 0 if it is missing."""
    if type(value) is str:
        return _hash_of_text(value) if len(value) <= _LONG else _hash_of_text.__wrapped__(value)
    text = category_text(value)
    return 0 if text is None else hash_text(text)


def category_text(value: Any) -> str | None:
    """The text of a category, the same for all types; None if it is missing.

    >>> [category_text(value) for value in (3.0, "3.0", True, "True", "", 1e-05, "2024-01-05T10:00:00.500Z")]
    ['3', '3', 'true', 'true', None, '0.00001', '2024-01-05 10:00:00.5']
    """
    if isinstance(value, str):
        return _one_text(value)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return _one_text(format(value, "f"))
    if isinstance(value, date | time):
        return _one_text(str(value))
    raise TypeError(f"must be a text, a number or a boolean, got {_shown(value)}")


def hash_text(text: str) -> int:
    """The hash of a text.

    >>> hex(hash_text("New York"))
    '0x443c53182564cc50'
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    state = (len(data) + 1) * 0x9E3779B97F4A7C15 % 2**64
    for start in range(0, max(len(data), 1), 8):
        state ^= int.from_bytes(data[start : start + 8], "little")
        state ^= state >> 32
        state = state * 0x0E9846AF9B1A615D % 2**64
        state ^= state >> 32
        state = state * 0x0E9846AF9B1A615D % 2**64
        state ^= state >> 28
    return max(state >> 1, 1)


def _with_numbers(texts: Sequence[str]) -> frozenset[str | float]:
    """The texts, and the numbers that some of them are."""
    found: set[str | float] = set(texts)
    for text in texts:
        with suppress(ValueError):
            found.add(float(text))
    return frozenset(found)


@lru_cache(maxsize=_REMEMBERED)
def _hash_of_text(value: str) -> int:
    text = _one_text(value)
    return 0 if text is None else hash_text(text)


def _float_text(value: float) -> str | None:
    if value != value:
        return None
    if value in (float("inf"), float("-inf")) or (value.is_integer() and abs(value) > _LARGEST_EXACT):
        raise ValueError(f"must be exact as a category, got {value}: send it as a text")
    return str(int(value)) if value.is_integer() else _positional(value)


def _positional(value: float) -> str:
    """The shortest text of a float without an exponent."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def _one_text(text: str) -> str | None:
    if not text:
        return None
    if _EXPONENT.fullmatch(text):
        value = float(text)
        text = _positional(value + 0.0) if abs(value) < float("inf") else str(value)
    if match := _WHOLE.fullmatch(text):
        text = match[1]
    if ":" in text:
        if match := _CLOCK.fullmatch(text):
            text = match[1] + (match[2] or "")
        if match := _MOMENT.fullmatch(text):
            text = f"{match[1]} {match[2]}{match[3] or ''}{match[4] or ''}{match[5] or ''}"
        if match := _MIDNIGHT.fullmatch(text):
            text = match[1]
    return _WORDS.get(text, text)


def _row_error(
    index: int,
    row: Mapping[str, Any],
    numerical: Sequence[str],
    categorical: Sequence[str],
    missing: Container[str | float],
) -> RowError:
    """The error about the value of a row that cannot be read."""
    for names, read in ((numerical, lambda value: number(value, missing)), (categorical, hash_category)):
        for name in names:
            try:
                read(row.get(name))
            except (TypeError, ValueError) as error:
                return RowError(index, name, str(error))
    raise AssertionError("every value can be read")  # only called where one cannot


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
