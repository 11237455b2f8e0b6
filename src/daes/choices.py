"""Names that people choose from: an error for a name that is not among the choices suggests the closest one."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any


def check_choice(argument: str, value: Any, choices: Collection[Any]) -> None:
    """Raise unless the value is one of the choices, which are names and perhaps None.

    >>> check_choice("basis", "hut", ("thermometer", "hat"))
    Traceback (most recent call last):
    ValueError: basis must be one of thermometer, hat, got 'hut' (did you mean 'hat'?)
    """
    if value not in choices:
        raise ValueError(f"{argument} {not_one_of(value, choices)}")


def not_one_of(value: Any, choices: Collection[Any]) -> str:
    """The end of an error about a value that is not one of the choices."""
    return f"must be one of {', '.join(map(str, choices))}, got {value!r}{did_you_mean(value, choices)}"


def check_choices(kind: str, chosen: Sequence[str], known: Collection[str]) -> None:
    """Raise unless there is at least one name, all names are known and none occurs twice.

    >>> check_choices("methods", ["efd", "deas"], ("efd", "daes"))
    Traceback (most recent call last):
    ValueError: methods must be among efd, daes, got 'deas' (did you mean 'daes'?)
    """
    if not chosen:
        raise ValueError(f"{kind} must name at least one, got none")
    for place, name in enumerate(chosen):
        if name not in known:
            raise ValueError(f"{kind} must be among {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
        if name in chosen[:place]:
            raise ValueError(f"{kind} must name each one once; {name!r} occurs twice")


def did_you_mean(name: Any, known: Collection[Any]) -> str:
    """The end of an error about an unknown name: the closest known one, ignoring case; empty if none is close.

    >>> did_you_mean("Prize", ("price", "age"))
    " (did you mean 'price'?)"
    """
    folded = {one.casefold(): one for one in reversed(list(known)) if isinstance(one, str)}
    close = get_close_matches(name.casefold(), folded, n=1) if isinstance(name, str) else []
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""
