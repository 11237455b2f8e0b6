"""Markdown tables and the numbers in them."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, words: int = 1) -> str:
    """A Markdown table: the first columns, as many as hold `words`, to the left and all others to the right.

    >>> print(table(["method", "KL"], [["OS", 5.97]]))
    | method | KL |
    | :-- | --: |
    | OS | 5.97 |
    """
    lines = [headers, [*[":--"] * words, *["--:"] * (len(headers) - words)], *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def scientific(value: float | None, digits: int = 2) -> str:
    """A number that may be of any size, with one more significant digit than `digits`.

    >>> [scientific(value) for value in (0.000246, 0.36, 4.9, 1130.4, 29300000.0, None)]
    ['2.46e-4', '0.360', '4.90', '1,130', '2.93e7', '–']
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    power = int(exponent)
    return f"{value:,.{max(digits - power, 0)}f}" if -2 <= power <= 3 else f"{mantissa}e{power}"


def p_value(value: float | None) -> str:
    """The p of a test; very small ones, which may have underflown to zero, are told by a bound.

    >>> p_value(0.0312), p_value(1.0), p_value(5.1e-05), p_value(0.0), p_value(None)
    ('0.031', '1.0', '< 0.0001', '< 0.0001', '–')
    """
    return "–" if value is None else "< 0.0001" if value < 1e-4 else f"{value:#.2g}"


def fixed(value: float | None, digits: int = 4, *, sign: bool = False) -> str:
    """A number with a fixed count of decimals, – where there is none.

    >>> fixed(0.78934), fixed(-0.00001), fixed(0.0041, sign=True), fixed(None)
    ('0.7893', '0.0000', '+0.0041', '–')
    """
    return "–" if value is None else f"{value:{'+' if sign else ''}z.{digits}f}"


def percent(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A part of one in percent.

    >>> percent(0.02307, 3, sign=True), percent(None)
    ('+2.307 %', '–')
    """
    return "–" if value is None else f"{100 * value:{'+' if sign else ''}z.{digits}f} %"


def count(value: float | None) -> str:
    """A whole number with its thousands apart.

    >>> count(29400000), count(None)
    ('29,400,000', '–')
    """
    return "–" if value is None else f"{round(value):,}"


def with_spread(mean: float | None, spread: float | None, digits: int = 4) -> str:
    """A mean and its standard deviation.

    >>> with_spread(0.7893, 0.0002), with_spread(0.5, None)
    ('0.7893 ± 0.0002', '0.5000')
    """
    return fixed(mean, digits) if spread is None else f"{fixed(mean, digits)} ± {fixed(spread, digits)}"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|")
