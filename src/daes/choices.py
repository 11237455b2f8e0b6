"""Names that people choose from: what is not among them is an error that shows what may have been meant."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches


def not_one_of(name: str, known: Collection[str]) -> str:
    """What is wrong with a name that is not known, for an error.

    >>> not_one_of("deas", ("efd", "daes"))
    "must be one of efd, daes, got 'deas' (did you mean 'daes'?)"
    """
    return f"must be one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"


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
            raise ValueError(f"{kind} must be among {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
        if name in chosen[:place]:
            raise ValueError(f"{kind} must name each one once; {name!r} occurs twice")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of an error about a name that is not known: the closest one that is, whatever its case.

    >>> did_you_mean("Prize", ("price", "age"))
    " (did you mean 'price'?)"
    """
    folded = {one.casefold(): one for one in reversed(list(known))}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""
