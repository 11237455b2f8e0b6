"""When a claim is said to hold: what experiments that judge have in common."""

from collections.abc import Sequence

Judgement = tuple[Sequence[bool], str]
"""Which parts of a claim hold in a result, none where nothing is judged, and a sentence or two for an overview."""
STANDARD_ERRORS = 4
"""How far a simulation may stray by chance."""
ENOUGH_SEEDS = 3
"""The fewest that an interval between seeds is made of."""


def most(some: int, of: int) -> bool:
    """More than half.

    >>> most(2, 3), most(1, 2), most(0, 0)
    (True, False, False)
    """
    return 2 * some > of


def word(parts: Sequence[bool]) -> str:
    """Whether a claim holds, by its parts.

    >>> [word(parts) for parts in ([True, True], [True, False], [False], [])]
    ['holds', 'partly holds', 'does not hold', '–']
    """
    if not parts:
        return "–"
    return "holds" if all(parts) else "partly holds" if any(parts) else "does not hold"
