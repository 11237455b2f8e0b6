"""Names that people choose from: what is not among them is an error that shows what may have been meant."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches


def check_choices(kind: str, chosen: Sequence[str], known: Collection[str]) -> None:
    """All names are known, at least one is there and none occurs twice.

    >>> check_choices("methods", ["efd", "deas"], ("efd", "daes"))
    Traceback (most recent call last):
    ValueError: methods must be among efd, daes, got 'deas' (did you mean 'daes'?)
    """
    if not chosen:
        raise ValueError(f"{kind} must name at least one, got none")
    for place, name in enumerate(chosen):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"{kind} must be among {', '.join(known)}, got {name!r}{hint}")
        if name in chosen[:place]:
            raise ValueError(f"{kind} must name each one once; {name!r} occurs twice")
