"""Names that people type."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches


def check_names(kind: str, names: Sequence[str], known: Collection[str]) -> None:
    """All names are known and none occurs twice.

    >>> check_names("methods", ["efd", "deas"], ("efd", "daes"))
    Traceback (most recent call last):
    ValueError: methods must be among efd, daes, got 'deas' (did you mean 'daes'?)
    """
    if not names:
        raise ValueError(f"{kind} must name at least one, got none")
    for place, name in enumerate(names):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"{kind} must be among {', '.join(known)}, got {name!r}{hint}")
        if name in names[:place]:
            raise ValueError(f"{kind} must name each one once; {name!r} occurs twice")
