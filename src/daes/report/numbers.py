"""Numbers as a reader wants them: few digits, thin units, an en dash where there is none."""

from math import floor, isfinite, log10
from typing import Any

NONE = "–"
_SPACE = "\u00a0"  # keeps a number and its unit on one line


def is_number(value: Any) -> bool:
    """Whether it is a finite number (a bool is none)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def decimals(value: Any, places: int = 4) -> str:
    """A fixed number of places, as scores are compared.

    >>> decimals(0.76158), decimals(float("nan")), decimals(None)
    ('0.7616', '–', '–')
    """
    return f"{value:.{places}f}".replace("-", "−") if is_number(value) else NONE


def signed(value: Any, places: int = 4) -> str:
    """A difference.

    >>> signed(0.00123), signed(-0.5, 1), signed(0.00001)
    ('+0.0012', '−0.5', '0.0000')
    """
    if not is_number(value):
        return NONE
    text = f"{value:+.{places}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def count(value: Any) -> str:
    """A whole number with separators.

    >>> count(1234567), count(1e6)
    ('1,234,567', '1,000,000')
    """
    return f"{value:,.0f}".replace("-", "−") if is_number(value) else NONE


def compact(value: Any) -> str:
    """Three digits and a unit.

    >>> [compact(value) for value in (0, 12.345, 9999, 1234567, -2.5e9, 0.00123, 3e-7)]
    ['0', '12.3', '10k', '1.23M', '−2.5G', '0.00123', '3e−7']
    """
    if not is_number(value):
        return NONE
    if value == 0:
        return "0"
    size = abs(float(value))
    if size < 1e-4 or size >= 1e15:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    else:
        power = min(floor(log10(float(f"{size:.3g}"))) // 3, 4) if size >= 1000 else 0
        text = f"{float(f'{value:.3g}') / 1000**power:.3g}" + ("", "k", "M", "G", "T")[power]
    return text.replace("-", "−")


def plain(value: Any) -> str:
    """A value of a feature: four digits, and a unit only where it is large.

    >>> [plain(value) for value in (1013.25, 0.5, 18612, 234567, 0.000012)]
    ['1013', '0.5', '18612', '235k', '1.2e−5']
    """
    if not is_number(value) or abs(value) >= 1e5 or 0 < abs(value) < 1e-3:
        return compact(value)
    return (f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def percent(value: Any, places: int = 1) -> str:
    """A part as per cent; what is there and rounds to nothing is said to be so.

    >>> percent(0.1234), percent(0), percent(0.00001), percent(1)
    ('12.3\xa0%', '0\xa0%', '<\xa00.1\xa0%', '100\xa0%')
    """
    if not is_number(value):
        return NONE
    if 0 < value < 0.5 * 10 ** -(places + 2):
        return f"<{_SPACE}{10**-places:g}{_SPACE}%"
    text = f"{100 * value:.{places}f}".replace("-", "−")
    return (text.rstrip("0").rstrip(".") if value in (0, 1) else text) + f"{_SPACE}%"


def duration(seconds: Any) -> str:
    """A time in the unit that suits it.

    >>> duration(0.034), duration(12.3), duration(125), duration(7320)
    ('34 ms', '12.3 s', '2 min 5 s', '2 h 2 min')
    """
    if not is_number(seconds):
        return NONE
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def shorten(text: str, length: int = 24) -> str:
    """A name that fits beside an axis.

    >>> shorten("a_column_with_a_very_long_name", 12)
    'a_colu…_name'
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[-(length - 1 - head) :]}"
