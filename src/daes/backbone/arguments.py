"""Checks of settings: each returns the value as a plain Python type, or raises an error that shows it."""

from collections.abc import Iterable, Sequence
from operator import index


def check_count(name: str, value: int, *, minimum: int = 1) -> int:
    """A whole number of at least `minimum`.

    >>> check_count("layers", 0)
    Traceback (most recent call last):
    ValueError: layers must be positive, got 0
    """
    try:
        count = index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if count < minimum:
        expected = {0: "not be negative", 1: "be positive"}.get(minimum, f"be at least {minimum}")
        raise ValueError(f"{name} must {expected}, got {value!r}")
    return count


def check_widths(name: str, values: Sequence[int], *, empty: bool = False) -> tuple[int, ...]:
    """Positive layer widths, as a tuple; an empty one only if `empty`.

    >>> check_widths("hidden", [128, 32])
    (128, 32)
    >>> check_widths("hidden", [128, 0])
    Traceback (most recent call last):
    ValueError: hidden must hold positive integers only, got [128, 0]
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of integers, got {values!r}")
    try:
        widths = tuple(check_count(name, value) for value in values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must hold positive integers only, got {values!r}") from None
    if not widths and not empty:
        raise ValueError(f"{name} must hold at least one width, got {values!r}")
    return widths


def check_rate(name: str, value: float) -> float:
    """A number in [0, 1).

    >>> check_rate("dropout", 1.0)
    Traceback (most recent call last):
    ValueError: dropout must lie in [0, 1), got 1.0
    """
    rate = check_real(name, value)
    if not 0 <= rate < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}")
    return rate


def check_positive_real(name: str, value: float) -> float:
    """A finite number above zero."""
    number = check_real(name, value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} must be a finite number above zero, got {value!r}")
    return number


def check_real(name: str, value: float) -> float:
    """A number, NaN and ±inf included."""
    if isinstance(value, str | bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None


def check_flag(name: str, value: bool) -> bool:
    """True or False, not 1 or 0."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value
