"""Numbers as text, in one style for the terminal, the reports and the documents.

A minus is "−", a missing value is "–", thousands are separated by commas.
"""

from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import Any

NONE = "–"
"""Stands for a value that is missing or not finite."""
_UNITS = ("", "k", "M", "G", "T")


def is_number(value: Any) -> bool:
    """Whether the value is a finite number (a bool is not)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def fixed(value: Any, digits: int = 4, *, sign: bool = False) -> str:
    """A fixed number of decimals, as for scores; `sign` for a difference.

    >>> fixed(0.76158), fixed(-0.5, 1), fixed(-0.00001), fixed(None)
    ('0.7616', '−0.5', '0.0000', '–')
    >>> fixed(0.0041, sign=True), fixed(0.00001, sign=True)
    ('+0.0041', '0.0000')
    """
    if not is_number(value):
        return NONE
    text = f"{value:{'+' if sign else ''}z.{digits}f}"
    return text.removeprefix("+") if float(text) == 0 else _minus(text)


def count(value: Any) -> str:
    """A whole number with separators.

    >>> count(1234567), count(1e6), count(None)
    ('1,234,567', '1,000,000', '–')
    """
    return _minus(f"{value:,.0f}") if is_number(value) else NONE


def counted(number: int, noun: str) -> str:
    """A count and its noun.

    >>> counted(1, "seed"), counted(5000, "seed")
    ('1 seed', '5,000 seeds')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def scientific(value: Any, digits: int = 2) -> str:
    """A number of any size, with one more significant digit than `digits`.

    >>> [scientific(value) for value in (0.000246, 0.36, 4.9, 1130.4, 29300000.0, 0, None)]
    ['2.46e−4', '0.360', '4.90', '1,130', '2.93e7', '0', '–']
    """
    if not is_number(value):
        return NONE
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    power = int(exponent)
    return _minus(f"{value:,.{max(digits - power, 0)}f}" if -2 <= power <= 3 else f"{mantissa}e{power}")


def compact(value: Any) -> str:
    """Three digits and a unit.

    >>> [compact(value) for value in (0, 12.345, 9999, 1234567, -2.5e9, 0.00123, 3e-7)]
    ['0', '12.3', '10k', '1.23M', '−2.5G', '0.00123', '3e−7']
    >>> [compact(value) for value in (999.4, 999.6, 999_600, 9.996e14)]
    ['999', '1k', '1M', '1e15']
    """
    if not is_number(value):
        return NONE
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    size = abs(rounded)
    if size < 1e-4 or size >= 1e15:
        mantissa, _, exponent = f"{rounded:.2e}".partition("e")
        return _minus(f"{float(mantissa):g}e{int(exponent)}")
    power = floor(log10(size)) // 3 if size >= 1000 else 0
    return _minus(f"{rounded / 1000**power:.3g}{_UNITS[power]}")


def measured(value: Any) -> str:
    """A value of a feature: four digits, with a unit only if it is large.

    >>> [measured(value) for value in (1013.25, 0.5, 18612, 234567, 0.000012)]
    ['1013', '0.5', '18612', '235k', '1.2e−5']
    """
    if not is_number(value) or abs(value) >= 1e5 or 0 < abs(value) < 1e-3:
        return compact(value)
    return _minus(f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}")


def percent(value: Any, digits: int = 1, *, sign: bool = False) -> str:
    """A fraction in percent; `sign` for a change. A positive fraction that rounds to zero is given as a bound.

    >>> percent(0.1234), percent(0), percent(0.00001), percent(1), percent(None)
    ('12.3 %', '0 %', '< 0.1 %', '100 %', '–')
    >>> percent(0.02307, 3, sign=True), percent(-0.018, sign=True)
    ('+2.307 %', '−1.8 %')
    """
    if not is_number(value):
        return NONE
    if not sign and 0 < value < 0.5 * 10 ** -(digits + 2):
        return f"< {10**-digits:g} %"
    return f"{fixed(100 * value, 0 if value in (0, 1) and not sign else digits, sign=sign)} %"


def p_value(value: Any) -> str:
    """The p-value of a test; a very small one, which may have underflowed to zero, is given as a bound.

    >>> p_value(0.0312), p_value(1.0), p_value(5.1e-05), p_value(0.0), p_value(None)
    ('0.031', '1.0', '< 0.0001', '< 0.0001', '–')
    """
    return NONE if not is_number(value) else "< 0.0001" if value < 1e-4 else f"{value:#.2g}"


def p_equals(value: Any) -> str:
    """The p-value of a test within a sentence.

    >>> p_equals(0.0312), p_equals(0.0)
    ('p = 0.031', 'p < 0.0001')
    """
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def nbytes(size: Any) -> str:
    """A number of bytes.

    >>> nbytes(800_000), nbytes(96), nbytes(2_400)
    ('800 kB', '96 B', '2.4 kB')
    >>> nbytes(999_900), nbytes(5e12)
    ('1 MB', '5 TB')
    """
    text = compact(size)
    number = text.rstrip("".join(_UNITS))
    return f"{number} {text.removeprefix(number)}B"


def duration(seconds: Any) -> str:
    """A duration in a suitable unit.

    >>> [duration(seconds) for seconds in (0.000034, 0.034, 12.3, 125, 7320)]
    ['34 µs', '34 ms', '12.3 s', '2 min 5 s', '2 h 2 min']
    """
    if not is_number(seconds):
        return NONE
    if seconds < 0.001:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def listed(parts: Sequence[str], most: int = 5) -> str:
    """The first few of several texts, and the number of the others.

    >>> listed(["a", "b"]), listed(["a", "b", "c"], most=1)
    ('a; b', 'a; and 2 more')
    """
    more = len(parts) - most
    return "; ".join([*parts[:most], *([f"and {more} more"] if more > 0 else [])])


def shorten(text: str, length: int = 24) -> str:
    """A name shortened in the middle, to fit beside an axis.

    >>> shorten("a_column_with_a_very_long_name", 12)
    'a_colu…_name'
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[-(length - 1 - head) :]}"


def on_one_line(text: str) -> str:
    """A name or value from the data, for a table: line ends and others that are not printable as escapes.

    >>> print(on_one_line("price\\nin €"))
    price\\nin €
    """
    return repr(text)[1:-1]


def _minus(text: str) -> str:
    return text.replace("-", "−")
