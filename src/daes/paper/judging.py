"""When a claim holds: the rules that the experiments share."""

from collections.abc import Sequence

Part = bool | None
"""Whether a part of a claim holds; None where the result points that way but may be chance."""
Judgement = tuple[Sequence[Part], str]
"""Which parts of a claim hold in a result (none where nothing is judged), and a sentence or two for an overview."""
STANDARD_ERRORS = 4
"""How far a simulation may differ from theory by chance."""
ENOUGH_SEEDS = 3
"""Minimum number of seeds for an interval between seeds."""


def most(some: int, of: int) -> bool:
    """More than half.

    >>> most(2, 3), most(1, 2), most(0, 0)
    (True, False, False)
    """
    return 2 * some > of


def shown(ahead: int, surely: int, of: int) -> Part:
    """Whether something is significantly better in most cases; None if it is ahead in most, but not significantly.

    >>> shown(6, 4, 6), shown(6, 1, 6), shown(1, 1, 6)
    (True, None, False)
    """
    return True if most(surely, of) else None if most(ahead, of) else False


def word(parts: Sequence[Part]) -> str:
    """Whether a claim holds, by its parts; it partly holds if the first part does, or at least half of them.

    >>> [word(parts) for parts in ([True, True], [True, False], [True, None], [False], [])]
    ['holds', 'partly holds', 'partly holds', 'does not hold', '–']
    >>> [word(parts) for parts in ([None], [None, False], [True, False, False], [False, False, True])]
    ['not shown', 'does not hold', 'partly holds', 'does not hold']
    """
    if not parts:
        return "–"
    if all(parts):
        return "holds"
    if parts[0] or 2 * sum(part is True for part in parts) >= len(parts):
        return "partly holds"
    return "not shown" if all(part is None for part in parts) else "does not hold"
