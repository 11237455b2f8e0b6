"""JSON values as numbers, categories, labels, weights and times.

Each function returns the value in the type of its column, or raises ValueError or OverflowError to refuse it.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np

_NUMBERS = (int, float, bool, type(None))
SCALARS = (str, *_NUMBERS)
"""Types of values that are one category or one number."""
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_LARGEST_EXACT = 2**53
_SHOWN = 60


def all_convertible(values: list[Any], convert: Callable[[Any], Any]) -> bool:
    """Whether all values can be converted."""
    try:
        for value in values:
            convert(value)
    except (ValueError, OverflowError):
        return False
    return True


def number_of(value: Any) -> float | None:
    """A number; null is missing."""
    if type(value) not in _NUMBERS:
        raise ValueError
    return None if value is None else float(value)


def category_of(value: Any) -> str | None:
    """The text of a category; null and NaN are missing."""
    if type(value) not in SCALARS:
        raise ValueError
    return None if value is None or value != value else text_of(value)  # NaN is not equal to itself


def key_of(value: Any) -> str:
    """The text of a key, which must not be missing."""
    if value is None or type(value) not in SCALARS:
        raise ValueError
    return text_of(value)


def one_of(known: set[str]) -> Callable[[Any], str]:
    """A function that takes categories with one of these texts only."""

    def convert(value: Any) -> str:
        text = category_of(value)
        if text not in known:
            raise ValueError
        return text

    return convert


def zero_or_one(value: Any) -> float:
    """A label."""
    if type(value) not in (int, float, bool) or value not in (0, 1):
        raise ValueError
    return float(value)


def outcome_of(value: Any) -> float:
    """A label that means a click if it is missing."""
    return 1.0 if value is None else zero_or_one(value)


def weight_of(value: Any) -> float:
    """A weight: finite in single precision, and not negative."""
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST_WEIGHT:
        raise ValueError
    return float(value)


def time_of(value: Any) -> int:
    """Epoch nanoseconds of an ISO timestamp, in UTC unless it has an offset; an integer is returned unchanged."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if type(value) is not str:
        raise ValueError
    found = datetime.fromisoformat(value)
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    whole = int(found.replace(microsecond=0).timestamp())
    return time_of(whole * 10**9 + found.microsecond * 1000)


def text_of(value: Any) -> str:
    """The text of a scalar as a category; see `category_text`."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        if abs(value) == np.inf or (value.is_integer() and abs(value) > _LARGEST_EXACT):
            raise ValueError  # it stands for several integers
        return str(int(value)) if value.is_integer() else str(value)
    text = str(value)
    text.encode()  # a UnicodeEncodeError is a ValueError
    return text


def excerpt(value: Any) -> str:
    """The beginning of a value as JSON, for messages."""
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
