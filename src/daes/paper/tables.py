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
    """A number that may be of any size.

    >>> scientific(0.000246), scientific(5.97), scientific(1130.0), scientific(29300000.0), scientific(None)
    ('2.46e-4', '5.97', '1,130', '2.93e7', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if 100 <= abs(value) < 10_000:
        return f"{value:,.0f}"
    if 0.01 <= abs(value) < 100:
        return f"{value:.{digits + 1}g}"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def fixed(value: float | None, digits: int = 4) -> str:
    """A number with a fixed count of decimals, – where there is none.

    >>> fixed(0.78934), fixed(-0.00001), fixed(None)
    ('0.7893', '0.0000', '–')
    """
    return "–" if value is None else f"{value:z.{digits}f}"


def percent(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A part of one in percent.

    >>> percent(0.02307, 3, sign=True), percent(None)
    ('+2.307 %', '–')
    """
    return "–" if value is None else f"{100 * value:{'+' if sign else ''}.{digits}f} %"


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
